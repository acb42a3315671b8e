"""Defines the answer of late interaction: the documents' scores and order."""

from keras_transformers.tasks.answers import AnswerType
from keras_transformers.tasks.reranking.answer import Ranking

__all__: list[str] = []

ANSWER = AnswerType(
    "late_interaction",
    Ranking,
    inputs=(("text", "documents"),),
    lists=("documents",),
    count="num_documents",
)
