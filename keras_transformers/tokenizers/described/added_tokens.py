"""Finds added tokens in texts, leftmost and longest first, as the `tokenizers` library does."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.tokenizers.described import unicode_tables
from keras_transformers.tokenizers.described.text import CharacterClass, Text, before, numbered
from keras_transformers.tokenizers.described.trie import NOTHING, Trie, leftmost, marks, row_bounds
from keras_transformers.tokenizers.tensors import places, searchsorted

FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


class AddedTokens:
    """Cuts pieces of text at the names of added tokens.

    Args:
        tokens: the entries of `added_tokens` in a tokenizer.json: `id`, `content` and flags.
        contents: the string to look for, for each token.

    Raises:
        ValueError: tokens have the same content, or white space at an end beside `lstrip` or
            `rstrip`.
    """

    def __init__(self, tokens: Sequence[Mapping[str, Any]], contents: Sequence[str]) -> None:
        strips = any(token.get("lstrip") or token.get("rstrip") for token in tokens)
        for token, content in zip(tokens, contents, strict=True):
            blank = strips and content.strip() != content
            if not content or contents.count(content) > 1 or blank:
                raise ValueError(
                    f"added token {token['content']!r} cannot be distinguished from others or from "
                    "white space: give each its own text"
                )
        self._trie = Trie(contents)
        flags = np.array([[bool(t.get(f)) for f in FLAGS[:3]] for t in tokens] or [[False] * 3])
        self._single_word, self._lstrip, self._rstrip = map(tf.constant, flags.T)
        self._ids = tf.constant([int(token["id"]) for token in tokens] or [0], tf.int32)
        self._is_space = CharacterClass(unicode_tables.class_of(r"\s"))
        single_word = flags[:, 0].any()
        self._in_word = CharacterClass(unicode_tables.word_characters()) if single_word else None
        self.is_empty = not tokens

    def __call__(self, text: Text) -> tuple[Text, tf.Tensor]:
        """Cuts texts.

        Returns:
            The text, its rows now the parts at and between tokens, and the token id of each
            character that belongs to a token, or -1.
        """
        begins = text.begins()
        if self.is_empty:
            nothing = tf.fill(tf.shape(text.codes), NOTHING)
            return text._replace(rows=numbered(begins)), nothing
        size = tf.size(text.codes)
        index = tf.range(size)
        row_first, row_number, row_end = row_bounds(text)
        row_start = tf.gather(row_first, row_number)  # (characters,)
        token, end = self._trie.longest(text, row_end)
        chosen = leftmost(token >= 0, end, row_number, tf.size(row_first))
        at = places(chosen, tf.int32)  # (tokens,)
        token, stop = tf.gather(token, at), tf.gather(end, at)
        if self._in_word is not None:
            word = self._in_word(text.codes)
            joined = (at > tf.gather(row_start, at)) & tf.gather(before(word, False), at)
            inside = tf.gather(tf.concat([word, [False]], 0), stop)
            joined |= (stop < tf.gather(row_end, at)) & inside
            stays = places(~(tf.gather(self._single_word, token) & joined))
            at, token, stop = (tf.gather(column, stays) for column in (at, token, stop))
        shown = places(~self._is_space(text.codes), tf.int32)
        # rstrip: forward to the next character that is not white space.
        following = tf.gather(tf.concat([shown, [size]], 0), searchsorted(shown, stop))
        following = tf.minimum(following, tf.gather(row_end, at))
        stop = tf.where(tf.gather(self._rstrip, token), following, stop)
        # lstrip: back to the previous one, but not into the previous token.
        last = tf.gather(tf.concat([[-1], shown], 0), searchsorted(shown, at)) + 1
        last = tf.maximum(tf.maximum(last, tf.gather(row_start, at)), before(stop, 0))
        start = tf.where(tf.gather(self._lstrip, token), last, at)
        ids = tf.gather(self._ids, token)
        place = searchsorted(start, index, side="right") - 1
        inside = (place >= 0) & (index < tf.gather(tf.concat([[0], stop], 0), place + 1))
        token_ids = tf.gather(tf.concat([[NOTHING], ids], 0), place + 1)
        firsts = marks(start, size) | marks(stop, size)
        return (
            text._replace(rows=numbered(begins | firsts)),
            tf.where(inside, token_ids, NOTHING),
        )
