"""Defines the contract between a search and a model: one step in, scored text out.

A search knows nothing about the model. It needs a step function, which feeds one token of every row
and returns the logits of the next one, and a cache, which holds all that the step must remember:

    logits, cache = step(token_ids, index, cache)

A search over `batch` sentences with `num_beams` beams has `rows = batch * num_beams` rows. Row
`sentence * num_beams + beam` is a sentence's beam, so a step may view `(rows, ...)` as
`(batch, num_beams, ...)`.

* The cache is any `tf.nest` structure of tensors whose first axis is the rows: the keys and values
  of self-attention, the state of a recurrent network. The caller passes it with one row per
  sentence, `(batch, ...)`; the search repeats it for the beams and reorders it when beams change
  places.
* Values that all beams of a sentence share (keys and values of cross-attention, the source mask)
  are not part of the cache. Compute them once, close over them in the step function, and view the
  rows as `(batch, num_beams, ...)`. They are never repeated or reordered.
* A cache keeps its shapes, except that it may grow: with `growing_axis=2`, every leaf of shape
  (rows, heads, time, head_dim) may get longer along its third axis at each step. On a CPU, growing
  by `tf.concat` from length 0 is much faster than writing into a full-length buffer, because
  attention then reads only the filled part (`benchmarks/decode_overhead.py` compares them). Under
  XLA, use buffers of fixed shape.
* To continue a prompt, run the model over all of it except the last token, pass the resulting cache
  and the last tokens as `start_token_ids`, and let the step add the offset to `index`.
* A step with a limited number of positions has an attribute `max_steps`, an integer or int32
  (batch,); a search that may go further raises an error.
* Rows of a complete sentence are still fed (its last token, then `pad_token_id`) until the whole
  batch is complete; the step's results for them are ignored.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import tensorflow as tf

__all__ = ["Cache", "Hypotheses", "StepFunction"]

# A structure of tensors with leading axis `rows`; () for a step that remembers nothing.
Cache: TypeAlias = tf.Tensor | Sequence["Cache"] | Mapping[str, "Cache"]
Structure = TypeVar("Structure")


class StepFunction(Protocol):
    """Computes one step of a model: feeds one token per row and returns the logits of the next."""

    def __call__(
        self, token_ids: tf.Tensor, index: tf.Tensor, cache: Cache
    ) -> tuple[tf.Tensor, Cache]:
        """Feeds the tokens at position `index`.

        Args:
            token_ids: int32 (rows,), the tokens to feed; at index 0 the start tokens.
            index: int32 scalar, their position: 0, 1, ...
            cache: the cache that the step returned at `index - 1`, with rows reordered.

        Returns:
            Unnormalized logits (rows, vocabulary_size) of the token at position `index + 1`, with
            a static last axis and -inf for a forbidden token; and the cache, in the same structure.
        """
        ...


def within_vocabulary(step: StepFunction, num_tokens: int) -> StepFunction:
    """Returns a step that predicts only the first tokens of a model with rows beyond them.

    Matrices may have more rows than there are tokens, such as those padded to a multiple of 64.

    Args:
        step: the model's.
        num_tokens: number of tokens that may be predicted.
    """

    def within(token_ids: tf.Tensor, index: tf.Tensor, cache: Cache) -> tuple[tf.Tensor, Cache]:
        logits, cache = step(token_ids, index, cache)
        return logits if logits.shape[1] == num_tokens else logits[:, :num_tokens], cache

    # The step's own attributes, such as its number of positions.
    return functools.update_wrapper(within, step)


def telling(step: StepFunction, on_logits: Callable[[tf.Tensor], None]) -> StepFunction:
    """Returns a step that passes its logits (rows, vocabulary) to a function, to show a search."""

    def tells(token_ids: tf.Tensor, index: tf.Tensor, cache: Cache) -> tuple[tf.Tensor, Cache]:
        logits, cache = step(token_ids, index, cache)
        on_logits(logits)
        return logits, cache

    return functools.update_wrapper(tells, step)


class Hypotheses(NamedTuple):
    """Holds the result of any search.

    Attributes:
        token_ids: int32 (batch, num_hypotheses, max_length), without the start token, with the end
            token if there is one, then `pad_token_id`.
        lengths: int32 (batch, num_hypotheses), number of tokens, including the end token.
        scores: float32 (batch, num_hypotheses), defined by the search. -inf marks an empty slot
            (more beams than possible texts); its length is 0.
        finished: bool (batch, num_hypotheses), True if the text has its end token, False if it was
            cut at its maximum length.
    """

    token_ids: tf.Tensor
    lengths: tf.Tensor
    scores: tf.Tensor
    finished: tf.Tensor


class LengthBounds(NamedTuple):
    """Holds the lengths allowed for the hypotheses of each sentence, including the end token.

    Attributes:
        shortest: int32 (batch,); the end token is not allowed before it.
        longest: int32 (batch,); a hypothesis is cut off there.
    """

    shortest: tf.Tensor
    longest: tf.Tensor


def length_bounds(
    step: StepFunction,
    start_token_ids: tf.Tensor,
    max_length: int | tf.Tensor,
    min_length: int,
    length_limits: tf.Tensor | None,
) -> LengthBounds:
    """Combines the length options of a search; if they disagree, the upper bound wins."""
    if min_length < 0 or (isinstance(max_length, int) and min_length > max_length):
        raise ValueError(f"min_length={min_length} must be between 0 and max_length={max_length}")
    longest = tf.fill(tf.shape(start_token_ids), max_length)
    if length_limits is not None:
        length_limits = tf.convert_to_tensor(length_limits, tf.int32)
        if not length_limits.shape.is_compatible_with(start_token_ids.shape):
            raise ValueError(
                f"length_limits has shape {length_limits.shape}: expected one length per sentence, "
                f"{start_token_ids.shape}"
            )
        longest = tf.clip_by_value(length_limits, 0, longest)
    longest = _within_steps(longest, getattr(step, "max_steps", None))
    return LengthBounds(shortest=tf.minimum(min_length, longest), longest=longest)


def _within_steps(longest: tf.Tensor, max_steps: int | tf.Tensor | None) -> tf.Tensor:
    """Returns the lengths (batch,) if the step has enough positions for them.

    Raises:
        ValueError: it has too few. If the numbers are known only when a graph runs, the error is
            tf.errors.InvalidArgumentError.
    """
    if max_steps is None:
        return longest
    wanted = tf.get_static_value(longest)
    most = tf.get_static_value(tf.convert_to_tensor(max_steps))
    advice = "lower max_length or length_limits, or use a shorter prompt"
    if wanted is None or most is None:
        with tf.device("CPU:0"):  # string ops run only on the CPU
            message = f"the search may go beyond the model's positions: {advice}"
            check = tf.debugging.Assert(tf.reduce_all(longest <= max_steps), [message])
            with tf.control_dependencies([check] if check is not None else []):
                return tf.identity(longest)
    if (wanted > most).any():
        row = int((wanted - most).argmax())
        room = max(0, int(most if most.ndim == 0 else most[row]))
        raise ValueError(
            f"up to {wanted[row]} tokens for sentence {row}, but the model has positions for "
            f"{room} more: {advice}"
        )
    return longest


def as_max_length(max_length: int | tf.Tensor) -> int | tf.Tensor:
    """Returns the result's width as a Python integer if statically known, else an int32 scalar.

    Raises:
        ValueError: it is negative or not an integer.
    """
    max_length = tf.convert_to_tensor(max_length)
    if not max_length.dtype.is_integer or max_length.shape.rank != 0:
        raise ValueError(f"max_length={max_length}: must be an integer, the number of tokens")
    static_max_length = tf.get_static_value(max_length)
    if static_max_length is None:
        return tf.cast(max_length, tf.int32)
    if static_max_length < 0:
        raise ValueError(f"max_length={static_max_length}: must be 0 or more tokens")
    return int(static_max_length)


def as_start_token_ids(
    start_token_ids: tf.Tensor | Sequence[int], *, name: str = "start_token_ids"
) -> tf.Tensor:
    """Returns the start tokens as an int32 vector, one per sentence.

    Raises:
        ValueError: they are not a vector, or one is below 0.
    """
    start_token_ids = tf.cast(tf.convert_to_tensor(start_token_ids), tf.int32)
    if start_token_ids.shape.rank != 1:
        raise ValueError(
            f"{name} has shape {start_token_ids.shape}: expected one token per sentence, "
            "(batch,), such as tf.fill([batch], start_token_id)"
        )
    values = tf.get_static_value(start_token_ids)
    if values is not None and (values < 0).any():
        raise ValueError(f"{name} has {values.min()}: token ids are 0 or more")
    return start_token_ids


def check_logits(logits: tf.Tensor, **special_token_ids: int | None) -> tf.Tensor:
    """Checks the logits' shape and the special tokens, and returns the logits as float32.

    Raises:
        ValueError: the logits are not a matrix of static width, or lack a special token's column.
    """
    logits = tf.convert_to_tensor(logits)
    if logits.shape.rank != 2 or logits.shape[1] is None:
        raise ValueError(
            f"the step returned logits of shape {logits.shape}: expected (rows, vocabulary_size) "
            "with a static vocabulary_size; tf.ensure_shape gives it one"
        )
    for name, token_id in special_token_ids.items():
        if token_id is not None and not 0 <= token_id < logits.shape[1]:
            raise ValueError(
                f"{name}={token_id} is outside the vocabulary: the step's logits have "
                f"{logits.shape[1]} columns"
            )
    return tf.cast(logits, tf.float32)


def dynamic_length(vector: tf.Tensor) -> int | tf.Tensor:
    """Returns the first axis' length, a Python integer if statically known, else a scalar."""
    return vector.shape[0] if vector.shape[0] is not None else tf.shape(vector)[0]


def repeat_rows(structure: Structure, times: int) -> Structure:
    """Repeats every row `times` times: (batch, ...) becomes (batch * times, ...)."""
    if times == 1:
        return structure
    return tf.nest.map_structure(lambda leaf: tf.repeat(leaf, times, axis=0), structure)


def loop_shapes(state: Any, cache: Cache, growing_axis: int | None) -> Any:
    """Returns the static shapes that a search's loop keeps, structured like (state, cache)."""

    def cache_shape(leaf: tf.Tensor) -> tf.TensorShape:
        shape = list(leaf.shape)
        if growing_axis is not None:
            if not 1 <= growing_axis < len(shape):
                raise ValueError(
                    f"growing_axis={growing_axis} is not an axis after the rows of a cache leaf of "
                    f"shape {leaf.shape}"
                )
            shape[growing_axis] = None
        return tf.TensorShape(shape)

    return (
        tf.nest.map_structure(lambda tensor: tensor.shape, state),
        tf.nest.map_structure(cache_shape, cache),
    )
