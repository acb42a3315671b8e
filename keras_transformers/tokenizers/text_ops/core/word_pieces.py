"""Splits words into pieces, longest match first, with TensorFlow's own ops."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_transformers.tokenizers import offsets
from keras_transformers.tokenizers.described.parts import Parts
from keras_transformers.tokenizers.described.splitters import isolating, keeping
from keras_transformers.tokenizers.described.text import (
    CODES,
    CharacterClass,
    CharacterMap,
    decode,
    with_deleted,
)
from keras_transformers.tokenizers.described.trie import NOTHING, Trie, leftmost, row_bounds
from keras_transformers.tokenizers.normalization import bert_characters
from keras_transformers.tokenizers.tensors import kept
from keras_transformers.tokenizers.text_ops.core.graphs import in_graph
from keras_transformers.tokenizers.text_ops.limits import LONGEST_WORD

__all__: list[str] = []

_CONTINUES = "##"


class CoreWordPieces:
    """BERT's normalization, words and pieces; see `text_ops.forms.WordPieces`.

    Args:
        tokens: the vocabulary.
        unknown_token: the token of words that are no pieces.
        lowercase: whether to lower-case texts and strip accents; None for words alone.
    """

    def __init__(
        self, tokens: Sequence[str], *, unknown_token: str, lowercase: bool | None
    ) -> None:
        self._trie = Trie(tokens)
        self._inside_word = self._trie.state(_CONTINUES)
        self._unknown_token_id = tokens.index(unknown_token)
        if lowercase is None:
            return
        deleted = CharacterClass(bert_characters.deleted())
        self._parts = Parts(
            {},
            num_tokens=len(tokens),
            byte_level=False,
            more_steps=[
                lambda text: with_deleted(text, ~deleted(text.codes)),
                CharacterMap(bert_characters.character_table(lowercase=lowercase)),
                keeping(np.arange(CODES) != ord(" ")),
                isolating(bert_characters.single_words(), repeated=False),
            ],
        )

    @in_graph
    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        return self._parts.tokenize(text, self._encode)[0]

    @in_graph
    def tokenize_with_offsets(
        self, text: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        ids, starts, ends = self._parts.tokenize(text, self._encode)
        return ids, *offsets.within_texts(text, ids.value_rowids(), starts, ends)

    @in_graph
    def encode(self, words: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        return self._encode(words)

    def _encode(self, words: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        text = decode(words)
        begins = text.begins()
        first, row, row_end = row_bounds(text)
        count = tf.size(first)
        states = tf.where(begins, tf.constant(0, tf.int64), self._inside_word)
        token, end = self._trie.longest(text, row_end, states)
        chosen = leftmost(token != NOTHING, end, row, count)
        # A word is unknown if its pieces leave a gap, or if it is too long.
        index = tf.range(tf.size(row))
        covered = tf.math.unsorted_segment_sum(tf.where(chosen, end - index, 0), row, count)
        length = tf.gather(row_end, first) - first
        is_word = tf.gather((covered == length) & (length <= LONGEST_WORD), row)
        is_token = tf.where(is_word, chosen, begins)
        ids = tf.where(is_word, token, self._unknown_token_id)
        last = tf.where(is_word, end, row_end) - 1
        word_starts = tf.gather(text.starts, tf.gather(first, row))
        ids = tf.RaggedTensor.from_value_rowids(
            kept(ids, is_token), kept(text.rows, is_token), tf.size(words, tf.int64), validate=False
        )
        ends = tf.gather(text.ends, last) - word_starts
        return (
            ids,
            ids.with_values(kept(text.starts - word_starts, is_token)),
            ids.with_values(kept(ends, is_token)),
        )
