"""Tokenizes the targets of decoders, which have a start and an end token."""

import tensorflow as tf

from keras_transformers.tokenizers.tensors import Texts, texts_of

__all__: list[str] = []


class Targets:
    """A base of tokenizers; they set the ids and define `_tokenize`."""

    start_token_id: int
    end_token_id: int

    def tokenize(
        self, text: Texts, *, add_start: bool = False, add_end: bool = False
    ) -> tf.RaggedTensor:
        """Converts texts to token ids.

        Args:
            text: strings (batch,).
            add_start: add the start token before each row.
            add_end: add the end token after each row.

        Returns:
            int32 (batch, None).
        """
        token_ids = self._tokenize(texts_of(text))
        column = tf.stack([token_ids.nrows(), 1])
        start = [tf.fill(column, self.start_token_id)] if add_start else []
        end = [tf.fill(column, self.end_token_id)] if add_end else []
        return tf.concat([*start, token_ids, *end], axis=1) if start or end else token_ids

    def _tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        raise NotImplementedError
