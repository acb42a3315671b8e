from data import ANSWERS, FOLDER, NEW_ANSWERS, NEW_QUESTIONS, QUESTIONS
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.evaluation import InformationRetrievalEvaluator
from sentence_transformers.losses import MultipleNegativesRankingLoss

model = SentenceTransformer(FOLDER)
trainer = SentenceTransformerTrainer(
    model,
    SentenceTransformerTrainingArguments("trained", num_train_epochs=1, report_to="none"),
    train_dataset=Dataset.from_dict({"anchor": QUESTIONS, "positive": ANSWERS}),
    loss=MultipleNegativesRankingLoss(model),
)
trainer.train()
evaluate = InformationRetrievalEvaluator(
    queries={str(i): question for i, question in enumerate(NEW_QUESTIONS)},
    corpus={str(i): answer for i, answer in enumerate(NEW_ANSWERS)},
    relevant_docs={str(i): {str(i)} for i in range(len(NEW_QUESTIONS))},
)
print(evaluate(model))
print(model.encode("Where is it?"))
