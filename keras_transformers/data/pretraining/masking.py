"""Masks tokens as BERT does, in the TensorFlow graph: once for files, or in each epoch."""

import hashlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_transformers.tokenizers import vocabulary as vocabularies

_MASKED, _RANDOM = 0.8, 0.1  # shares of the chosen tokens; the others stay visible


class Masker:
    """Chooses tokens to predict and hides them: Devlin et al. 2018, section 3.1.

    Of an example's n tokens, round(0.15 n), at least one, are chosen: 80 % of them become [MASK],
    10 % become a random token and 10 % stay. Special tokens, including [UNK], are neither chosen
    nor inserted. With `whole_words`, words are chosen in random order as long as all their pieces
    fit, as in Google's create_pretraining_data; each piece is then hidden independently. With
    `always_mask`, every chosen token becomes [MASK] (appendix C.2 compares both).

    Draws are stateless: the same tokens and seed give the same masks on every device.

    Args:
        vocabulary: the tokens, in the order of their ids.
        mask_probability: share of tokens to choose.
        max_predictions: maximum number of tokens to choose per example.
        whole_words: whether to choose all pieces of a word or none.
        always_mask: whether all chosen tokens become [MASK].

    Attributes:
        max_predictions: the argument of that name.
        vocabulary_digest: see `vocabulary_digest`.

    Raises:
        ValueError: a value is out of range, or the vocabulary lacks a special token.

    Example:
        >>> masker = Masker(
        ...     ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "film", "##s"],
        ...     mask_probability=0.4, max_predictions=3, whole_words=True,
        ... )
        >>> masked = masker(tf.constant([[2, 6, 7, 3, 1, 3, 0, 0]]), seed=(1, 2))
        >>> masked["mask_positions"].numpy().tolist()
        [[1, 2, 0]]
        >>> masked["mask_ids"].numpy().tolist(), masked["mask_weights"].numpy().tolist()
        ([[6, 7, 0]], [[1.0, 1.0, 0.0]])
    """

    def __init__(
        self,
        vocabulary: Sequence[str],
        *,
        mask_probability: float = 0.15,
        max_predictions: int = 20,
        whole_words: bool = False,
        always_mask: bool = False,
    ) -> None:
        if not 0 < mask_probability < 1:
            raise ValueError(f"mask_probability is {mask_probability}, must be above 0 and below 1")
        if max_predictions < 1:
            raise ValueError(f"max_predictions is {max_predictions}, must be 1 or more")
        tokens = vocabularies.check(vocabulary)
        is_ordinary = np.array([token not in vocabularies.SPECIAL_TOKENS for token in tokens])
        if not is_ordinary.any():
            raise ValueError(
                "the vocabulary has only special tokens, so there is nothing to predict: add words"
            )
        self.max_predictions = max_predictions
        self.vocabulary_digest = vocabulary_digest(tokens)
        self._mask_probability = mask_probability
        self._whole_words = whole_words
        self._masked, self._random = (1.0, 0.0) if always_mask else (_MASKED, _RANDOM)
        self._pad_token_id = tokens.index(vocabularies.PAD)
        self._mask_token_id = tokens.index(vocabularies.MASK)
        self._is_ordinary = is_ordinary
        self._ordinary_ids = np.flatnonzero(is_ordinary).astype(np.int32)
        self._continues_word = np.array([token.startswith("##") for token in tokens])

    def __call__(self, token_ids: tf.Tensor, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Masks examples.

        Args:
            token_ids: int32 (batch, length), padded.
            seed: two integers.

        Returns:
            token_ids int32 (batch, length), with the chosen tokens hidden; mask_positions int32,
            mask_ids int32 and mask_weights float32, each (batch, max_predictions): the ascending
            positions of the chosen tokens, their original ids, and 1, padded with zeros.
        """
        token_ids = tf.convert_to_tensor(token_ids, tf.int32)
        seed = tf.cast(seed, tf.int64)  # the seed's type affects the draws
        choice, how, which = tf.unstack(tf.random.split(seed, 3, alg="philox"))
        is_chosen = self._choose(token_ids, choice)
        shape = tf.shape(token_ids)
        draw = tf.random.stateless_uniform(shape, how, alg="philox")
        index = tf.random.stateless_uniform(
            shape, which, 0, len(self._ordinary_ids), tf.int32, alg="philox"
        )
        hidden = tf.where(draw < self._masked, self._mask_token_id, token_ids)
        is_random = draw >= 1 - self._random
        hidden = tf.where(is_random, tf.gather(self._ordinary_ids, index), hidden)
        positions, is_real = self._positions(is_chosen)
        mask_ids = tf.where(is_real, tf.gather(token_ids, positions, batch_dims=1), 0)
        return {
            "token_ids": tf.where(is_chosen, hidden, token_ids),
            "mask_positions": positions,
            "mask_ids": mask_ids,
            "mask_weights": tf.cast(is_real, tf.float32),
        }

    def _choose(self, token_ids: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Returns which tokens are chosen: bool (batch, length)."""
        may_be_chosen = tf.gather(self._is_ordinary, token_ids)
        num_tokens = tf.math.count_nonzero(token_ids != self._pad_token_id, axis=1)
        # Round in float64 and half to even, like Google's Python script.
        share = tf.round(tf.cast(num_tokens, tf.float64) * self._mask_probability)
        budget = tf.clip_by_value(tf.cast(share, tf.int32), 1, self.max_predictions)  # (batch,)

        word, sizes = self._words(token_ids, may_be_chosen)
        scores = tf.random.stateless_uniform(tf.shape(token_ids), seed, alg="philox")
        order = tf.argsort(tf.where(sizes > 0, scores, 2.0), stable=True)  # eligible words first
        sorted_sizes = tf.gather(sizes, order, batch_dims=1)
        if self._whole_words:
            is_taken = _fill(sorted_sizes, budget)
        else:
            is_taken = tf.cumsum(sorted_sizes, axis=1) <= budget[:, None]
        is_taken = tf.gather(is_taken, tf.argsort(order), batch_dims=1)  # (batch, word)
        return may_be_chosen & tf.gather(is_taken, word, batch_dims=1)

    def _words(self, token_ids: tf.Tensor, may_be_chosen: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the word index of each token, and how many tokens of each word may be chosen.

        Both are int32 (batch, length), as there are at most as many words as tokens. Without
        `whole_words` each token is a word.
        """
        sizes = tf.cast(may_be_chosen, tf.int32)
        rows, length = tf.unstack(tf.shape(token_ids))
        if not self._whole_words:
            return tf.tile(tf.range(length)[None], (rows, 1)), sizes
        # After [CLS] or [SEP], pieces whose start was cut off count as a word.
        follows_text = tf.pad(may_be_chosen[:, :-1], [[0, 0], [1, 0]])
        starts_word = ~(tf.gather(self._continues_word, token_ids) & follows_text)
        word = tf.cumsum(tf.cast(starts_word, tf.int32), axis=1) - 1
        flat = word + length * tf.range(rows)[:, None]
        sizes = tf.math.unsorted_segment_sum(sizes, flat, rows * length)
        return word, tf.reshape(sizes, (rows, length))

    def _positions(self, is_chosen: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns ascending positions of chosen tokens, zero-padded, and which are real."""
        length = is_chosen.shape[1] or tf.shape(is_chosen)[1]
        keys = tf.where(is_chosen, length - tf.range(length), 0)  # largest for the first
        missing = tf.maximum(0, self.max_predictions - length)
        keys = tf.pad(keys, [[0, 0], [0, missing]])
        top, positions = tf.math.top_k(keys, self.max_predictions)  # (batch, chosen)
        return tf.where(top > 0, positions, 0), top > 0


def unmask(
    token_ids: tf.Tensor, mask_positions: tf.Tensor, mask_ids: tf.Tensor, mask_weights: tf.Tensor
) -> tf.Tensor:
    """Restores the tokens hidden by a `Masker` or Google's create_pretraining_data.

    Args:
        token_ids: int32 (batch, length).
        mask_positions: int32 (batch, chosen).
        mask_ids: int32 (batch, chosen).
        mask_weights: float32 (batch, chosen), 0 in unused entries.

    Returns:
        int32 (batch, length).
    """
    used = tf.where(mask_weights > 0)  # (all chosen, 2): row, number
    positions = tf.cast(tf.gather_nd(mask_positions, used), tf.int64)
    indices = tf.stack([used[:, 0], positions], axis=1)
    return tf.tensor_scatter_nd_update(token_ids, indices, tf.gather_nd(mask_ids, used))


def vocabulary_digest(tokens: Sequence[str]) -> str:
    """Returns the SHA-256 of the tokens, one per line, to tell vocabularies apart."""
    return hashlib.sha256("\n".join(tokens).encode()).hexdigest()


def _fill(sizes: tf.Tensor, budget: tf.Tensor) -> tf.Tensor:
    """Selects words in order, skipping those that no longer fit.

    Args:
        sizes: tokens in each word, int32 (batch, word).
        budget: maximum number of tokens to select, int32 (batch,).

    Returns:
        Which words are taken: bool (batch, word).
    """

    def take(total: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
        return tf.where(total + size <= budget, total + size, total)

    totals = tf.scan(take, tf.transpose(sizes), tf.zeros_like(budget))  # (word, batch)
    return tf.transpose(totals - tf.pad(totals[:-1], [[1, 0], [0, 0]])) > 0
