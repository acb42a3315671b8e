"""Follows one path per row: in the loop that greedy search and sampling share, or step by step."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformers.decoding.step import (
    Cache,
    Hypotheses,
    LengthBounds,
    StepFunction,
    as_max_length,
    as_start_token_ids,
    check_logits,
    dynamic_length,
    length_bounds,
    loop_shapes,
    repeat_rows,
)

__all__ = ["Step"]


class Place(NamedTuple):
    """Says where the rows are when their next token is chosen."""

    index: tf.Tensor  # int32 scalar, the number of tokens so far
    token_ids: tf.Tensor  # int32 (rows, index), those tokens
    may_end: tf.Tensor  # bool (rows,), whether the next may be an end token
    is_last: tf.Tensor  # bool (rows,), whether it is at the maximum length


# (logits (rows, vocabulary), place) -> (token_ids (rows,), log_probs (rows,))
ChooseFunction = Callable[[tf.Tensor, Place], tuple[tf.Tensor, tf.Tensor]]
# token_ids (rows, length) so far -> whether the text ends here (rows,)
StopFunction = Callable[[tf.Tensor], tf.Tensor]


class Path(NamedTuple):
    """Holds the state of every row; `closed` rows are complete and no longer change."""

    index: tf.Tensor  # int32 scalar
    last_token_ids: tf.Tensor  # int32 (rows,)
    token_ids: tf.Tensor  # int32 (rows, max_length)
    lengths: tf.Tensor  # int32 (rows,)
    log_probs: tf.Tensor  # float32 (rows,)
    token_log_probs: tf.Tensor  # float32 (rows, max_length)
    finished: tf.Tensor  # bool (rows,)
    closed: tf.Tensor  # bool (rows,)


class Step(NamedTuple):
    """Describes one step of all rows, as `steps` yields it.

    Attributes:
        token_ids: int32 (rows,), the new tokens; `pad_token_id` in rows that had ended before.
        log_probs: float32 (rows,), their log-probabilities under the model; 0 in those rows.
        ended: bool (rows,), which texts are complete, with this token or before it.
        finished: bool (rows,), which of these ended with an end token or a stop, and not at their
            maximum length.
    """

    token_ids: np.ndarray
    log_probs: np.ndarray
    ended: np.ndarray
    finished: np.ndarray


# The path and the cache -> those after one more token, and its log-probabilities (rows,).
ExtendFunction = Callable[[Path, Cache], tuple[Path, Cache, tf.Tensor]]


@dataclasses.dataclass(frozen=True)
class SinglePath:
    """Extends each row by the tokens that `choose` picks until all are complete.

    The path and the cache hold everything that a step changes. A loop of the graph passes them
    from step to step, and so can Python, with `extend` as a graph of its own.
    """

    step: StepFunction
    choose: ChooseFunction
    bounds: LengthBounds
    max_length: int | tf.Tensor
    end_token_id: int | None
    pad_token_id: int
    also_end_token_ids: Sequence[int] = ()
    stops: StopFunction | None = None  # ends texts in addition to the end tokens

    def start(self, start_token_ids: tf.Tensor) -> Path:
        """Returns the state before the first step."""
        rows = dynamic_length(start_token_ids)
        return Path(
            index=tf.constant(0),
            last_token_ids=start_token_ids,
            token_ids=tf.fill((rows, self.max_length), self.pad_token_id),
            lengths=tf.zeros(rows, tf.int32),
            log_probs=tf.zeros(rows),
            token_log_probs=tf.zeros((rows, self.max_length)),
            finished=tf.zeros(rows, tf.bool),
            closed=self.bounds.longest <= 0,
        )

    def extend(self, path: Path, cache: Cache) -> tuple[Path, Cache, tf.Tensor]:
        """Appends a token to each row that is not closed; also returns their log-probabilities."""
        logits, cache = self.step(path.last_token_ids, path.index, cache)
        logits = check_logits(
            logits, end_token_id=self.end_token_id, pad_token_id=self.pad_token_id
        )
        length = path.index + 1
        is_last = length >= self.bounds.longest
        place = Place(
            path.index, path.token_ids[:, : path.index], length >= self.bounds.shortest, is_last
        )
        chosen, log_probs = self.choose(logits, place)
        log_probs = tf.where(path.closed, 0.0, log_probs)
        total = path.log_probs + log_probs
        is_impossible = total == -float("inf")  # every token was forbidden
        token_ids = tf.where(path.closed | is_impossible, self.pad_token_id, chosen)
        ends = tf.zeros_like(path.closed)
        if self.end_token_id is not None:
            ends = is_any(chosen, [self.end_token_id, *self.also_end_token_ids])
            ends = ends & ~path.closed & ~is_impossible
        is_here = tf.range(self.max_length) == path.index
        all_token_ids = tf.where(is_here, token_ids[:, None], path.token_ids)
        if self.stops is not None:
            ends = ends | (self.stops(all_token_ids[:, :length]) & ~path.closed & ~is_impossible)
        extended = Path(
            index=length,
            last_token_ids=token_ids,
            token_ids=all_token_ids,
            lengths=tf.where(path.closed, path.lengths, length),
            log_probs=total,
            token_log_probs=tf.where(is_here, log_probs[:, None], path.token_log_probs),
            finished=tf.logical_or(path.finished, ends),
            closed=path.closed | ends | is_impossible | is_last,
        )
        return extended, cache, log_probs

    def run(
        self,
        start_token_ids: tf.Tensor,
        cache: Cache,
        *,
        growing_axis: int | None,
        num_hypotheses: int = 1,
    ) -> Hypotheses:
        """Extends the rows in a loop of the graph; each text has `num_hypotheses` of them."""
        path = self.follow(start_token_ids, cache, growing_axis=growing_axis)
        return self.hypotheses(path, num_hypotheses=num_hypotheses)

    def follow(self, start_token_ids: tf.Tensor, cache: Cache, *, growing_axis: int | None) -> Path:
        """Extends the rows in a loop of the graph and returns their paths."""
        path = self.start(start_token_ids)
        shapes = loop_shapes(path, cache, growing_axis)

        def goes_on(path: Path, cache: Cache) -> tf.Tensor:
            return tf.logical_not(tf.reduce_all(path.closed))

        def extend(path: Path, cache: Cache) -> tuple[Path, Cache]:
            return tf.nest.map_structure(tf.ensure_shape, self.extend(path, cache)[:2], shapes)

        path, _ = tf.while_loop(goes_on, extend, (path, cache), shape_invariants=shapes)
        return path

    def hypotheses(self, path: Path, *, num_hypotheses: int = 1) -> Hypotheses:
        """Returns complete paths as the result of a search."""
        is_impossible = path.log_probs == -float("inf")
        token_ids = tf.where(is_impossible[:, None], self.pad_token_id, path.token_ids)
        rows = dynamic_length(path.lengths)
        by_sentence = (rows if num_hypotheses == 1 else rows // num_hypotheses, num_hypotheses)
        return Hypotheses(
            token_ids=tf.reshape(token_ids, (*by_sentence, self.max_length)),
            lengths=tf.reshape(tf.where(is_impossible, 0, path.lengths), by_sentence),
            scores=tf.reshape(path.log_probs, by_sentence),
            finished=tf.reshape(path.finished, by_sentence),
        )


def follow_path(
    step: StepFunction,
    start_token_ids: tf.Tensor | Sequence[int],
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
) -> Hypotheses:
    """Extends each row by the tokens that `choose` picks; see `greedy_search`."""
    start_token_ids = as_start_token_ids(start_token_ids)
    max_length = as_max_length(max_length)
    bounds = length_bounds(step, start_token_ids, max_length, min_length, length_limits)
    bounds, start_token_ids, cache = repeat_rows((bounds, start_token_ids, cache), num_hypotheses)
    search = SinglePath(step, choose, bounds, max_length, end_token_id, pad_token_id)
    return search.run(
        start_token_ids, cache, growing_axis=growing_axis, num_hypotheses=num_hypotheses
    )


def step_by_step(extend: ExtendFunction, path: Path, cache: Cache) -> Iterator[Step]:
    """Extends the rows until all are complete, and yields each step.

    A step is computed when it is asked for. A consumer that stops, or closes the generator, causes
    no other, and nothing keeps the cache.
    """
    while not path.closed.numpy().all():
        path, cache, log_probs = extend(path, cache)
        tensors = (path.last_token_ids, log_probs, path.closed, path.finished)
        yield Step(*(tensor.numpy() for tensor in tensors))


def state_specs(path: Path, cache: Cache, growing_axis: int | None) -> Any:
    """Returns the tf.TensorSpecs of a path and a cache, like these, after any number of steps."""
    shapes = loop_shapes(path, cache, growing_axis)
    return tf.nest.map_structure(
        lambda tensor, shape: tf.TensorSpec(shape, tensor.dtype), (path, cache), shapes
    )


def is_any(token_ids: tf.Tensor, wanted: Sequence[int]) -> tf.Tensor:
    """Returns whether each token (rows,) is one of these."""
    return tf.reduce_any(token_ids[:, None] == tf.constant(wanted, tf.int32), axis=1)
