"""Running text to words, cut as corpora of labelled words are. Core ops, in and out of graph."""

from typing import Any

import tensorflow as tf

from keras_transformers.tokenizers.normalization import bert_characters

# A token that is punctuation for BERT, and bytes behind it that the normalizer deletes.
_MARK = r"(?:[!-/:-@\[-`{-~]|\p{P})\C*"
_CHINESE = rf"[{bert_characters.CHINESE}]\C*"


def begins_word(text: Any, starts: tf.RaggedTensor, ends: tf.RaggedTensor) -> tf.Tensor:
    """Which tokens of texts begin a word.

    Words end at white space. What stands before and behind them of punctuation is split off, mark
    by mark; what stands inside stays: "(U.N. officials)" is ( U.N . officials ), and "Jean-Pierre"
    is one word. Corpora such as CoNLL-2003 are cut like that but for a few abbreviations and
    clitics ("U.N.", "'s"), and models see the label of a word on its first token alone: BERT's own
    words, which end at every mark, would ask them about tokens that never had one. Each Chinese
    character is a word.

    Args:
        text: strings (batch,).
        starts: int32 (batch, None), where each token begins, in bytes of the text.
        ends: int32 (batch, None), exclusive; both as `tokenize_with_offsets` returns them.

    Returns:
        bool (tokens,), of all texts.
    """
    row = starts.value_rowids()  # (tokens,)
    spelled = tf.strings.substr(tf.gather(text, row), starts.values, ends.values - starts.values)
    is_mark = tf.strings.regex_full_match(spelled, _MARK)
    is_chinese = tf.strings.regex_full_match(spelled, _CHINESE)
    is_first = tf.concat([[True], row[1:] != row[:-1]], axis=0)[: tf.size(row)]
    before = tf.concat([[0], ends.values], axis=0)[:-1]  # where the token before ends
    behind_chinese = tf.concat([[False], is_chinese], axis=0)[:-1]
    is_apart = is_first | (starts.values > before) | is_chinese | behind_chinese
    # How many tokens that are no marks stand before a token in its run without a gap, and from it
    # on.
    run = tf.cumsum(tf.cast(is_apart, tf.int32)) - 1
    is_other = tf.cast(~is_mark, tf.int32)
    num_before = tf.cumsum(is_other, exclusive=True)
    num_before -= tf.gather(tf.boolean_mask(num_before, is_apart), run)
    num_from_here = tf.gather(tf.math.segment_sum(is_other, run), run) - num_before
    return is_apart | (num_before == 0) | (num_from_here == 0)
