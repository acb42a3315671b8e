"""Finds added tokens in texts, and lets a SentencePiece model read the text between them."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from sentencepiece import sentencepiece_model_pb2

from keras_transformers.tokenizers.described.charsmap import charsmap_of
from keras_transformers.tokenizers.described.parts import Parts
from keras_transformers.tokenizers.tensors import Texts, kept, row_numbers
from keras_transformers.tokenizers.text_ops.forms import Forms, SentencePieces, sentence_pieces

__all__ = ["AddedPieces", "join_around"]

_USER_DEFINED = 4  # a type of piece
# Occurs in no text. An empty normalization would be logged each time.
_CHARACTER = "\ufdd0"


class AddedPieces(tf.Module):
    """Finds added tokens in texts, and lets a SentencePiece model read each part between them.

    As in transformers, each part is read like a separate text. Tokens with `normalized` are matched
    after the model's normalization, others before it.

    Args:
        tokens: their `id`, `content` and flags, as in the `added_tokens` of a tokenizer.json.
        model: the SentencePiece model.
        tokenizer: the opened model.
        num_tokens: number of tokens of the vocabulary without the added ones.
        also: tokens of the vocabulary that are also matched in texts.

    Attributes:
        names: the tokens that the vocabulary lacks, in the order of their ids.

    Raises:
        ValueError: the tokens' ids have gaps, two cannot be distinguished, or the model matches its
            own strings before it normalizes.
    """

    def __init__(
        self,
        tokens: Sequence[Mapping[str, Any]],
        model: bytes,
        tokenizer: Forms[SentencePieces],
        *,
        num_tokens: int,
        also: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(name="added_pieces")
        charsmap = None
        if any(token.get("normalized") for token in tokens):
            # The text is normalized before the model gets it, so the model must not normalize it
            # again.
            proto: Any = sentencepiece_model_pb2  # created at run time, without types
            model_proto = proto.ModelProto.FromString(model)
            charsmap = model_proto.normalizer_spec.precompiled_charsmap or None
            user_defined = [p.piece for p in model_proto.pieces if p.type == _USER_DEFINED]
            if charsmap and user_defined:
                raise ValueError(
                    f"added tokens with normalized=true are not supported beside the SentencePiece "
                    f"model's own user-defined symbols, such as {user_defined[0]!r}"
                )
            model_proto.normalizer_spec.precompiled_charsmap = charsmap_of({_CHARACTER: _CHARACTER})
            tokenizer = sentence_pieces(model_proto.SerializeToString()) if charsmap else tokenizer
        self._tokens = json.dumps(list(tokens))  # a string: tf.Module wraps and searches lists
        self._pieces = tokenizer
        self._parts = Parts(
            {"added_tokens": [*also, *tokens]},
            num_tokens=num_tokens,
            byte_level=False,
            charsmap=charsmap,
        )
        self.names = tuple(self._parts.added)

    @property
    def tokens(self) -> list[dict[str, Any]]:
        """The added tokens, as given."""
        tokens: list[dict[str, Any]] = json.loads(self._tokens)
        return tokens

    def tokenize(
        self, text: tf.Tensor, encode: Callable[[tf.Tensor], tf.Tensor]
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Converts texts to token ids with their spans.

        Args:
            text: strings (batch,).
            encode: converts pieces of the model to token ids, int32 of any shape.

        Returns:
            Token ids int32, and starts and ends int64 in bytes of all texts end to end, each
            (batch, None).
        """

        def pieces(words: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
            piece_ids, starts, ends = self._pieces().tokenize_with_offsets(words)
            ids = tf.ragged.map_flat_values(encode, piece_ids)
            return ids, tf.cast(starts, tf.int64), tf.cast(ends, tf.int64)

        return self._parts.tokenize(text, pieces)

    def between(
        self, text: tf.Tensor, tokenize: Callable[[Texts], tf.RaggedTensor]
    ) -> tf.RaggedTensor:
        """Converts texts to token ids, int32 (batch, None); `tokenize` reads the parts between."""

        def without_spans(
            words: tf.Tensor,
        ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
            ids = tokenize(words)
            nowhere = tf.zeros_like(ids, tf.int64)
            return ids, nowhere, nowhere

        return self._parts.tokenize(text, without_spans)[0]


def join_around(
    token_ids: tf.RaggedTensor,
    is_whole: tf.Tensor,
    names: tf.Tensor,
    detokenize: Callable[[tf.RaggedTensor], tf.Tensor],
) -> tf.Tensor:
    """Converts ids to texts; some tokens keep their names, between single spaces.

    Args:
        token_ids: int32 (rows, None).
        is_whole: whether each token keeps its name, bool (all tokens,).
        names: the names of those tokens, strings (all tokens,); others are ignored.
        detokenize: converts the ids between them, int32 (parts, None), to strings (parts,). It also
            gets the tokens that keep their names, each as a part of its own.

    Returns:
        Strings (rows,).
    """
    rows = row_numbers(token_ids)
    row_before = tf.concat([[-1], rows], axis=0)[:-1]
    whole_before = tf.concat([[False], is_whole], axis=0)[:-1]
    starts = (rows != row_before) | is_whole | whole_before
    numbers = tf.cumsum(tf.cast(starts, tf.int64)) - 1
    num_parts = tf.reduce_sum(tf.cast(starts, tf.int64))
    parts = tf.RaggedTensor.from_value_rowids(token_ids.values, numbers, nrows=num_parts)
    text = tf.where(kept(is_whole, starts), kept(names, starts), detokenize(parts))
    is_text = text != ""
    by_row = tf.RaggedTensor.from_value_rowids(
        kept(text, is_text),
        kept(kept(rows, starts), is_text),
        nrows=token_ids.nrows(),
    )
    return tf.strings.reduce_join(by_row, axis=1, separator=" ")
