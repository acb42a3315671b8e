"""Samples rows that each have their own options, such as those of requests to a server.

`sample_rows` does it in one graph, `steps` yields one token of each row at a time. Both take their
steps from the same search.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from keras_transformers.decoding.sampling import (
    draw,
    forbid,
    keep_nucleus,
    tempered,
    uniform_numbers,
)
from keras_transformers.decoding.single_path import (
    Place,
    SinglePath,
    Step,
    StopFunction,
    state_specs,
    step_by_step,
)
from keras_transformers.decoding.step import (
    Cache,
    Hypotheses,
    StepFunction,
    as_max_length,
    as_start_token_ids,
    length_bounds,
)

__all__ = ["sample_rows", "steps"]

# The options that have a value for each row.
ROW_OPTIONS: Mapping[str, tf.DType] = {
    "max_length": tf.int32,
    "temperature": tf.float32,
    "top_k": tf.int32,
    "top_p": tf.float32,
    "seed": tf.int64,
    "repetition_penalty": tf.float32,
}


def sample_rows(
    step: StepFunction,
    start_token_ids: tf.Tensor | Sequence[int],
    cache: Cache = (),
    *,
    end_token_id: int | None,
    max_length: tf.Tensor,
    seed: tf.Tensor,
    temperature: tf.Tensor,
    top_k: tf.Tensor,
    top_p: tf.Tensor,
    longest: int,
    min_length: int = 0,
    pad_token_id: int = 0,
    growing_axis: int | None = None,
    also_end_token_ids: Sequence[int] = (),
    repetition_penalty: tf.Tensor | None = None,
    prompt_token_ids: tf.Tensor | None = None,
    stops: StopFunction | None = None,
) -> Hypotheses:
    """Draws a text for each row with its own options, such as those of a request to a server.

    A row's text depends only on its options and logits, not on other rows or their number. All
    tokens that tie with the last of the `top_k` are kept. Options are not checked, because they may
    be graph tensors.

    Args:
        step: the model, see `StepFunction`.
        start_token_ids: see `greedy_search`.
        cache: see `greedy_search`.
        end_token_id: see `greedy_search`.
        max_length: int32 (batch,), 0 or more.
        seed: int64 (batch,).
        temperature: float32 (batch,), above 0.
        top_k: int32 (batch,), 0 (all tokens) to vocabulary_size.
        top_p: float32 (batch,), above 0, at most 1 (all tokens).
        longest: an upper bound on `max_length`, known when the graph is built.
        min_length: see `greedy_search`; it holds for all rows.
        pad_token_id: see `greedy_search`.
        growing_axis: see `greedy_search`.
        also_end_token_ids: other tokens that end a text, as in instruction-tuned Llamas.
        repetition_penalty: float32 (batch,), above 0: for tokens already in a row, logits above 0
            are divided by it and those below 0 multiplied (Keskar et al. 2019, arXiv:1909.05858).
            1, the default, changes nothing.
        prompt_token_ids: int32 (batch, length), the tokens that are in a row from the start, in any
            order.
        stops: a function of the tokens (batch, length) of the texts so far, in the graph, that
            returns which texts end here, bool (batch,).

    Returns:
        Hypotheses, one per row, with scores as in `sample`.

    Example:
        >>> def dice(token_ids, index, cache):
        ...     return tf.zeros((len(token_ids), 6)), cache
        >>> throws = sample_rows(
        ...     dice, [0, 0], end_token_id=None, max_length=tf.constant([4, 2]), longest=4,
        ...     seed=tf.constant([1, 2], tf.int64), temperature=tf.ones(2), top_p=tf.ones(2),
        ...     top_k=tf.constant([0, 0]),
        ... )
        >>> throws.lengths.numpy().tolist()
        [[4], [2]]
    """
    start_token_ids = as_start_token_ids(start_token_ids)
    search = row_search(
        step,
        start_token_ids,
        end_token_id=end_token_id,
        max_length=max_length,
        seed=seed,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        longest=longest,
        min_length=min_length,
        pad_token_id=pad_token_id,
        also_end_token_ids=also_end_token_ids,
        repetition_penalty=repetition_penalty,
        prompt_token_ids=prompt_token_ids,
        stops=stops,
    )
    return search.run(start_token_ids, cache, growing_axis=growing_axis)


def steps(
    step: StepFunction,
    start_token_ids: tf.Tensor | Sequence[int],
    cache: Cache = (),
    *,
    end_token_id: int | None,
    max_length: int | Sequence[int],
    seed: int | Sequence[int] = 0,
    temperature: float | Sequence[float] = 1.0,
    top_k: int | Sequence[int] = 1,
    top_p: float | Sequence[float] = 1.0,
    min_length: int = 0,
    pad_token_id: int = 0,
    growing_axis: int | None = None,
    also_end_token_ids: Sequence[int] = (),
    repetition_penalty: float | Sequence[float] = 1.0,
    prompt_token_ids: tf.Tensor | None = None,
    stops: StopFunction | None = None,
) -> Iterator[Step]:
    """Yields the tokens of `sample_rows` one step at a time, the likeliest ones by default.

    A step is computed when it is asked for: to stop early, leave the loop. It is traced once for a
    call, so that it takes about as long as in `sample_rows`. Beam search has no steps, because a
    better hypothesis may replace all of a text.

    Args:
        step: see `sample_rows`.
        start_token_ids: see `sample_rows`.
        cache: see `sample_rows`.
        end_token_id: see `sample_rows`.
        max_length: maximum number of tokens; this and the other options of `sample_rows` may have
            one value, or one for each row.
        seed: see `sample_rows`.
        temperature: see `sample_rows`.
        top_k: see `sample_rows`; 1 takes the likeliest token.
        top_p: see `sample_rows`.
        min_length: see `sample_rows`.
        pad_token_id: see `sample_rows`.
        growing_axis: see `sample_rows`.
        also_end_token_ids: see `sample_rows`.
        repetition_penalty: see `sample_rows`.
        prompt_token_ids: see `sample_rows`.
        stops: see `sample_rows`.

    Yields:
        A `Step` until all rows have ended.

    Raises:
        ValueError: an option is out of range, or the step's logits have no static width.

    Example:
        >>> def count_up(token_ids, index, cache):  # the likeliest token is the next number
        ...     return tf.one_hot(token_ids + 1, depth=5) * 9.0, cache
        >>> for token_ids, _, ended, _ in steps(count_up, [1, 3], end_token_id=4, max_length=5):
        ...     print(token_ids.tolist(), ended.tolist())
        [2, 4] [False, True]
        [3, 0] [False, True]
        [4, 0] [True, True]
    """
    start_token_ids = as_start_token_ids(start_token_ids)
    values = {
        "max_length": max_length,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
        "repetition_penalty": repetition_penalty,
    }
    options = {name: tf.constant(value, ROW_OPTIONS[name]) for name, value in values.items()}
    for name, (holds, rule) in option_rules(options).items():
        if not np.all(holds):
            raise ValueError(f"{name}={values[name]}: {name} must be {rule}")
    options = {
        name: tf.broadcast_to(value, tf.shape(start_token_ids)) for name, value in options.items()
    }
    search = row_search(
        step,
        start_token_ids,
        end_token_id=end_token_id,
        longest=int(options["max_length"].numpy().max(initial=0)),
        min_length=min_length,
        pad_token_id=pad_token_id,
        also_end_token_ids=also_end_token_ids,
        prompt_token_ids=prompt_token_ids,
        stops=stops,
        **options,
    )
    state = (search.start(start_token_ids), tf.nest.map_structure(tf.convert_to_tensor, cache))
    extend = tf.function(search.extend, autograph=False)
    specs = state_specs(*state, growing_axis)
    return step_by_step(extend.get_concrete_function(*specs), *state)


def row_search(
    step: StepFunction,
    start_token_ids: tf.Tensor,
    *,
    end_token_id: int | None,
    max_length: tf.Tensor,
    seed: tf.Tensor,
    temperature: tf.Tensor,
    top_k: tf.Tensor,
    top_p: tf.Tensor,
    longest: int,
    min_length: int = 0,
    pad_token_id: int = 0,
    also_end_token_ids: Sequence[int] = (),
    repetition_penalty: tf.Tensor | None = None,
    prompt_token_ids: tf.Tensor | None = None,
    stops: StopFunction | None = None,
) -> SinglePath:
    """Returns the search that `sample_rows` runs in a loop of the graph, and `steps` in Python."""
    uniform = numbers_of_rows(seed, longest)

    def allowed(scores: tf.Tensor, may_end: tf.Tensor) -> tf.Tensor:
        if end_token_id is not None and min_length > 1:
            for token_id in (end_token_id, *also_end_token_ids):
                scores = forbid(scores, token_id, may_end)
        return scores

    def choose(logits: tf.Tensor, place: Place) -> tuple[tf.Tensor, tf.Tensor]:
        had = place.token_ids
        if prompt_token_ids is not None:
            had = tf.concat([prompt_token_ids, had], 1)
        return draw_tokens(
            logits,
            had,
            tf.gather(uniform, place.index, axis=1),
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            repetition_penalty=repetition_penalty,
            allowed=lambda scores: allowed(scores, place.may_end),
        )

    width = as_max_length(tf.reduce_max(tf.concat([max_length, [0]], axis=0)))
    bounds = length_bounds(step, start_token_ids, width, min_length, max_length)
    return SinglePath(
        step, choose, bounds, width, end_token_id, pad_token_id, also_end_token_ids, stops
    )


def numbers_of_rows(seed: tf.Tensor, count: int) -> tf.Tensor:
    """Returns the numbers in [0, 1) that draw each row's tokens: float32 (batch, count)."""
    return tf.map_fn(
        lambda row: uniform_numbers([row, 0], count),
        seed,
        fn_output_signature=tf.TensorSpec([count], tf.float32),
    )


def draw_tokens(
    logits: tf.Tensor,
    had: tf.Tensor,
    uniform: tf.Tensor,
    *,
    temperature: tf.Tensor,
    top_k: tf.Tensor,
    top_p: tf.Tensor,
    repetition_penalty: tf.Tensor | None = None,
    allowed: Callable[[tf.Tensor], tf.Tensor] = lambda scores: scores,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Draws each row's next token with its own options; see `sample_rows`.

    Args:
        logits: float32 (batch, vocabulary).
        had: int32 (batch, length), the tokens of a row and its prompt, in any order.
        uniform: float32 (batch,), the number in [0, 1) that draws the token.
        temperature: see `sample_rows`.
        top_k: see `sample_rows`.
        top_p: see `sample_rows`.
        repetition_penalty: see `sample_rows`.
        allowed: returns log-probabilities with -inf for tokens that may not be drawn.

    Returns:
        The tokens int32 (batch,), and their log-probabilities before the options apply.
    """
    log_probs = allowed(tf.nn.log_softmax(logits))  # (batch, vocabulary)
    scores = log_probs
    if repetition_penalty is not None:
        scores = tf.cond(
            tf.reduce_any(repetition_penalty != 1),
            lambda: allowed(tf.nn.log_softmax(_penalized(logits, had, repetition_penalty))),
            lambda: log_probs,
        )
    probabilities = tempered(_keep_top_k(scores, top_k), temperature[:, None])
    chosen = draw(_keep_top_p(probabilities, top_p), uniform)
    return chosen, tf.gather(log_probs, chosen, batch_dims=1)


def option_rules(
    options: Mapping[str, tf.Tensor], vocabulary_size: int | None = None
) -> dict[str, tuple[tf.Tensor, str]]:
    """Returns option -> (which of its values are in range, the range in words).

    Args:
        options: those of `ROW_OPTIONS`.
        vocabulary_size: the largest `top_k`; None if it is unknown.
    """
    temperature, top_k, top_p = (options[name] for name in ("temperature", "top_k", "top_p"))
    penalty = options["repetition_penalty"]
    most, range_of_top_k = top_k.dtype.max, "1 or more, or 0 for all tokens"
    if vocabulary_size is not None:
        most = vocabulary_size
        range_of_top_k = f"from 1 to {most}, the vocabulary size, or 0 for all tokens"
    return {
        "max_length": (options["max_length"] >= 0, "0 or more"),
        "temperature": (
            (temperature > 0) & tf.math.is_finite(temperature),
            "above 0; to always take the likeliest token, set top_k to 1",
        ),
        "top_k": ((top_k >= 0) & (top_k <= most), range_of_top_k),
        "top_p": ((top_p > 0) & (top_p <= 1), "above 0 and at most 1"),
        "repetition_penalty": (
            (penalty > 0) & tf.math.is_finite(penalty),
            "above 0; 1 changes nothing",
        ),
    }


def _penalized(logits: tf.Tensor, token_ids: tf.Tensor, penalty: tf.Tensor) -> tf.Tensor:
    """Makes tokens (rows, length) less likely in each row's logits (rows, vocabulary)."""
    penalty = penalty[:, None]
    scores = tf.gather(logits, token_ids, batch_dims=1)
    scores = tf.where(scores > 0, scores / penalty, scores * penalty)
    row = tf.broadcast_to(tf.range(tf.shape(token_ids)[0])[:, None], tf.shape(token_ids))
    return tf.tensor_scatter_nd_update(logits, tf.stack([row, token_ids], axis=-1), scores)


def _keep_top_k(scores: tf.Tensor, top_k: tf.Tensor) -> tf.Tensor:
    """Sets all scores (rows, count) to -inf except the `top_k` largest of each row."""
    largest, _ = tf.math.top_k(scores, tf.maximum(1, tf.reduce_max(tf.concat([top_k, [1]], 0))))
    border = tf.gather(largest, tf.maximum(top_k - 1, 0)[:, None], batch_dims=1)  # (rows, 1)
    return tf.where((top_k == 0)[:, None] | (scores >= border), scores, -float("inf"))


def _keep_top_p(probabilities: tf.Tensor, top_p: tf.Tensor) -> tf.Tensor:
    """Keeps each row's nucleus (rows, count); a row whose `top_p` is 1 stays unchanged."""
    in_part = top_p < 1
    return tf.cond(
        tf.reduce_any(in_part),
        lambda: tf.where(in_part[:, None], keep_nucleus(probabilities, top_p), probabilities),
        lambda: probabilities,
    )
