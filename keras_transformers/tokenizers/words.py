"""Finds words in texts, and their first tokens, with core ops, eagerly or in a graph."""

import functools
import unicodedata

import numpy as np
import tensorflow as tf

from keras_transformers.tokenizers.normalization.bert_characters import CHINESE
from keras_transformers.tokenizers.tensors import Texts, kept, places, row_numbers, searchsorted

_OTHER, _MARK, _CHINESE, _SPACE, _ACCENT, _UNSEEN = range(6)  # kinds of characters
_ROOM = 2**32  # above every offset into a text


def spans(text: Texts) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Finds the words of texts.

    Words end at white space. Punctuation before and after them is split off, mark by mark;
    punctuation inside stays: "(U.N. officials)" is ( U.N . officials ), and "Jean-Pierre" is one
    word. Corpora such as CoNLL-2003 are split this way except for a few abbreviations and clitics
    ("U.N.", "'s"). In training, only a word's first token has a label; if every mark ended a word,
    models would have to label tokens that never had a label. Each Chinese character is a word.
    Control and format characters, invalid UTF-8 and combining accents belong to the character
    before them; an accent after white space starts a word.

    Args:
        text: strings (batch,), any bytes.

    Returns:
        Starts and ends (exclusive), each int32 (batch, words), in bytes of the text.
    """
    codes, offsets = tf.strings.unicode_decode_with_offsets(text, "UTF-8")  # (batch, characters)
    row, start = row_numbers(codes), offsets.values  # (characters,)
    first_codes, kinds = _character_kinds()
    kind = tf.gather(kinds, searchsorted(first_codes, codes.values, side="right") - 1)
    gap = tf.cumsum(tf.cast(kind == _SPACE, tf.int32))  # equal if no white space lies between

    # Invisible characters and accents belong to the character before them.
    after_space = _differs(row)[:-1] | (tf.concat([[_SPACE], kind], axis=0)[:-1] == _SPACE)
    is_seen = (kind < _ACCENT) | ((kind == _ACCENT) & after_space)
    seen = places(is_seen)
    row, start, kind, gap = (tf.gather(part, seen) for part in (row, start, kind, gap))
    length = tf.gather(tf.cast(tf.strings.length(text), tf.int64), row)
    end = tf.where(_differs(row)[1:], length, tf.concat([start[1:], length[-1:]], axis=0))

    shown = places(kind != _SPACE)
    row, start, end, kind, gap = (tf.gather(part, shown) for part in (row, start, end, kind, gap))
    is_chinese = tf.concat([[False], kind == _CHINESE], axis=0)
    is_apart = _differs(row)[:-1] | _differs(gap)[:-1] | is_chinese[1:] | is_chinese[:-1]
    # In a run without gaps: how many non-marks come before a character, and how many from there on.
    run = tf.cumsum(tf.cast(is_apart, tf.int32)) - 1
    is_other = tf.cast(kind != _MARK, tf.int32)
    num_before = tf.cumsum(is_other, exclusive=True)
    num_before -= tf.gather(kept(num_before, is_apart), run)
    num_from_here = tf.gather(tf.math.segment_sum(is_other, run), run) - num_before
    begins = is_apart | (num_before == 0) | (num_from_here == 0)

    ends = kept(end, tf.concat([begins[1:], [True]], axis=0)[: tf.size(begins)])
    starts = tf.RaggedTensor.from_value_rowids(
        tf.cast(kept(start, begins), tf.int32),
        kept(row, begins),
        codes.nrows(),
        validate=False,
    )
    return starts, starts.with_values(tf.cast(ends, tf.int32))


def split(text: Texts) -> tf.RaggedTensor:
    """Splits texts, strings (batch,), into the words that `spans` finds: strings (batch, words).

    >>> split(["(Jean-Pierre's 3.5%)"]).to_list()
    [[b'(', b"Jean-Pierre's", b'3.5', b'%', b')']]
    """
    return cut(text, *spans(text))


def cut(text: Texts, starts: tf.RaggedTensor, ends: tf.RaggedTensor) -> tf.RaggedTensor:
    """Cuts byte spans out of texts, strings (batch,): strings (batch, words)."""
    row = row_numbers(starts)
    words = tf.strings.substr(tf.gather(text, row), starts.values, ends.values - starts.values)
    return starts.with_values(words)


def join(words: tf.RaggedTensor) -> tuple[tf.Tensor, tf.RaggedTensor, tf.RaggedTensor]:
    """Joins words with spaces into texts that a tokenizer can read.

    Args:
        words: strings (batch, words).

    Returns:
        Strings (batch,); and the starts and ends of the words, as `spans` returns them.
    """
    row = row_numbers(words)
    # Not with `separator`, which drops empty words at the start of a text.
    spaces = tf.where(_differs(row)[1:], "", " ")
    text = tf.strings.reduce_join(words.with_values(words.values + spaces), axis=1)
    lengths = tf.strings.length(words.values)
    after = tf.cumsum(lengths + 1)  # where the next word starts, with all texts end to end
    first = tf.gather(tf.concat([[0], after], axis=0), words.row_starts())  # (batch,)
    ends = after - 1 - tf.gather(first, row)
    return text, words.with_values(ends - lengths), words.with_values(ends)


def first_tokens(
    starts: tf.RaggedTensor,
    ends: tf.RaggedTensor,
    token_starts: tf.RaggedTensor,
    token_ends: tf.RaggedTensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds the first token of each word, with any tokenizer: the first that shares a byte with it.

    Args:
        starts: int32 (batch, words), start of each word in bytes.
        ends: int32 (batch, words), exclusive.
        token_starts: int32 (batch, tokens), from `tokenize_with_offsets`.
        token_ends: int32 (batch, tokens), exclusive.

    Returns:
        Indices into `token_starts.values`, int64 (words of all texts,); and whether there is such a
        token, bool (words of all texts,).
    """
    start, end, token_start, token_end = (
        row_numbers(side) * _ROOM + tf.cast(side.values, tf.int64)
        for side in (starts, ends, token_starts, token_ends)
    )
    first = searchsorted(token_end, start, side="right", dtype=tf.int64)
    token_start = tf.concat([token_start, [tf.int64.max]], axis=0)
    return first, (tf.gather(token_start, first) < end) & (start < end)


def _differs(values: tf.Tensor) -> tf.Tensor:
    """Returns whether neighbours differ; the borders at both ends count as True: (values + 1,)."""
    border = tf.ones([tf.minimum(1, tf.size(values))], tf.bool)
    return tf.concat([border, values[1:] != values[:-1], [True]], axis=0)


@functools.cache
def _character_kinds() -> tuple[np.ndarray, np.ndarray]:
    """Returns the first code of each run of characters of one kind, and the kinds, int32."""
    kinds = np.array([_kind(chr(code)) for code in range(0x110000)], np.int32)
    for first, last in zip(CHINESE[::3], CHINESE[2::3], strict=True):  # "a-z" and so on
        kinds[ord(first) : ord(last) + 1] = _CHINESE
    starts = np.flatnonzero(np.diff(kinds, prepend=-1))
    return starts.astype(np.int32), kinds[starts]


def _kind(character: str) -> int:
    category = unicodedata.category(character)
    if category[0] == "Z" or character in "\t\n\r":
        return _SPACE
    if category in ("Cc", "Cf", "Co") or character == "\ufffd":
        return _UNSEEN  # control, format and private use characters, invalid UTF-8
    if category == "Mn":
        return _ACCENT
    is_mark = character.isascii() and not character.isalnum()
    return _MARK if is_mark or category[0] == "P" else _OTHER
