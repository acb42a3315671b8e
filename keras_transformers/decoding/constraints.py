"""Constrains the tokens of a search: the first, the last, and n-grams that may not repeat."""

from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from keras_transformers.decoding.step import as_start_token_ids, repeat_rows

__all__: list[str] = []

_IMPOSSIBLE = -float("inf")


@dataclass(frozen=True)
class Constraints:
    """Holds what a search may not choose freely; by default nothing, which adds no operations.

    A forced token has probability 1. What is forced is not forbidden.

    Attributes:
        first_token_ids: int32 (batch,), the first token of each text; None for any.
        last_token_id: the token at a text's maximum length; None for any.
        no_repeat_ngram_size: the length of n-grams that a text may have only once; 0 for none.
        start_token_ids: int32 (batch,), the tokens before the texts; they count in n-grams.
        num_beams: rows for each text.
    """

    first_token_ids: tf.Tensor | None
    last_token_id: int | None
    no_repeat_ngram_size: int
    start_token_ids: tf.Tensor
    num_beams: int = 1

    def force(self, logits: tf.Tensor, index: tf.Tensor, is_last: tf.Tensor) -> tf.Tensor:
        """Returns the logits (rows, vocabulary) with only the forced token where there is one.

        Args:
            logits: of the next token.
            index: int32 scalar, the number of tokens so far.
            is_last: bool (batch,), whether the next token is at the maximum length.
        """
        if self.first_token_ids is not None:
            first = self._rows(self.first_token_ids)[:, None]
            logits = tf.cond(index == 0, lambda: _only(first, logits), lambda: logits)
        if self.last_token_id is not None:
            ends = self._rows(is_last)[:, None]
            logits = tf.cond(
                tf.reduce_any(is_last),
                lambda: tf.where(ends, _only(self.last_token_id, logits), logits),
                lambda: logits,
            )
        return logits

    def forbid(
        self, logits: tf.Tensor, token_ids: tf.Tensor, index: tf.Tensor, is_last: tf.Tensor
    ) -> tf.Tensor:
        """Returns the logits (rows, vocabulary) with -inf for tokens that would repeat an n-gram.

        The others keep their values: probabilities are not shared out anew.

        Args:
            logits: of the next token.
            token_ids: int32 (rows, index), the tokens so far.
            index: see `force`.
            is_last: see `force`.
        """
        if not self.no_repeat_ngram_size:
            return logits
        start_token_ids = self._rows(self.start_token_ids)[:, None]
        so_far = tf.concat([start_token_ids, token_ids], axis=1)
        forbidden = _without_repeats(logits, so_far, self.no_repeat_ngram_size)
        if self.first_token_ids is not None:
            forbidden = tf.where(index == 0, logits, forbidden)
        if self.last_token_id is not None:
            forbidden = tf.where(self._rows(is_last)[:, None], logits, forbidden)
        return forbidden

    def _rows(self, vector: tf.Tensor) -> tf.Tensor:
        return repeat_rows(vector, self.num_beams)


def as_constraints(
    start_token_ids: tf.Tensor,
    *,
    first_token_ids: int | tf.Tensor | Sequence[int] | None,
    force_end: bool,
    end_token_id: int | None,
    no_repeat_ngram_size: int,
    num_beams: int = 1,
) -> Constraints:
    """Checks the options of a search that constrain its tokens; see `greedy_search`.

    Raises:
        ValueError: an option is out of range, or there is no end token to force.
    """
    if no_repeat_ngram_size < 0:
        raise ValueError(
            f"no_repeat_ngram_size={no_repeat_ngram_size}: expected a number of tokens, or 0 to "
            "allow repetitions"
        )
    if force_end and end_token_id is None:
        raise ValueError("force_end=True, but end_token_id=None: there is no end token to force")
    first = None
    if first_token_ids is not None:
        first = tf.convert_to_tensor(first_token_ids)
        if first.shape.rank == 0:
            first = tf.fill(tf.shape(start_token_ids), first)
        first = as_start_token_ids(first, name="first_token_ids")
    return Constraints(
        first,
        end_token_id if force_end else None,
        no_repeat_ngram_size,
        start_token_ids,
        num_beams,
    )


def _only(token_ids: int | tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Returns logits (rows, vocabulary) that give one token, or one (rows, 1), probability 1."""
    is_wanted = tf.range(logits.shape[1]) == token_ids
    return tf.where(is_wanted, tf.zeros_like(logits), _IMPOSSIBLE)


def _without_repeats(logits: tf.Tensor, token_ids: tf.Tensor, size: int) -> tf.Tensor:
    """Forbids tokens that would complete an n-gram of `size` tokens that token_ids already have.

    A token is forbidden where it follows, earlier in the row, the same `size - 1` tokens as now.
    """
    count = tf.maximum(tf.shape(token_ids)[1] - size + 1, 0)  # of complete n-grams so far
    repeats = tf.ones([tf.shape(token_ids)[0], count], tf.bool)  # (rows, count)
    for place in range(size - 1):
        latest = token_ids[:, count + place : count + place + 1]  # (rows, 1)
        repeats &= token_ids[:, place : place + count] == latest
    followers = token_ids[:, size - 1 : size - 1 + count]  # (rows, count)
    row = tf.broadcast_to(tf.range(tf.shape(token_ids)[0])[:, None], tf.shape(followers))
    most = tf.where(repeats, _IMPOSSIBLE, float("inf"))
    return tf.tensor_scatter_nd_min(logits, tf.stack([row, followers], axis=-1), most)
