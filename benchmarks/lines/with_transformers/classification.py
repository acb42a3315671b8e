import numpy as np
from data import FOLDER, LABELS, NEW_LABELS, NEW_TEXTS, TEXTS
from datasets import Dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    pipeline,
)

names = ["bad", "good"]
tokenizer = AutoTokenizer.from_pretrained(FOLDER)
model = AutoModelForSequenceClassification.from_pretrained(
    FOLDER, num_labels=2, id2label=dict(enumerate(names)), label2id={"bad": 0, "good": 1}
)


def dataset(texts, labels):
    found = Dataset.from_dict({"text": texts, "label": [names.index(label) for label in labels]})
    return found.map(lambda batch: tokenizer(batch["text"], truncation=True), batched=True)


def compute_metrics(prediction):
    predicted = np.argmax(prediction.predictions, axis=-1)
    return {"accuracy": (predicted == prediction.label_ids).mean()}


trainer = Trainer(
    model,
    TrainingArguments("trained", num_train_epochs=1, report_to="none"),
    train_dataset=dataset(TEXTS, LABELS),
    eval_dataset=dataset(NEW_TEXTS, NEW_LABELS),
    data_collator=DataCollatorWithPadding(tokenizer),
    compute_metrics=compute_metrics,
)
trainer.train()
print(trainer.evaluate())
print(pipeline("text-classification", model=model, tokenizer=tokenizer)("A warm film."))
