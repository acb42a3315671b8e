from data import FOLDER, LABEL_SETS, NEW_LABEL_SETS, NEW_TEXTS, TEXTS
from datasets import Dataset
from sklearn.metrics import f1_score
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    pipeline,
)

names = ["long", "sad", "warm"]
tokenizer = AutoTokenizer.from_pretrained(FOLDER)
model = AutoModelForSequenceClassification.from_pretrained(
    FOLDER,
    num_labels=len(names),
    problem_type="multi_label_classification",
    id2label=dict(enumerate(names)),
    label2id={name: i for i, name in enumerate(names)},
)


def dataset(texts, label_sets):
    labels = [[float(name in labels) for name in names] for labels in label_sets]
    found = Dataset.from_dict({"text": texts, "label": labels})
    return found.map(lambda batch: tokenizer(batch["text"], truncation=True), batched=True)


def compute_metrics(prediction):
    predicted = prediction.predictions > 0
    return {
        f"{average}_f1": f1_score(prediction.label_ids, predicted, average=average)
        for average in ("micro", "macro")
    }


trainer = Trainer(
    model,
    TrainingArguments("trained", num_train_epochs=1, report_to="none"),
    train_dataset=dataset(TEXTS, LABEL_SETS),
    eval_dataset=dataset(NEW_TEXTS, NEW_LABEL_SETS),
    data_collator=DataCollatorWithPadding(tokenizer),
    compute_metrics=compute_metrics,
)
trainer.train()
print(trainer.evaluate())
classify = pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=None)
print([each for each in classify("A warm film.")[0] if each["score"] > 0.5])
