"""Writes the tokens of generated texts as bytes, in the graph."""

import tensorflow as tf

from keras_transformers.tokenizers.protocols import GeneratorTokenizer

__all__: list[str] = []


def token_bytes(
    tokenizer: GeneratorTokenizer, token_ids: tf.Tensor, lengths: tf.Tensor
) -> tf.Tensor:
    """Returns what each token of texts adds to its text: joined, they are the text.

    A token may be part of a character, or add nothing, such as an end token.

    Args:
        tokenizer: the pipeline's.
        token_ids: int32 (batch, length).
        lengths: int32 (batch,), the number of tokens in each text.

    Returns:
        Strings (batch, length), "" after a text's own tokens.
    """
    with tf.init_scope():  # a token whose text shows where the next one's begins
        anchor = tf.constant(tokenizer.tokenize(["a"]).values[-1:].numpy(), tf.int32)
        start = len(tokenizer.detokenize(anchor[None]).numpy()[0])
    with tf.device("CPU:0"):  # string ops run only on the CPU
        shape = tf.shape(token_ids)
        single = tf.reshape(token_ids, [-1, 1])
        after_anchor = tf.concat([tf.tile(anchor[None], [tf.shape(single)[0], 1]), single], axis=1)
        pieces = tokenizer.detokenize(after_anchor)
        pieces = tf.strings.substr(pieces, tf.fill(tf.shape(pieces), start), _whole(pieces))
        is_token = tf.sequence_mask(lengths, shape[1])
        pieces = tf.where(is_token, tf.reshape(pieces, shape), "")
        # Some tokenizers leave out the space before a text, which its first word has.
        texts = tokenizer.detokenize(tf.RaggedTensor.from_tensor(token_ids, lengths))
        sizes = tf.strings.length(pieces)
        surplus = tf.maximum(0, tf.reduce_sum(sizes, axis=1) - tf.strings.length(texts))
        is_first = tf.cumsum(sizes, axis=1, exclusive=True) == 0
        dropped = tf.minimum(tf.where(is_first, surplus[:, None], 0), sizes)
        return tf.strings.substr(pieces, dropped, _whole(pieces))


def as_text(pieces: tf.Tensor) -> tf.Tensor:
    """Returns bytes as UTF-8, with U+FFFD for those that are not."""
    with tf.device("CPU:0"):
        return tf.strings.unicode_transcode(pieces, "UTF-8", "UTF-8", errors="replace")


def _whole(strings: tf.Tensor) -> tf.Tensor:
    return tf.fill(tf.shape(strings), tf.int32.max)
