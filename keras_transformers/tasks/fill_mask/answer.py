"""Defines the answer of mask filling: tokens for each mask."""

from collections.abc import Sequence
from dataclasses import dataclass

from keras_transformers.tasks.answers import AnswerType, Result

__all__ = ["MaskedTokens"]


@dataclass(frozen=True)
class MaskedTokens(Result):
    """The tokens that may replace each mask.

    Attributes:
        tokens: the most likely tokens for each mask, best first.
        probabilities: the probabilities of these tokens.
    """

    tokens: Sequence[Sequence[str]]
    probabilities: Sequence[Sequence[float]]


ANSWER = AnswerType("fill_mask", MaskedTokens, count="num_masks")
