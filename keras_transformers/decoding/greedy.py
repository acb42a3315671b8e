"""Searches greedily: takes the likeliest token at every step."""

from collections.abc import Sequence

import tensorflow as tf

from keras_transformers.decoding.constraints import as_constraints
from keras_transformers.decoding.largest_logits import best_continuations, in_blocks, log_normalizer
from keras_transformers.decoding.single_path import Place, follow_path
from keras_transformers.decoding.step import Cache, Hypotheses, StepFunction, as_start_token_ids

__all__ = ["greedy_search"]


def greedy_search(
    step: StepFunction,
    start_token_ids: tf.Tensor | Sequence[int],
    cache: Cache = (),
    *,
    end_token_id: int | None,
    max_length: int | tf.Tensor,
    min_length: int = 0,
    length_limits: tf.Tensor | None = None,
    first_token_ids: int | tf.Tensor | Sequence[int] | None = None,
    force_end: bool = False,
    no_repeat_ngram_size: int = 0,
    pad_token_id: int = 0,
    growing_axis: int | None = None,
) -> Hypotheses:
    """Appends the likeliest token until the end token or the maximum length is reached.

    Of equally likely tokens, it takes the one with the smallest id. The loop stops as soon as every
    sentence is complete.

    Args:
        step: the model, see `StepFunction`.
        start_token_ids: int32 (batch,), the first token to feed for each sentence; batch may be 0.
        cache: the step's state before the first token, with leaves of shape (batch, ...).
        end_token_id: the token that ends a text, or None if the model has none.
        max_length: width of the result in tokens, with the end token but without the start token.
            A Python integer, or an int32 scalar tensor (not under XLA). 0 gives empty texts.
        min_length: shortest length, including the end token, at which a text may end. Before that,
            the end token is skipped; the other tokens keep their probabilities (Hugging Face:
            min_length, or min_new_tokens + 1).
        length_limits: int32 (batch,), a maximum length for each sentence (in the paper: number of
            source tokens + 50). Values above `max_length` count as `max_length`; a limit below
            `min_length` overrides it. Default: `max_length` for all.
        first_token_ids: the first token of every text, or of each (batch,), at any probability:
            a forced token scores 0 (Hugging Face: forced_bos_token_id).
        force_end: whether a text that reaches its maximum length has the end token there, at any
            probability, instead of being cut off (Hugging Face: forced_eos_token_id).
        no_repeat_ngram_size: no text has the same n-gram of this many tokens twice; the start token
            counts. Other tokens keep their probabilities. 0 (the default) allows repetitions. Not
            under XLA.
        pad_token_id: fills `token_ids` after the end, and is fed for complete sentences.
        growing_axis: the axis along which the cache's leaves grow, see `decoding.step`.

    Returns:
        Hypotheses with num_hypotheses = 1. The score is the sum of the tokens' log-probabilities,
        including the end token's.

    Raises:
        ValueError: an argument is out of range, or the step's logits have no static width.

    Example:
        >>> def count_up(token_ids, index, cache):  # the likeliest token is the next number
        ...     return tf.one_hot(token_ids + 1, depth=5) * 9.0, cache
        >>> greedy_search(count_up, [1, 3], end_token_id=4, max_length=5).token_ids.numpy()
        array([[[2, 3, 4, 0, 0]],
        <BLANKLINE>
               [[4, 0, 0, 0, 0]]], dtype=int32)
    """
    start_token_ids = as_start_token_ids(start_token_ids)
    constraints = as_constraints(
        start_token_ids,
        first_token_ids=first_token_ids,
        force_end=force_end,
        end_token_id=end_token_id,
        no_repeat_ngram_size=no_repeat_ngram_size,
    )

    def choose(logits: tf.Tensor, place: Place) -> tuple[tf.Tensor, tf.Tensor]:
        logits = constraints.force(logits, place.index, place.is_last)
        blocks = in_blocks(logits)
        offsets = -log_normalizer(blocks)[:, None]
        if no_repeat_ngram_size:
            allowed = constraints.forbid(logits, place.token_ids, place.index, place.is_last)
            blocks = in_blocks(allowed)
        log_probs, _, token_ids = best_continuations(offsets, blocks, 2)
        if min_length <= 1 or end_token_id is None:
            return token_ids[:, 0], log_probs[:, 0]
        skips_end = tf.logical_and(tf.logical_not(place.may_end), token_ids[:, 0] == end_token_id)
        return (
            tf.where(skips_end, token_ids[:, -1], token_ids[:, 0]),
            tf.where(skips_end, log_probs[:, -1], log_probs[:, 0]),
        )

    return follow_path(
        step,
        start_token_ids,
        cache,
        choose,
        num_hypotheses=1,
        end_token_id=end_token_id,
        max_length=max_length,
        min_length=min_length,
        length_limits=length_limits,
        pad_token_id=pad_token_id,
        growing_axis=growing_axis,
    )
