from data import FOLDER, NEW_TAGS, NEW_WORDS, TAGS, WORDS
from datasets import Dataset
from seqeval.metrics import f1_score
from transformers import (
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    Trainer,
    TrainingArguments,
    pipeline,
)

names = ["O", "B-LOC", "I-LOC"]
tokenizer = AutoTokenizer.from_pretrained(FOLDER)
model = AutoModelForTokenClassification.from_pretrained(
    FOLDER,
    num_labels=len(names),
    id2label=dict(enumerate(names)),
    label2id={name: i for i, name in enumerate(names)},
)


def tokenize(batch):
    inputs = tokenizer(batch["words"], truncation=True, is_split_into_words=True)
    inputs["labels"] = []
    for row, tags in enumerate(batch["tags"]):
        labels, previous = [], None
        for word in inputs.word_ids(row):
            is_first = word is not None and word != previous
            labels.append(names.index(tags[word]) if is_first else -100)
            previous = word
        inputs["labels"].append(labels)
    return inputs


def dataset(words, tags):
    found = Dataset.from_dict({"words": words, "tags": tags})
    return found.map(tokenize, batched=True, remove_columns=found.column_names)


def compute_metrics(prediction):
    true, predicted = [], []
    for row, labels in zip(prediction.predictions.argmax(-1), prediction.label_ids, strict=True):
        true.append([names[label] for label in labels if label != -100])
        predicted.append([names[i] for i, y in zip(row, labels, strict=True) if y != -100])
    return {"f1": f1_score(true, predicted)}


trainer = Trainer(
    model,
    TrainingArguments("trained", num_train_epochs=1, report_to="none"),
    train_dataset=dataset(WORDS, TAGS),
    eval_dataset=dataset(NEW_WORDS, NEW_TAGS),
    data_collator=DataCollatorForTokenClassification(tokenizer),
    compute_metrics=compute_metrics,
)
trainer.train()
print(trainer.evaluate())
tag = pipeline("ner", model=model, tokenizer=tokenizer, aggregation_strategy="first")
print(tag("She lives in New York"))
