"""Runs the parts of a tokenizer.json around the model of its vocabulary."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from keras_transformers.tokenizers.described import unicode_tables
from keras_transformers.tokenizers.described.added_tokens import AddedTokens
from keras_transformers.tokenizers.described.charsmap import Charsmap
from keras_transformers.tokenizers.described.normalizers import normalizer_steps
from keras_transformers.tokenizers.described.splitters import Step, is_byte_level, splitter_steps
from keras_transformers.tokenizers.described.text import (
    Text,
    byte_lengths,
    changes,
    decode,
    encode,
    numbered,
)
from keras_transformers.tokenizers.tensors import kept, places, searchsorted

__all__ = ["Parts"]

# Takes distinct words; returns token ids, and the starts and ends of tokens in bytes of the words.
Encoder = Callable[[tf.Tensor], tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]]

_ROOM = 1 << 31  # more than there are parts

_FIELDS = ("normalizer", "pre_tokenizer", "added_tokens")


class Parts:
    """Normalizes and splits texts, and matches added tokens before that.

    Everything runs in the graph, with core TensorFlow ops. Ids equal those of the `tokenizers`
    library.

    Args:
        description: `normalizer`, `pre_tokenizer` and `added_tokens` as in a tokenizer.json; each
            may be left out.
        num_tokens: number of tokens in the vocabulary without the added ones.
        byte_level: whether the vocabulary is made of bytes.
        charsmap: the normalization of the SentencePiece model that encodes the words, to use as the
            normalizer: see `Charsmap`.
        more_steps: further steps that split texts, after the pre-tokenizer.
        match_special_tokens: whether the names of special tokens in a text are these tokens.

    Attributes:
        description: the same.
        added: the tokens that the vocabulary lacks, in the order of their ids.

    Raises:
        ValueError: a component cannot be reproduced exactly, or does not fit the vocabulary; the
            message names it.
    """

    def __init__(
        self,
        description: Mapping[str, Any],
        *,
        num_tokens: int,
        byte_level: bool,
        charsmap: bytes | None = None,
        more_steps: Sequence[Step] = (),
        match_special_tokens: bool = True,
    ) -> None:
        if unknown := set(description) - set(_FIELDS):
            raise ValueError(f"unknown parts {', '.join(sorted(unknown))}: use {_FIELDS}")
        self.description = {field: description.get(field) for field in _FIELDS}
        normalizer, splitter = description.get("normalizer"), description.get("pre_tokenizer")
        tokens: Sequence[Mapping[str, Any]] = description.get("added_tokens") or []
        if is_byte_level(splitter) != byte_level:
            kind = (splitter or {}).get("type")
            raise ValueError(
                f"pre_tokenizer {kind} is not supported here with a vocabulary of "
                f"{'bytes, which needs ByteLevel' if byte_level else 'characters'}"
            )
        new = {token["id"]: token["content"] for token in tokens if token["id"] >= num_tokens}
        ids = sorted(new)
        if ids != list(range(num_tokens, num_tokens + len(ids))):
            raise ValueError(
                f"the added tokens have the ids {ids}; expected {num_tokens} and those after it, "
                "without gaps"
            )
        self.added = [new[token_id] for token_id in ids]
        with tf.device("CPU:0"):
            self._normalize = normalizer_steps(normalizer)
            self._split = [*splitter_steps(splitter), *more_steps]
            matched = [t for t in tokens if match_special_tokens or not t.get("special")]
            raw = [token for token in matched if not token.get("normalized")]
            late = [token for token in matched if token.get("normalized")]
            normal = unicode_tables.normalizer_of(json.dumps(normalizer))
            if charsmap is not None:
                self._normalize = [Charsmap(charsmap)]
                normal = self._normalized
            self._matchers = (
                AddedTokens(raw, [token["content"] for token in raw]),
                AddedTokens(late, [normal(token["content"]) for token in late]),
            )

    def tokenize(
        self, text: tf.Tensor, encoder: Encoder
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Converts texts to token ids with their spans.

        Args:
            text: strings (batch,).
            encoder: the vocabulary's model.

        Returns:
            Token ids int32, and starts and ends int64 in bytes of all texts end to end, each
            (batch, None). A span covers the characters that a token touches, and deleted characters
            after them.
        """
        with tf.device("CPU:0"):
            words, added, row_of = self._words(text)
            is_first = words.begins()
            count = tf.reduce_sum(tf.cast(is_first, tf.int64))
            number = tf.cumsum(tf.cast(is_first, tf.int64)) - 1
            strings, distinct = tf.unique(encode(words, number, count))
            ids, starts, ends = (tf.gather(column, distinct) for column in encoder(strings))
            word = ids.value_rowids()  # (tokens,)
            # From bytes of words to characters of the text.
            lengths = byte_lengths(words.codes)
            byte_ends = tf.cumsum(lengths)
            firsts = places(is_first)
            begin = tf.gather(tf.gather(byte_ends - lengths, firsts), word)
            first = searchsorted(byte_ends, begin + starts.values, side="right")
            last = searchsorted(byte_ends - lengths, begin + ends.values) - 1
            span = tf.ragged.range(first, last + 1)
            row = span.value_rowids()
            tokens = tf.size(word, tf.int64)
            # A token without characters, such as a prefix, is placed where the next one starts.
            is_empty = span.row_lengths() == 0
            at = tf.gather(words.starts, tf.minimum(first, tf.size(words.starts) - 1))
            starts = tf.math.unsorted_segment_min(tf.gather(words.starts, span.values), row, tokens)
            ends = tf.math.unsorted_segment_max(tf.gather(words.ends, span.values), row, tokens)
            starts, ends = tf.where(is_empty, at, starts), tf.where(is_empty, at, ends)
            place = tf.gather(tf.gather(words.places, firsts), word)
            ids = ids.values
            if added:
                columns = [
                    tf.concat(column, 0)
                    for column in zip((place, ids, starts, ends), *added, strict=True)
                ]
                order = tf.argsort(columns[0], stable=True)
                place, ids, starts, ends = (tf.gather(column, order) for column in columns)
            ids = tf.RaggedTensor.from_value_rowids(
                ids,
                tf.gather(row_of, place // _ROOM),
                nrows=tf.size(text, tf.int64),
                validate=False,
            )
            return ids, ids.with_values(starts), ids.with_values(ends)

    def _normalized(self, content: str) -> str:
        text = decode(tf.constant([content]))
        for step in self._normalize:
            text = step(text)
        normal: bytes = encode(text, text.rows, 1).numpy()[0]
        return normal.decode()

    def _words(self, text: tf.Tensor) -> tuple[Text, list[tuple[tf.Tensor, ...]], tf.Tensor]:
        """Returns the words as rows of text, the added tokens found, and the row of each part.

        Words of one part keep their order; `places // _ROOM` is the number of a part.
        """
        raw, late = self._matchers
        texts = decode(text)
        parts, ids = raw(texts)
        row_of = kept(texts.rows, parts.begins())
        leads = tf.gather(changes(row_of), parts.rows)
        parts = parts._replace(places=parts.rows * _ROOM, leads=leads)
        added = [] if raw.is_empty else [_tokens(parts, ids)]
        parts = parts if raw.is_empty else parts.only(ids < 0)
        for step in self._normalize:
            parts = step(parts)
        parts, ids = late(parts)
        leads = kept(changes(parts.places), parts.begins())
        leads = parts.leads & tf.gather(leads, numbered(parts.begins()))
        parts = parts._replace(places=parts.places + parts.rows, leads=leads)
        if not late.is_empty:
            added.append(_tokens(parts, ids))
            parts = parts.only(ids < 0)
        for split in self._split:
            parts = split(parts)
        return parts, added, row_of


def _tokens(text: Text, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the places, ids, starts and ends of the parts that are added tokens."""
    at = places(ids >= 0)
    text, ids = text.take(at), tf.gather(ids, at)
    is_first = text.begins()
    number = tf.cumsum(tf.cast(is_first, tf.int64)) - 1
    count = tf.reduce_sum(tf.cast(is_first, tf.int64))
    return (
        kept(text.places, is_first),
        kept(ids, is_first),
        tf.math.unsorted_segment_min(text.starts, number, count),
        tf.math.unsorted_segment_max(text.ends, number, count),
    )
