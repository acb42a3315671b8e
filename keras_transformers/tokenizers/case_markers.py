"""Marks case for models that read lower-cased text: a marker before each capitalized word."""

import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_transformers.tokenizers.tensors import Texts, row_numbers, texts_of
from keras_transformers.tokenizers.wordpiece import WordPieceTokenizer

__all__ = ["CaseMarkedTokenizer"]

_CAPITALIZED, _ALL_CAPITALS = r"\p{Lu}.*", r"\p{Lu}[\p{Lu}\p{N}]+"


class CaseMarkedTokenizer(WordPieceTokenizer):
    """An uncased vocabulary's word pieces, with markers that tell a model the case of words.

    One marker precedes the pieces of a word whose first letter is a capital, another precedes a
    word in all capitals: "Ada met NATO" becomes `[unused1] ada met [unused2] nato`. The markers are
    two tokens of BERT's vocabularies that pretraining never used, so an uncased encoder learns them
    in fine-tuning, without any change to the model (OpenNMT's `case_markup`; Google's vocabularies
    have [unused0] to [unused993]).

    Everything else is as in `WordPieceTokenizer`. Markers cover no characters of a text: their
    spans are empty.

    Args:
        vocabulary: see `WordPieceTokenizer`.
        capitalized: the marker of words like "Ada" and "McCarthy".
        all_capitals: the marker of words like "NATO" and "G7".
        name: name of the module.

    Attributes:
        capitalized_token_id: id of the first marker.
        all_capitals_token_id: id of the second.

    Raises:
        ValueError: the vocabulary lacks a marker. See also `WordPieceTokenizer`.

    Example:
        >>> vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused1]", "[unused2]"]
        >>> tokenizer = CaseMarkedTokenizer([*vocabulary, "ada", "met", "na", "##to"])
        >>> tokenizer.tokenize(["Ada met NATO"]).to_list()
        [[5, 7, 8, 6, 9, 10]]
    """

    def __init__(
        self,
        vocabulary: str | os.PathLike[str] | Sequence[str],
        *,
        capitalized: str = "[unused1]",
        all_capitals: str = "[unused2]",
        name: str = "case_marked_tokenizer",
    ) -> None:
        super().__init__(vocabulary, lowercase=True, name=name)
        tokens = self.vocabulary
        if missing := [token for token in (capitalized, all_capitals) if token not in tokens]:
            raise ValueError(
                f"the vocabulary lacks the markers {', '.join(missing)}: pass two tokens that it "
                "has and that no text uses"
            )
        self.capitalized, self.all_capitals = capitalized, all_capitals
        self.capitalized_token_id = tokens.index(capitalized)
        self.all_capitals_token_id = tokens.index(all_capitals)
        with tf.device("CPU:0"):
            self._continues_word = tf.constant([token.startswith("##") for token in tokens])

    def tokenize(self, text: Texts) -> tf.RaggedTensor:
        """Converts texts, strings (batch,), to token ids without [CLS] and [SEP]."""
        return self.tokenize_with_offsets(text)[0]

    def tokenize_with_offsets(
        self, text: Texts
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Converts texts to token ids, and finds their spans; see `WordPieceTokenizer`."""
        ids, starts, ends = super().tokenize_with_offsets(text)
        row = row_numbers(ids)  # (tokens,)
        begins_word = ~tf.gather(self._continues_word, ids.values)
        # A word extends to the start of the next one; there are no letters in between.
        number = tf.cumsum(tf.cast(begins_word, tf.int32)) - 1
        word_ends = tf.math.segment_max(ends.values, number)  # (words,)
        word_row, word_start = row[begins_word], starts.values[begins_word]
        words = tf.strings.substr(
            tf.gather(texts_of(text), word_row), word_start, word_ends - word_start
        )
        markers = tf.where(
            tf.strings.regex_full_match(words, _ALL_CAPITALS),
            self.all_capitals_token_id,
            tf.where(
                tf.strings.regex_full_match(words, _CAPITALIZED), self.capitalized_token_id, -1
            ),
        )
        marker = tf.where(begins_word, tf.gather(markers, number), -1)  # (tokens,)
        is_used = tf.stack([marker >= 0, tf.ones_like(begins_word)], axis=1)  # (tokens, 2)
        pairs = [(marker, ids.values), (starts.values, starts.values), (starts.values, ends.values)]
        rows = tf.boolean_mask(tf.stack([row, row], axis=1), is_used)
        return tuple(
            tf.RaggedTensor.from_value_rowids(
                tf.boolean_mask(tf.stack(pair, axis=1), is_used), rows, ids.nrows(), validate=False
            )
            for pair in pairs
        )

    def config(self) -> dict[str, Any]:
        """Returns the arguments that `load` needs besides the files, as JSON values."""
        return {"capitalized": self.capitalized, "all_capitals": self.all_capitals}
