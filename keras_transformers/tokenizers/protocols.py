"""Says what tasks need of tokenizers, for type checkers: any class with these methods will do."""

import os
from collections.abc import Sequence
from typing import Any, Protocol

import tensorflow as tf

from keras_transformers.tokenizers.tensors import Texts

__all__: list[str] = []


class Tokenizer(Protocol):
    """Converts texts to token ids, in the graph."""

    vocabulary_size: int
    pad_token_id: int

    @property
    def vocabulary(self) -> Sequence[str]:
        """All tokens, by id."""

    def tokenize(self, text: Texts) -> tf.RaggedTensor:
        """Converts strings (batch,) to ids, int32 (batch, None), without special tokens."""

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the vocabulary to a folder."""

    def config(self) -> dict[str, Any]:
        """Returns the arguments, as JSON values, that restore it from that folder."""


class PackingTokenizer(Tokenizer, Protocol):
    """Also packs the tokens of one or two texts into the inputs of a model."""

    def pack(
        self, segments: Sequence[tf.RaggedTensor], *, max_sequence_length: int
    ) -> dict[str, tf.Tensor]:
        """Truncates, pads and adds special tokens: model inputs, each (batch, length)."""

    def num_special_tokens(self, num_segments: int) -> int:
        """Returns the number of tokens that `pack` adds."""


class SpanTokenizer(PackingTokenizer, Protocol):
    """Also says where in its text each token comes from."""

    def tokens(self, token_ids: tf.Tensor) -> tf.Tensor:
        """Returns the tokens of ids, as in the vocabulary: strings of the same shape."""

    def special_tokens(self, num_segments: int) -> list[list[int]]:
        """Returns the ids that `pack` puts before each text and after the last."""

    def tokenize_with_offsets(
        self, text: Texts
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Returns ids, starts and ends in bytes, each int32 (batch, None)."""


class MaskTokenizer(PackingTokenizer, Protocol):
    """Also knows the token that stands for words to be predicted."""

    mask_token: str
    mask_token_id: int

    def split_at_masks(self, text: Texts) -> tf.RaggedTensor:
        """Splits strings (batch,) at the mask token: (batch, None)."""


class TextTokenizer(Tokenizer, Protocol):
    """Also converts ids back to texts, for models that write."""

    end_token_id: int

    @property
    def start_token_id(self) -> int | None:
        """The token before a text; None for none."""

    def detokenize(self, token_ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Converts ids (batch, length) to strings (batch,)."""


class TargetTokenizer(TextTokenizer, Protocol):
    """Also adds the start and the end token, as decoders are trained with."""

    def tokens(self, token_ids: tf.Tensor) -> tf.Tensor:
        """Returns the tokens of ids, as in the vocabulary: strings of the same shape."""

    def tokenize(
        self, text: Texts, *, add_start: bool = ..., add_end: bool = ...
    ) -> tf.RaggedTensor:
        """Converts strings (batch,) to ids, int32 (batch, None)."""


class GeneratorTokenizer(TextTokenizer, Protocol):
    """Also says which tokens go before a text, for models that continue it."""

    def tokens(self, token_ids: tf.Tensor) -> tf.Tensor:
        """Returns the tokens of ids, as in the vocabulary: strings of the same shape."""

    def special_tokens(self, num_segments: int) -> list[list[int]]:
        """Returns the ids before each text and after the last."""
