"""Makes masks: which positions of a sequence are real, and which may see each other."""

from dataclasses import dataclass
from typing import Any

import keras
from keras import ops

from keras_transformers.layers.dense import PACKAGE
from keras_transformers.layers.tensors import Tensor

__all__ = [
    "CharacterMask",
    "DocumentMask",
    "DocumentPositions",
    "PaddingMask",
    "UnattendedBias",
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

    def call(self, token_ids: Tensor) -> Tensor:
        """Maps (batch, length) ids to (batch, length) booleans."""
        return ops.not_equal(token_ids, self.pad_token_id)

    def compute_output_spec(self, token_ids: Tensor) -> Tensor:
        """Returns the shape and dtype of `call`'s result."""
        return keras.KerasTensor(token_ids.shape, dtype="bool")

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {"pad_token_id": self.pad_token_id}


@keras.saving.register_keras_serializable(PACKAGE)
class CharacterMask(keras.layers.Layer):
    """Turns character ids into a padding mask: a token is real if any of its ids is above 0."""

    def call(self, character_ids: Tensor) -> Tensor:
        """Maps (batch, tokens, characters) ids to (batch, tokens) booleans."""
        return ops.any(character_ids > 0, axis=-1)

    def compute_output_spec(self, character_ids: Tensor) -> Tensor:
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

    def call(self, document_ids: Tensor) -> Tensor:
        """Maps ids (batch, length) to (batch, query, key), True within the same document."""
        return ops.equal(document_ids[:, :, None], document_ids[:, None, :])

    def compute_output_spec(self, document_ids: Tensor) -> Tensor:
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

    def call(self, document_mask: Tensor) -> Tensor:
        """Maps a `DocumentMask`'s output (batch, length, length) to int32 (batch, length)."""
        places = ops.arange(ops.shape(document_mask)[1])
        before = ops.logical_and(document_mask, places[None, None, :] < places[None, :, None])
        return ops.sum(ops.cast(before, "int32"), axis=-1)

    def compute_output_spec(self, document_mask: Tensor) -> Tensor:
        """Returns the shape and dtype of `call`'s result."""
        return keras.KerasTensor(document_mask.shape[:2], dtype="int32")


@keras.saving.register_keras_serializable(PACKAGE)
class UnattendedBias(keras.layers.Layer):
    """Turns a mask of tokens that attend, but are not attended to, into a bias on the scores.

    Example:
        >>> UnattendedBias()(keras.ops.array([[False, True]])).numpy()
        array([[[[ 0.e+00, -1.e+09]]]], dtype=float32)
    """

    def call(self, unattended_mask: Tensor, attention_bias: Tensor | None = None) -> Tensor:
        """Maps bool (batch, key) to float32 (batch, 1, 1, key), added to another bias if given."""
        bias = ops.where(unattended_mask, MASKED_SCORE, 0.0)[:, None, None, :]
        return bias if attention_bias is None else attention_bias + bias

    def compute_output_spec(
        self, unattended_mask: Tensor, attention_bias: Tensor | None = None
    ) -> Tensor:
        """Returns the shape and dtype of `call`'s result."""
        batch, length = unattended_mask.shape
        if attention_bias is None:
            return keras.KerasTensor((batch, 1, 1, length), dtype="float32")
        return keras.KerasTensor((batch, *attention_bias.shape[1:]), dtype=attention_bias.dtype)


@dataclass(frozen=True)
class Reach:
    """The keys that a query may see by position, in self-attention.

    Attributes:
        causal: whether it sees only itself and earlier positions.
        window: how far it sees to each side; None for any distance. Hugging Face's Mistral with
            `sliding_window` 4096 has a window of 4095; its ModernBERT with `local_attention` 128
            has 64.
    """

    causal: bool = False
    window: int | None = None

    def mask(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Returns bool (query, key) for positions (query,) and (key,): True where one may see."""
        before = keys[None, :] <= queries[:, None]
        if self.window is None:
            return before if self.causal else ops.ones_like(before)
        distance = queries[:, None] - keys[None, :]
        within = ops.logical_and(distance <= self.window, distance >= -self.window)
        return ops.logical_and(within, before) if self.causal else within


EVERYWHERE = Reach()


def four_axes(mask: Tensor) -> Tensor:
    """Expands a mask of rank 2, 3 or 4 to (batch, heads or 1, query or 1, key).

    Raises:
        ValueError: the mask has another rank.
    """
    mask = ops.cast(mask, "bool")
    rank = len(mask.shape)
    if rank == 2:
        return mask[:, None, None, :]
    if rank == 3:
        return mask[:, None, :, :]
    if rank == 4:
        return mask
    raise ValueError(
        f"attention_mask has shape {tuple(mask.shape)}; it must be (batch, key), "
        "(batch, query, key) or (batch, heads, query, key)"
    )
