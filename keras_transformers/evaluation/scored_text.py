"""Collects the predictions of a causal language model for a text."""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np

from keras_transformers.data.language_models import TokenStream
from keras_transformers.training.losses import token_crossentropy

__all__ = ["ScoredText"]


@dataclasses.dataclass(frozen=True)
class ScoredText:
    """Holds the predictions of a causal language model for a text, token by token.

    Attributes:
        log_probabilities: that of each token given those before it, in nats, float64 (tokens,).
        hidden: the vector that each token was predicted from, float32 (tokens, width).
        token_ids: the tokens, int32 (tokens,).
        document_ids: their documents, int32 (tokens,).
    """

    log_probabilities: np.ndarray
    hidden: np.ndarray
    token_ids: np.ndarray
    document_ids: np.ndarray

    @classmethod
    def of(
        cls,
        stream: TokenStream,
        outputs: Iterable[Mapping[str, np.ndarray]],
        batches: Iterable[Any],
    ) -> Self:
        """Collects a model's outputs.

        Args:
            stream: the text.
            outputs: `logits` (batch, length, V) and `hidden` (batch, length, width) of each batch.
            batches: the batches, from `RowBatches.of(stream).dataset()`.

        Raises:
            ValueError: the batches belong to another text.
        """
        parts, hidden = [], []
        for output, (_, targets, weights) in zip(outputs, batches, strict=True):
            rows = len(output["hidden"])  # further ones only complete the last batch
            counts = np.asarray(weights["logits"][:rows]) > 0
            losses = token_crossentropy(targets["logits"][:rows], output["logits"])
            parts.append(-np.asarray(losses, np.float64)[counts])
            hidden.append(output["hidden"][counts])
        token_ids = stream.token_ids[1:]
        log_probabilities = np.concatenate(parts)
        if len(log_probabilities) != len(token_ids):
            raise ValueError(
                f"the batches have {len(log_probabilities)} tokens to predict, the text "
                f"{len(token_ids)}: pass batches of this text"
            )
        documents = stream.document_ids[:-1]  # a start token is predicted from the one it ends
        return cls(log_probabilities, np.concatenate(hidden), token_ids, documents)

    def spans(self) -> list[tuple[int, int]]:
        """Returns the start and the end of each document."""
        bounds = np.flatnonzero(np.diff(self.document_ids)) + 1
        return list(itertools.pairwise([0, *bounds.tolist(), len(self.document_ids)]))

    def documents(self) -> list[np.ndarray]:
        """Returns the tokens of each document, ending with the start token of the next one."""
        return [self.token_ids[start:end] for start, end in self.spans()]
