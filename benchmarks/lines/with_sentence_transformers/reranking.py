from data import DOCUMENTS, FOLDER, NEW_DOCUMENTS, NEW_QUERIES, NEW_RELEVANT, QUERIES, RELEVANT
from datasets import Dataset
from sentence_transformers.cross_encoder import (
    CrossEncoder,
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
)
from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

model = CrossEncoder(FOLDER, num_labels=1)
trainer = CrossEncoderTrainer(
    model,
    CrossEncoderTrainingArguments("trained", num_train_epochs=1, report_to="none"),
    train_dataset=Dataset.from_dict({"query": QUERIES, "document": DOCUMENTS, "label": RELEVANT}),
    loss=BinaryCrossEntropyLoss(model),
)
trainer.train()
samples = {}
for query, document, is_relevant in zip(NEW_QUERIES, NEW_DOCUMENTS, NEW_RELEVANT, strict=True):
    sample = samples.setdefault(query, {"query": query, "positive": [], "negative": []})
    sample["positive" if is_relevant else "negative"].append(document)
evaluate = CrossEncoderRerankingEvaluator(list(samples.values()))
print(evaluate(model))
print(model.rank("Where is it?", ["In the north.", "A warm film."]))
