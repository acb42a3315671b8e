"""Splits words and sentences into pieces with tensorflow-text's ops.

Its FastBertTokenizer (Song et al. 2020, arXiv:2012.15524) runs with our tables.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.dependencies.private_api import name_sentencepiece_model, wordpiece_model
from keras_transformers.tokenizers import offsets
from keras_transformers.tokenizers.normalization import bert_characters
from keras_transformers.tokenizers.tensors import row_numbers
from keras_transformers.tokenizers.text_ops.limits import LONGEST_WORD

__all__: list[str] = []

# In normalized text, words end at spaces, at ASCII punctuation (other punctuation has spaces around
# it), and before and after Chinese characters.
_MAX_BYTES_PER_WORD = 4 * LONGEST_WORD
_LONG_WORD = rf"[^ -/:-@\[-`{{-~{bert_characters.CHINESE}]{{{LONGEST_WORD + 1},}}"
_UNKNOWN_WORD = "x" * (_MAX_BYTES_PER_WORD + 1)


class LibraryWordPieces(tf.Module):
    """See `forms.WordPieces` and `forms.word_pieces`."""

    def __init__(
        self, library: Any, tokens: Sequence[str], *, unknown_token: str, lowercase: bool | None
    ) -> None:
        super().__init__(name="word_pieces")
        in_words = lowercase is None
        if not in_words:
            table = bert_characters.normalizer_model(lowercase=bool(lowercase))
            self._normalizer = library.FastBertNormalizer(
                model_buffer=tf.constant(np.frombuffer(table, np.uint8))
            )
            tokens = [bert_characters.respell(token) for token in tokens]
        try:
            model = wordpiece_model(
                library,
                tokens,
                splits=not in_words,
                longest_word=_MAX_BYTES_PER_WORD,
                unknown_token=unknown_token,
            )
        except RuntimeError as error:
            raise ValueError(f"tensorflow_text cannot use it: {error}") from error
        self._wordpiece = library.FastWordpieceTokenizer(
            model_buffer=tf.constant(np.frombuffer(model, np.uint8)), token_out_type=tf.int32
        )

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        text = self._normalizer.normalize(text)
        text = tf.strings.regex_replace(text, _LONG_WORD, _UNKNOWN_WORD)
        return self._wordpiece.tokenize(text)

    def tokenize_with_offsets(
        self, text: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        normal, origins = self._normalizer.normalize_with_offsets(text)
        # Split long words from the text around them: text, word, text, word, text. The separator is
        # a character that the normalizer deletes.
        separated = tf.strings.regex_replace(normal, f"({_LONG_WORD})", "\x01\\1\x01")
        parts = tf.strings.split(separated, "\x01")  # (batch, parts)
        lengths = tf.cast(tf.strings.length(parts.values), tf.int64)  # (all parts,), in bytes
        part = tf.range(tf.size(lengths, tf.int64))
        row = row_numbers(parts)
        is_long_word = (part - tf.gather(parts.row_starts(), row)) % 2 == 1
        ids, starts, ends = self._wordpiece.tokenize_with_offsets(
            tf.where(is_long_word, _UNKNOWN_WORD, parts.values)
        )  # each (all parts, None)
        part = row_numbers(ids)  # (all tokens,)
        ends = tf.where(tf.gather(is_long_word, part), tf.gather(lengths, part), ends.values)
        # `origins` has one entry per normalized byte, and one for the end of each text.
        first = tf.gather(tf.cumsum(lengths, exclusive=True) + row, part)
        starts, ends = offsets.origins_of_spans(text, origins, first + starts.values, first + ends)
        ids = parts.with_values(ids).merge_dims(1, 2)
        return ids, ids.with_values(starts), ids.with_values(ends)

    def encode(self, words: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        is_long = tf.strings.length(words, "UTF8_CHAR") > LONGEST_WORD
        ids, starts, ends = self._wordpiece.tokenize_with_offsets(
            tf.where(is_long, _UNKNOWN_WORD, words)
        )
        lengths = tf.gather(tf.strings.length(words), row_numbers(ids))
        lengths = tf.cast(lengths, ends.dtype)
        ends = ids.with_values(tf.minimum(ends.values, lengths))
        return ids, *(part.with_values(tf.cast(part.values, tf.int64)) for part in (starts, ends))


class LibrarySentencePieces(tf.Module):
    """See `forms.SentencePieces`.

    Raises:
        ValueError: `model` is not a SentencePiece model.
    """

    def __init__(self, library: Any, model: bytes) -> None:
        super().__init__(name="sentence_pieces")
        try:
            # FastSentencepieceTokenizer is faster, but misreads byte-pair models.
            tokenizer = library.SentencepieceTokenizer(model, out_type=tf.int32)
            # Equal models are shared.
            name = f"sentencepiece-{hashlib.sha256(model).hexdigest()}"
            name_sentencepiece_model(tokenizer, model, name)
            self.size = int(tokenizer.vocab_size())
        except (tf.errors.OpError, UnicodeDecodeError) as error:  # of TensorFlow's own message
            raise ValueError("not a SentencePiece model") from error
        self._tokenizer = tokenizer
        self.tokenize = tokenizer.tokenize
        self.tokenize_with_offsets = tokenizer.tokenize_with_offsets
        self.detokenize = tokenizer.detokenize
        self.id_to_string = tokenizer.id_to_string
