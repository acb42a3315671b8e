"""Samples tokens at random, with temperature, top-k and top-p (nucleus) filtering.

`sample` has one set of options for all rows, `sample_rows` has options per row.

Top-k: Fan et al., "Hierarchical Neural Story Generation", 2018. Top-p: Holtzman et al., "The
Curious Case of Neural Text Degeneration", 2020.
"""

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_transformers.decoding.largest_logits import best_continuations, in_blocks, log_normalizer
from keras_transformers.decoding.single_path import StopFunction, follow_path
from keras_transformers.decoding.step import Cache, Hypotheses, StepFunction

__all__ = ["sample", "sample_rows"]


def sample(
    step: StepFunction,
    start_token_ids: Any,
    cache: Cache = (),
    *,
    end_token_id: int | None,
    max_length: int | tf.Tensor,
    seed: int | tf.Tensor,
    num_hypotheses: int = 1,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_length: int = 0,
    length_limits: tf.Tensor | None = None,
    pad_token_id: int = 0,
    growing_axis: int | None = None,
) -> Hypotheses:
    """Draws each token from the model's distribution, with the given temperature and filters.

    First the logits are divided by `temperature`. Then only the `top_k` likeliest tokens are kept
    (of equally likely ones, those with the smallest ids), and of these only the smallest set of
    likeliest tokens whose probabilities sum to at least `top_p`, including ties with its last one.

    The random numbers depend only on the seed, the row and the position: the same call gives the
    same text in eager mode, in a graph and under XLA, regardless of the rest of the batch. They
    have 24 bits, so some tokens with probabilities below 1e-7 never occur, and others too often.

    Args:
        step: the model, see `StepFunction`; it gets batch * num_hypotheses rows.
        start_token_ids: see `greedy_search`.
        cache: see `greedy_search`; the search repeats its leaves (batch, ...).
        end_token_id: see `greedy_search`.
        max_length: see `greedy_search`.
        seed: an integer or an integer scalar tensor.
        num_hypotheses: number of independent texts to draw for each sentence; they may be equal.
        temperature: above 0; below 1 it sharpens the distribution, above 1 it flattens it.
        top_k: 1 to vocabulary_size; by default all tokens. A small value speeds up sampling.
        top_p: above 0, at most 1 (all tokens, the default).
        min_length: see `greedy_search`.
        length_limits: see `greedy_search`.
        pad_token_id: see `greedy_search`.
        growing_axis: see `greedy_search`.

    Returns:
        Hypotheses in the order in which they were drawn. The score is the log-probability of the
        text under the model itself (temperature 1, no filter), including the end token.

    Raises:
        ValueError: an argument is out of range, or the step's logits have no static width.

    Example:
        >>> def dice(token_ids, index, cache):
        ...     return tf.zeros((len(token_ids), 6)), cache
        >>> throws = sample(dice, [0], end_token_id=None, max_length=50, seed=1)
        >>> sorted(set(throws.token_ids.numpy().ravel().tolist()))
        [0, 1, 2, 3, 4, 5]
    """
    if num_hypotheses < 1:
        raise ValueError(f"num_hypotheses={num_hypotheses}: must be at least 1 per sentence")
    if not 0 < temperature < math.inf:
        raise ValueError(
            f"temperature={temperature} must be above 0; for the likeliest token use greedy_search"
        )
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k={top_k}: must be at least 1, or None for all tokens")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p={top_p} must be above 0 and at most 1, or None for all tokens")

    def choose(
        logits: tf.Tensor, so_far: tf.Tensor, index: tf.Tensor, may_end: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        vocabulary_size = logits.shape[1]
        if top_k is not None and top_k > vocabulary_size:
            raise ValueError(
                f"top_k={top_k} is more than the {vocabulary_size} tokens of the vocabulary"
            )
        log_probs = logits - log_normalizer(in_blocks(logits))[:, None]
        if end_token_id is not None and min_length > 1:
            log_probs = _forbid(log_probs, end_token_id, may_end)
        token_ids = None
        if top_k is not None:
            offsets = tf.zeros((tf.shape(logits)[0], 1))
            log_probs, _, token_ids = best_continuations(offsets, in_blocks(log_probs), top_k)
        probabilities = tempered(log_probs, temperature)
        if top_p is not None and top_p < 1:
            probabilities = keep_nucleus(probabilities, top_p)
        chosen = draw(probabilities, _uniform([seed, index], tf.shape(logits)[0]))
        chosen_log_probs = tf.gather(log_probs, chosen, batch_dims=1)
        if token_ids is not None:
            chosen = tf.gather(token_ids, chosen, batch_dims=1)
        return chosen, chosen_log_probs

    return follow_path(
        step,
        start_token_ids,
        cache,
        choose,
        num_hypotheses=num_hypotheses,
        end_token_id=end_token_id,
        max_length=max_length,
        min_length=min_length,
        length_limits=length_limits,
        pad_token_id=pad_token_id,
        growing_axis=growing_axis,
    )


def sample_rows(
    step: StepFunction,
    start_token_ids: Any,
    cache: Cache = (),
    *,
    end_token_id: int | None,
    max_length: tf.Tensor,
    seed: tf.Tensor,
    temperature: tf.Tensor,
    top_k: tf.Tensor,
    top_p: tf.Tensor,
    longest: int,
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
    count = tf.TensorSpec([longest], tf.float32)
    uniform = tf.map_fn(  # (batch, longest)
        lambda row: _uniform([row, 0], longest), seed, fn_output_signature=count
    )

    def choose(
        logits: tf.Tensor, so_far: tf.Tensor, index: tf.Tensor, may_end: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        log_probs = tf.nn.log_softmax(logits)  # (batch, vocabulary)
        scores = log_probs
        if repetition_penalty is not None:
            had = so_far if prompt_token_ids is None else tf.concat([prompt_token_ids, so_far], 1)
            scores = tf.cond(
                tf.reduce_any(repetition_penalty != 1),
                lambda: tf.nn.log_softmax(_penalized(logits, had, repetition_penalty)),
                lambda: log_probs,
            )
        probabilities = tempered(_keep_top_k(scores, top_k), temperature[:, None])
        probabilities = _keep_top_p(probabilities, top_p)
        chosen = draw(probabilities, tf.gather(uniform, index, axis=1))
        return chosen, tf.gather(log_probs, chosen, batch_dims=1)

    return follow_path(
        step,
        start_token_ids,
        cache,
        choose,
        num_hypotheses=1,
        end_token_id=end_token_id,
        max_length=tf.reduce_max(tf.concat([max_length, [0]], axis=0)),
        min_length=0,
        length_limits=max_length,
        pad_token_id=pad_token_id,
        growing_axis=growing_axis,
        also_end_token_ids=also_end_token_ids,
        stops=stops,
    )


def _penalized(logits: tf.Tensor, token_ids: tf.Tensor, penalty: tf.Tensor) -> tf.Tensor:
    """Makes tokens (rows, length) less likely in each row's logits (rows, vocabulary)."""
    penalty = penalty[:, None]
    scores = tf.gather(logits, token_ids, batch_dims=1)
    scores = tf.where(scores > 0, scores / penalty, scores * penalty)
    row = tf.broadcast_to(tf.range(tf.shape(token_ids)[0])[:, None], tf.shape(token_ids))
    return tf.tensor_scatter_nd_update(logits, tf.stack([row, token_ids], axis=-1), scores)


def _uniform(seeds: Sequence[Any], count: int | tf.Tensor) -> tf.Tensor:
    """Draws numbers in [0, 1) that depend only on two integers: float32 (count,)."""
    # Not "auto_select", whose choice depends on the device. Bits rather than floats, because XLA
    # converts the same bits to different floats.
    bits = tf.random.stateless_uniform(
        [count],
        tf.stack([tf.cast(seed, tf.int64) for seed in seeds]),
        minval=None,
        maxval=None,
        dtype=tf.uint32,
        alg="philox",
    )
    return tf.cast(tf.bitwise.right_shift(bits, tf.constant(8, tf.uint32)), tf.float32) / 2**24


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


def _forbid(log_probs: tf.Tensor, token_id: int, is_allowed: tf.Tensor) -> tf.Tensor:
    """Makes a token impossible in the rows where it is not allowed (rows,)."""
    column = tf.where(is_allowed, log_probs[:, token_id], -float("inf"))[:, None]
    return tf.concat([log_probs[:, :token_id], column, log_probs[:, token_id + 1 :]], axis=1)


def tempered(log_probs: tf.Tensor, temperature: float | tf.Tensor) -> tf.Tensor:
    """Turns log-probabilities into probabilities at a temperature: (rows, count).

    The largest is shifted to 0 before the division, so that it stays finite at a tiny temperature.
    Filter by rank first: a large temperature makes ties.

    Args:
        log_probs: float32 (rows, count), -inf where nothing may be drawn.
        temperature: above 0, one number or (rows, 1).
    """
    largest = tf.reduce_max(log_probs, axis=1, keepdims=True)
    return tf.nn.softmax((log_probs - largest) / temperature)


def keep_nucleus(probabilities: tf.Tensor, top_p: float | tf.Tensor) -> tf.Tensor:
    """Keeps the likeliest entries that together reach `top_p` and sets the others to 0.

    It finds the threshold by bisection over the bit patterns of the float32 numbers from 0 to 1,
    which sort like the numbers. That takes 30 sums, several times faster than sorting a vocabulary.

    Args:
        probabilities: float32 (rows, count).
        top_p: in (0, 1), one number or (rows,).

    Returns:
        float32 (rows, count), not renormalized.
    """
    rows = tf.shape(probabilities)[0]

    def at_least(bits: tf.Tensor) -> tf.Tensor:
        return probabilities >= tf.bitcast(bits, tf.float32)[:, None]

    def halve(low: tf.Tensor, high: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        middle = low + (high - low) // 2
        mass = tf.reduce_sum(tf.where(at_least(middle), probabilities, 0.0), axis=1)
        return tf.where(mass >= top_p, middle, low), tf.where(mass >= top_p, high, middle)

    # The entries >= low sum to top_p, those >= high do not; the loop narrows the gap.
    low = tf.zeros([rows], tf.int32)
    high = tf.fill([rows], tf.bitcast(2.0, tf.int32))
    low, _ = tf.while_loop(lambda low, high: tf.reduce_any(high - low > 1), halve, (low, high))
    return tf.where(at_least(low), probabilities, 0.0)


def draw(weights: tf.Tensor, uniform: tf.Tensor) -> tf.Tensor:
    """Draws an index from each row of weights by inverting the cumulative sum.

    It works in two stages, block then entry, because a cumulative sum over a whole vocabulary is
    slow on a CPU and accumulates rounding errors.

    Args:
        weights: float32 (rows, count), not negative; each row's sum is above 0.
        uniform: float32 (rows,) in [0, 1).

    Returns:
        int32 (rows,); an entry of weight 0 is never drawn.
    """
    block_size = 1 << (weights.shape[1].bit_length() // 2)
    padding = -weights.shape[1] % block_size
    if padding:
        weights = tf.pad(weights, [[0, 0], [0, padding]])
    blocks = tf.reshape(weights, (-1, weights.shape[1] // block_size, block_size))
    block, rest = _invert(tf.reduce_sum(blocks, axis=2), uniform)
    entry, _ = _invert(tf.gather(blocks, block, batch_dims=1), rest)
    return block * block_size + entry


def _invert(weights: tf.Tensor, uniform: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds the entry (rows,) at which each row's cumulative sum reaches the share `uniform`.

    Also returns how far into that entry, in [0, 1): a uniform number for a choice within the entry.
    """
    cumulative = tf.cumsum(weights, axis=1)
    # Never an entry of weight 0, even if sums computed in parallel are not quite monotonic.
    reachable = tf.where(weights > 0, cumulative, 0.0)
    target = uniform * tf.reduce_max(reachable, axis=1)  # below the maximum, even when rounded
    is_beyond = tf.cast(reachable > target[:, None], tf.int32)
    index = tf.argmax(is_beyond, axis=1, output_type=tf.int32)  # the first one
    weight = tf.gather(weights, index, batch_dims=1)
    before = tf.gather(cumulative, index, batch_dims=1) - weight
    largest_below_one = 1.0 - 2.0**-24
    return index, tf.clip_by_value((target - before) / weight, 0.0, largest_below_one)
