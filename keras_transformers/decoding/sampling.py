"""Samples tokens at random, with temperature, top-k and top-p (nucleus) filtering.

`sample` has one set of options for all rows; `decoding.rows` has options per row.

Top-k: Fan et al., "Hierarchical Neural Story Generation", 2018. Top-p: Holtzman et al., "The
Curious Case of Neural Text Degeneration", 2020.
"""

import math
from collections.abc import Sequence

import tensorflow as tf

from keras_transformers.decoding.largest_logits import best_continuations, in_blocks, log_normalizer
from keras_transformers.decoding.single_path import Place, follow_path
from keras_transformers.decoding.step import Cache, Hypotheses, StepFunction

__all__ = ["sample"]


def sample(
    step: StepFunction,
    start_token_ids: tf.Tensor | Sequence[int],
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

    def choose(logits: tf.Tensor, place: Place) -> tuple[tf.Tensor, tf.Tensor]:
        vocabulary_size = logits.shape[1]
        if top_k is not None and top_k > vocabulary_size:
            raise ValueError(
                f"top_k={top_k} is more than the {vocabulary_size} tokens of the vocabulary"
            )
        log_probs = logits - log_normalizer(in_blocks(logits))[:, None]
        if end_token_id is not None and min_length > 1:
            log_probs = forbid(log_probs, end_token_id, place.may_end)
        token_ids = None
        if top_k is not None:
            offsets = tf.zeros((tf.shape(logits)[0], 1))
            log_probs, _, token_ids = best_continuations(offsets, in_blocks(log_probs), top_k)
        probabilities = tempered(log_probs, temperature)
        if top_p is not None and top_p < 1:
            probabilities = keep_nucleus(probabilities, top_p)
        chosen = draw(probabilities, uniform_numbers([seed, place.index], tf.shape(logits)[0]))
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


def uniform_numbers(seeds: Sequence[int | tf.Tensor], count: int | tf.Tensor) -> tf.Tensor:
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


def forbid(log_probs: tf.Tensor, token_id: int, is_allowed: tf.Tensor) -> tf.Tensor:
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
