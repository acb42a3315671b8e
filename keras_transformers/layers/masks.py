"""Which positions of a sequence are real, and which may see which."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
from keras import ops

from keras_transformers.layers.dense import PACKAGE

__all__ = [
    "CharacterMask",
    "DocumentMask",
    "DocumentPositions",
    "PaddingMask",
    "RowLayout",
    "TokenRows",
]

# Replaces masked scores. exp(-1e9 - max) is exactly 0. The value is finite so that fully masked
# rows give no NaN, neither in softmax nor in gradients.
MASKED_SCORE = -1e9


@keras.saving.register_keras_serializable(PACKAGE)
class PaddingMask(keras.layers.Layer):
    """Turns token ids into a padding mask: True at real tokens.

    Args:
        pad_token_id: id of the padding token.
    """

    def __init__(self, pad_token_id: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pad_token_id = pad_token_id

    def call(self, token_ids: Any) -> Any:
        """Maps (batch, length) ids to (batch, length) booleans."""
        return ops.not_equal(token_ids, self.pad_token_id)

    def compute_output_spec(self, token_ids: Any) -> Any:
        """Returns the shape and dtype of `call`'s result."""
        return keras.KerasTensor(token_ids.shape, dtype="bool")

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {"pad_token_id": self.pad_token_id}


@keras.saving.register_keras_serializable(PACKAGE)
class CharacterMask(keras.layers.Layer):
    """Turns character ids into a padding mask: a token is real if any of its ids is above 0."""

    def call(self, character_ids: Any) -> Any:
        """Maps (batch, tokens, characters) ids to (batch, tokens) booleans."""
        return ops.any(character_ids > 0, axis=-1)

    def compute_output_spec(self, character_ids: Any) -> Any:
        """Returns the shape and dtype of `call`'s result."""
        return keras.KerasTensor(character_ids.shape[:-1], dtype="bool")


@keras.saving.register_keras_serializable(PACKAGE)
class DocumentMask(keras.layers.Layer):
    """Keeps documents packed into one row from attending to each other.

    Example:
        >>> DocumentMask()(keras.ops.array([[0, 0, 1]])).numpy().astype(int)
        array([[[1, 1, 0],
                [1, 1, 0],
                [0, 0, 1]]])
    """

    def call(self, document_ids: Any) -> Any:
        """Maps ids (batch, length) to (batch, query, key), True within the same document."""
        return ops.equal(document_ids[:, :, None], document_ids[:, None, :])

    def compute_output_spec(self, document_ids: Any) -> Any:
        """Returns the shape and dtype of `call`'s result."""
        batch, length = document_ids.shape
        return keras.KerasTensor((batch, length, length), dtype="bool")


@keras.saving.register_keras_serializable(PACKAGE)
class DocumentPositions(keras.layers.Layer):
    """Counts positions from the start of each document.

    Example:
        >>> DocumentPositions()(DocumentMask()(keras.ops.array([[0, 0, 1]]))).numpy()
        array([[0, 1, 0]], dtype=int32)
    """

    def call(self, document_mask: Any) -> Any:
        """Maps a `DocumentMask`'s output (batch, length, length) to int32 (batch, length)."""
        places = ops.arange(ops.shape(document_mask)[1])
        before = ops.logical_and(document_mask, places[None, None, :] < places[None, :, None])
        return ops.sum(ops.cast(before, "int32"), axis=-1)

    def compute_output_spec(self, document_mask: Any) -> Any:
        """Returns the shape and dtype of `call`'s result."""
        return keras.KerasTensor(document_mask.shape[:2], dtype="int32")


def causal_attention_mask(length: Any) -> Any:
    """Returns a mask (1, length, length) that lets position i attend to positions 0 to i."""
    positions = ops.arange(length)
    return (positions[None, :] <= positions[:, None])[None]


def with_causal_mask(attention_mask: Any, length: Any) -> Any:
    """Combines the causal mask (1, length, length) with `attention_mask` (rank 2 or 3, or None)."""
    causal = causal_attention_mask(length)
    if attention_mask is None:
        return causal
    attention_mask = ops.cast(attention_mask, "bool")
    if len(attention_mask.shape) == 2:  # (batch, key) to (batch, 1, key)
        attention_mask = attention_mask[:, None, :]
    return ops.logical_and(causal, attention_mask)


def _take(rows: Any, places: Any) -> Any:
    return ops.take(rows, places, axis=0)


class RowLayout:
    """Where the real tokens of a batch stand, and which keys a query may see.

    The first position of each row always counts as a token, so that a row that is all padding still
    has a vector for a pooler to read.

    Args:
        padding_mask: bool (batch, length), True at real tokens.
        like: a tensor (batch, length, ...) from which to take the shape if there is no mask; then
            all positions are real.
        min_tokens: the fewest rows that `tokens` returns; the first token fills them up.
        take: maps rows (rows, features) and places to the rows there. `tf.gather` takes fewer steps
            than `ops.take`, which allows negative places.
    """

    def __init__(
        self,
        padding_mask: Any = None,
        *,
        like: Any = None,
        min_tokens: int = 0,
        take: Callable[[Any, Any], Any] = _take,
    ) -> None:
        self.min_tokens, self._take = min_tokens, take
        self.batch, self.length = ops.shape(like if padding_mask is None else padding_mask)[:2]
        self.padding_mask = padding_mask
        self._biases: dict[int, tuple[Any, Any]] = {}

    @functools.cached_property
    def _is_kept(self) -> Any:
        first = ops.arange(self.length) == 0  # (length,)
        kept = ops.logical_or(self.padding_mask, first[None])
        return ops.reshape(kept, (-1,))  # (batch * length,)

    @functools.cached_property
    def _kept(self) -> Any:
        kept = ops.cast(ops.nonzero(self._is_kept)[0], "int32")  # (tokens,)
        if not self.min_tokens:
            return kept
        missing = ops.maximum(self.min_tokens - ops.shape(kept)[0], 0)
        return ops.concatenate([kept, ops.zeros((missing,), "int32")])

    @functools.cached_property
    def _places(self) -> Any:
        """The token for each position, (batch * length,); padding repeats the token before it."""
        return ops.cumsum(ops.cast(self._is_kept, "int32")) - 1

    def tokens(self, padded: Any) -> Any:
        """Maps (batch, length, features) to the real tokens' (tokens, features)."""
        rows = ops.reshape(padded, (-1, padded.shape[-1]))  # (batch * length, features)
        return rows if self.padding_mask is None else self._take(rows, self._kept)

    def padded(self, tokens: Any) -> Any:
        """Maps (tokens, features) to (batch, length, features); padding holds other tokens."""
        rows = tokens if self.padding_mask is None else self._take(tokens, self._places)
        return ops.reshape(rows, (self.batch, self.length, tokens.shape[-1]))

    @functools.cached_property
    def any_visible(self) -> Any:
        """Float32 (batch, 1, 1, 1): 1 where a row has real tokens; None without a mask."""
        if self.padding_mask is None:
            return None
        return ops.cast(ops.any(self.padding_mask, axis=1), "float32")[:, None, None, None]

    @functools.cached_property
    def _mask_bias(self) -> Any:
        scores = ops.where(self.padding_mask, 0.0, MASKED_SCORE)
        return scores[:, None, None, :]  # (batch, 1, 1, key)

    def scores_bias(self, attention_bias: Any = None) -> Any:
        """Returns what to add to the scores, made once for all layers; None if nothing.

        Args:
            attention_bias: (batch or 1, heads, query, key), or None.
        """
        if self.padding_mask is None:
            return attention_bias
        if attention_bias is None:
            return self._mask_bias
        if id(attention_bias) not in self._biases:  # kept with it, or its id might be used again
            self._biases[id(attention_bias)] = attention_bias, attention_bias + self._mask_bias
        return self._biases[id(attention_bias)][1]


@dataclass(frozen=True)
class TokenRows:
    """Vectors of the real tokens, and where they stand.

    Attributes:
        values: (tokens, features).
        layout: where the tokens stand in the batch.
    """

    values: Any
    layout: RowLayout

    def padded(self) -> Any:
        """Returns (batch, length, features), for layers that need all positions."""
        return self.layout.padded(self.values)
