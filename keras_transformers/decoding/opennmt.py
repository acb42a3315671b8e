"""Searches like OpenNMT-tf's beam search, for its models.

There is one pool of beams: a finished hypothesis stays in it, with its end token repeated, until
all beams have ended. https://github.com/OpenNMT/OpenNMT-tf, opennmt/utils/decoding.py, 2.x.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from keras_transformers.decoding.constraints import Constraints
from keras_transformers.decoding.step import (
    Cache,
    Hypotheses,
    LengthBounds,
    StepFunction,
    check_logits,
    dynamic_length,
    loop_shapes,
    repeat_rows,
)

__all__: list[str] = []

_IMPOSSIBLE = -float("inf")
_TOO_SHORT = -1e7  # added to the end token's logit


class _Beams(NamedTuple):
    """Holds the state of every sentence, (batch, num_beams) unless noted otherwise."""

    index: tf.Tensor  # int32 scalar
    token_ids: tf.Tensor  # int32 (batch, num_beams, max_length)
    last_token_ids: tf.Tensor  # int32
    log_probs: tf.Tensor  # float32
    lengths: tf.Tensor  # int32, with the end token
    finished: tf.Tensor  # bool


def search_as_opennmt(
    step: StepFunction,
    start_token_ids: tf.Tensor,
    cache: Cache,
    *,
    end_token_id: int,
    max_length: int | tf.Tensor,
    num_beams: int,
    length_penalty: float,
    min_length: int,
    bounds: LengthBounds,
    pad_token_id: int,
    constraints: Constraints,
    growing_axis: int | None,
    on_step: Callable[[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor], None] | None,
) -> Hypotheses:
    """Finds the same texts as OpenNMT-tf's `BeamSearch`; see `beam_search` for the arguments.

    As in OpenNMT-tf, an extension of a hypothesis of n tokens scores its
    log-probability / ((6 + n) / 6)^alpha, even if it has ended, and a finished hypothesis that
    changes places takes over the log-probability that its new place had before.

    Args:
        step: see `beam_search`.
        start_token_ids: int32 (batch,).
        cache: see `beam_search`.
        end_token_id: id of the end token.
        max_length: maximum number of tokens.
        num_beams: hypotheses per sentence.
        length_penalty: alpha.
        min_length: minimum number of tokens.
        bounds: those of each sentence; one that may have no tokens ends before the first step.
        pad_token_id: the token that follows the end token in the result.
        constraints: those that force tokens.
        growing_axis: see `beam_search`.
        on_step: called with parents, tokens, log-probabilities, whether each has ended, and scores.
    """
    batch = dynamic_length(start_token_ids)

    def penalty(lengths: tf.Tensor) -> tf.Tensor:
        return ((5.0 + tf.cast(lengths, tf.float32)) / 6.0) ** length_penalty

    def goes_on(beams: _Beams, cache: Cache) -> tf.Tensor:
        return (beams.index < max_length) & ~tf.reduce_all(beams.finished)

    def extend(beams: _Beams, cache: Cache) -> tuple[_Beams, Cache]:
        logits, cache = step(tf.reshape(beams.last_token_ids, [-1]), beams.index, cache)
        logits = check_logits(logits, end_token_id=end_token_id, pad_token_id=pad_token_id)
        logits = constraints.force(logits, beams.index, beams.index + 1 >= bounds.longest)
        size = logits.shape[1]
        is_end = tf.range(size) == end_token_id
        too_short = beams.index < min_length
        logits += tf.where(is_end & too_short, _TOO_SHORT, 0.0)
        log_probs = tf.reshape(tf.nn.log_softmax(logits), (-1, num_beams, size))
        only_end = tf.where(is_end, 0.0, _IMPOSSIBLE)
        log_probs = tf.where(beams.finished[:, :, None] & ~too_short, only_end, log_probs)
        total = log_probs + beams.log_probs[:, :, None]
        scores = total / penalty(beams.lengths + 1)[:, :, None]
        scores, chosen = tf.math.top_k(
            tf.reshape(scores, (-1, num_beams * size)), num_beams
        )  # (batch, num_beams)
        parents, tokens = chosen // size, chosen % size
        lengths = beams.lengths + tf.cast(~beams.finished, tf.int32)
        lengths = tf.gather(lengths, parents, batch_dims=1)
        finished = tf.gather(beams.finished, parents, batch_dims=1)
        totals = tf.gather(tf.reshape(total, (-1, num_beams * size)), chosen, batch_dims=1)
        log_probs = tf.where(finished, beams.log_probs, totals)
        token_ids = tf.gather(beams.token_ids, parents, batch_dims=1)
        here = tf.range(max_length) == beams.index
        shown = tf.where(finished, pad_token_id, tokens)
        token_ids = tf.where(here, shown[:, :, None], token_ids)
        first_row = tf.range(tf.shape(parents)[0])[:, None] * num_beams
        rows = tf.reshape(first_row + parents, [-1])
        cache = tf.nest.map_structure(lambda leaf: tf.gather(leaf, rows), cache)
        ended = finished | (tokens == end_token_id)
        if on_step is not None:
            on_step(parents, tokens, log_probs, ended, scores)
        extended = _Beams(beams.index + 1, token_ids, tokens, log_probs, lengths, ended)
        return tf.nest.map_structure(tf.ensure_shape, (extended, cache), shapes)

    only_first = tf.where(tf.range(num_beams) == 0, 0.0, _IMPOSSIBLE)
    start = _Beams(
        index=tf.constant(0),
        token_ids=tf.fill((batch, num_beams, max_length), pad_token_id),
        last_token_ids=tf.repeat(start_token_ids[:, None], num_beams, axis=1),
        log_probs=tf.tile(only_first[None], (batch, 1)),
        lengths=tf.zeros((batch, num_beams), tf.int32),
        finished=tf.repeat(bounds.longest[:, None] <= 0, num_beams, axis=1),
    )
    state = start, repeat_rows(cache, num_beams)
    shapes = loop_shapes(*state, growing_axis)
    beams, _ = tf.while_loop(goes_on, extend, state, shape_invariants=shapes)
    # A sentence without tokens ended before the first step, and has one empty hypothesis.
    is_text = bounds.longest[:, None] > 0
    return Hypotheses(
        token_ids=tf.where(is_text[:, :, None], beams.token_ids, pad_token_id),
        lengths=tf.where(is_text, beams.lengths, 0),
        scores=tf.where(is_text, beams.log_probs / penalty(beams.lengths), only_first),
        finished=beams.finished & is_text & (beams.lengths > 0),
    )
