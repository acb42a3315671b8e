"""Follows one path per row, in the loop that greedy search and sampling share."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from keras_transformers.decoding.step import (
    Cache,
    Hypotheses,
    StepFunction,
    as_max_length,
    as_start_token_ids,
    check_logits,
    dynamic_length,
    length_bounds,
    loop_shapes,
    repeat_rows,
)

# (logits (rows, vocabulary), token_ids (rows, index) so far, index, may_end (rows,))
# -> (token_ids (rows,), log_probs (rows,))
ChooseFunction = Callable[[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
# token_ids (rows, length) so far -> whether the text ends here (rows,)
StopFunction = Callable[[tf.Tensor], tf.Tensor]


class _Path(NamedTuple):
    """Holds the state of every row; `closed` rows are complete and no longer change."""

    index: tf.Tensor  # int32 scalar
    last_token_ids: tf.Tensor  # int32 (rows,)
    token_ids: tf.Tensor  # int32 (rows, max_length)
    lengths: tf.Tensor  # int32 (rows,)
    log_probs: tf.Tensor  # float32 (rows,)
    finished: tf.Tensor  # bool (rows,)
    closed: tf.Tensor  # bool (rows,)


def follow_path(
    step: StepFunction,
    start_token_ids: Any,
    cache: Cache,
    choose: ChooseFunction,
    *,
    num_hypotheses: int,
    end_token_id: int | None,
    max_length: int | tf.Tensor,
    min_length: int,
    length_limits: tf.Tensor | None,
    pad_token_id: int,
    growing_axis: int | None,
    also_end_token_ids: Sequence[int] = (),
    stops: StopFunction | None = None,
) -> Hypotheses:
    """Extends each row by the tokens that `choose` picks until all are complete.

    `stops` ends texts in addition to the end tokens. See also `greedy_search`.
    """
    start_token_ids = as_start_token_ids(start_token_ids)
    batch = dynamic_length(start_token_ids)
    max_length = as_max_length(max_length)
    bounds = length_bounds(step, start_token_ids, max_length, min_length, length_limits)
    bounds, last_token_ids, cache = repeat_rows((bounds, start_token_ids, cache), num_hypotheses)
    positions = tf.range(max_length)
    rows = batch * num_hypotheses
    path = _Path(
        index=tf.constant(0),
        last_token_ids=last_token_ids,
        token_ids=tf.fill((rows, max_length), pad_token_id),
        lengths=tf.zeros(rows, tf.int32),
        log_probs=tf.zeros(rows),
        finished=tf.zeros(rows, tf.bool),
        closed=bounds.longest <= 0,
    )
    shapes = loop_shapes(path, cache, growing_axis)

    def goes_on(path: _Path, cache: Cache) -> tf.Tensor:
        return tf.logical_not(tf.reduce_all(path.closed))

    def extend(path: _Path, cache: Cache) -> tuple[_Path, Cache]:
        logits, cache = step(path.last_token_ids, path.index, cache)
        logits = check_logits(logits, end_token_id=end_token_id, pad_token_id=pad_token_id)
        length = path.index + 1
        may_end = length >= bounds.shortest
        so_far = path.token_ids[:, : path.index]
        chosen, log_probs = choose(logits, so_far, path.index, may_end)
        log_probs = path.log_probs + tf.where(path.closed, 0.0, log_probs)
        is_impossible = log_probs == -float("inf")  # every token was forbidden
        token_ids = tf.where(path.closed | is_impossible, pad_token_id, chosen)
        ends = tf.zeros_like(path.closed)
        if end_token_id is not None:
            ends = is_any(chosen, [end_token_id, *also_end_token_ids])
            ends = ends & ~path.closed & ~is_impossible
        all_token_ids = tf.where(positions == path.index, token_ids[:, None], path.token_ids)
        if stops is not None:
            ends = ends | (stops(all_token_ids[:, :length]) & ~path.closed & ~is_impossible)
        extended = _Path(
            index=length,
            last_token_ids=token_ids,
            token_ids=all_token_ids,
            lengths=tf.where(path.closed, path.lengths, length),
            log_probs=log_probs,
            finished=tf.logical_or(path.finished, ends),
            closed=path.closed | ends | is_impossible | (length >= bounds.longest),
        )
        return tf.nest.map_structure(tf.ensure_shape, (extended, cache), shapes)

    path, _ = tf.while_loop(goes_on, extend, (path, cache), shape_invariants=shapes)
    is_impossible = path.log_probs == -float("inf")
    token_ids = tf.where(is_impossible[:, None], pad_token_id, path.token_ids)
    by_sentence = (batch, num_hypotheses)
    return Hypotheses(
        token_ids=tf.reshape(token_ids, (*by_sentence, max_length)),
        lengths=tf.reshape(tf.where(is_impossible, 0, path.lengths), by_sentence),
        scores=tf.reshape(path.log_probs, by_sentence),
        finished=tf.reshape(path.finished, by_sentence),
    )


def is_any(token_ids: tf.Tensor, wanted: Sequence[int]) -> tf.Tensor:
    """Returns whether each token (rows,) is one of these."""
    return tf.reduce_any(token_ids[:, None] == tf.constant(wanted, tf.int32), axis=1)
