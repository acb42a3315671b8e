"""Defines the answer to a question: a span of its context."""

from dataclasses import dataclass

from keras_transformers.tasks.answers import AnswerType, Result

__all__ = ["Answer"]


@dataclass(frozen=True)
class Answer(Result):
    """The answer to a question, a span of its context.

    Attributes:
        text: the span, empty if the context has no answer.
        score: its start logit plus its end logit; `null_score` without an answer.
        start: where it starts in the context.
        end: where it ends (exclusive).
        null_score: the score of having no answer.
    """

    text: str
    score: float
    start: int
    end: int
    null_score: float


ANSWER = AnswerType(
    "question_answering", Answer, inputs=(("question", "context"),), renamed={"text": "answer"}
)
