"""Finds the best tokens of a large vocabulary without sorting or normalizing all of it.

On a CPU, `tf.math.top_k` over all beams and tokens costs more than everything else in a search. If
the logits are split into blocks, the best `n` entries are in the `n` blocks with the largest
maxima, so one pass for the maxima and two tiny `top_k` find the same entries. Only the chosen
tokens need log-probabilities. `benchmarks/decode_overhead.py` measures the difference.
"""

from typing import NamedTuple

import tensorflow as tf

_LARGEST_BLOCK = 256
_SMALLEST_BLOCK = 16


class LogitBlocks(NamedTuple):
    """Holds logits, split into blocks of neighbouring tokens.

    Attributes:
        values: float32 (rows, num_blocks, block_size); -inf after the end of the vocabulary.
        maxima: float32 (rows, num_blocks), the largest value of each block.
    """

    values: tf.Tensor
    maxima: tf.Tensor


class Continuations(NamedTuple):
    """Holds beams extended by one token each, best first.

    Attributes:
        scores: float32 (batch, count); -inf for impossible ones.
        beams: int32 (batch, count), the extended beam's number within its sentence.
        token_ids: int32 (batch, count), the appended token.
    """

    scores: tf.Tensor
    beams: tf.Tensor
    token_ids: tf.Tensor


def in_blocks(logits: tf.Tensor) -> LogitBlocks:
    """Splits logits (rows, vocabulary_size) into blocks; free if a block size divides evenly."""
    vocabulary_size = logits.shape[1]
    sizes = range(_LARGEST_BLOCK, _SMALLEST_BLOCK - 1, -1)
    block_size = next((size for size in sizes if vocabulary_size % size == 0), _LARGEST_BLOCK // 2)
    num_blocks = -(-vocabulary_size // block_size)
    padding = num_blocks * block_size - vocabulary_size
    if padding:
        logits = tf.pad(logits, [[0, 0], [0, padding]], constant_values=-float("inf"))
    values = tf.reshape(logits, (-1, num_blocks, block_size))
    return LogitBlocks(values, tf.reduce_max(values, axis=-1))


def log_normalizer(blocks: LogitBlocks) -> tf.Tensor:
    """Computes log(sum(exp(row))), which turns logits into log-probabilities: (rows,).

    It equals logit - log(probability) at any token. This uses the likeliest one, whose probability
    is at least 1 / vocabulary_size and therefore exact to rounding. On a CPU, the fused softmax is
    twice as fast as exp, sum and log.
    """
    values, maxima = blocks
    flat = tf.reshape(values, (-1, values.shape[1] * values.shape[2]))
    probabilities = tf.reshape(tf.nn.softmax(flat), tf.shape(values))
    likeliest_block = tf.argmax(maxima, axis=-1, output_type=tf.int32)  # (rows,)
    in_likeliest_block = tf.gather(probabilities, likeliest_block, batch_dims=1)  # (rows, block)
    return tf.reduce_max(maxima, axis=-1) - tf.math.log(tf.reduce_max(in_likeliest_block, axis=-1))


def best_continuations(offsets: tf.Tensor, blocks: LogitBlocks, count: int) -> Continuations:
    """Finds the `count` largest `offsets + logits` among all beams and tokens of each sentence.

    Ties are broken by beam, then by token, as in `tf.math.top_k` over all of them.

    Args:
        offsets: float32 (batch, num_beams), added to all logits of a beam; -inf drops the beam.
        blocks: the logits of batch * num_beams rows.
        count: how many to find.

    Returns:
        `min(count, num_beams * vocabulary_size)` continuations. If the vocabulary is padded to
        whole blocks, there may be more; their scores are -inf and their tokens meaningless.
    """
    num_beams = offsets.shape[1]
    num_blocks, block_size = blocks.values.shape[1:]
    block_scores = tf.reshape(blocks.maxima, (-1, num_beams, num_blocks)) + offsets[:, :, None]
    block_scores = tf.reshape(block_scores, (-1, num_beams * num_blocks))
    num_chosen = min(count, num_beams * num_blocks)
    chosen = tf.math.top_k(block_scores, num_chosen).indices  # (batch, num_chosen)
    chosen = tf.sort(chosen)  # so that equal scores stay in the order of the vocabulary
    values = tf.reshape(blocks.values, (-1, num_beams * num_blocks, block_size))
    values = tf.gather(values, chosen, batch_dims=1)  # (batch, num_chosen, block)
    values += tf.gather(offsets, chosen // num_blocks, batch_dims=1)[:, :, None]
    values = tf.reshape(values, (-1, num_chosen * block_size))
    scores, positions = tf.math.top_k(values, min(count, num_chosen * block_size))
    block = tf.gather(chosen, positions // block_size, batch_dims=1)  # (batch, count)
    return Continuations(
        scores=scores,
        beams=block // num_blocks,
        token_ids=block % num_blocks * block_size + positions % block_size,
    )
