"""Computes the token-frequency baseline: scores of a model that ignores context."""

import dataclasses

import numpy as np

__all__ = ["UnigramBaseline", "unigram_baseline"]


@dataclasses.dataclass(frozen=True)
class UnigramBaseline:
    """Holds scores of a language model that only knows how often each token occurs.

    Attributes:
        accuracy: share of tokens that are the most frequent training token, 0 to 1.
        perplexity: exponential of the mean cross-entropy per token under the training frequencies.
    """

    accuracy: float
    perplexity: float


def unigram_baseline(train_counts: np.ndarray, dev_counts: np.ndarray) -> UnigramBaseline:
    """Scores the token frequencies of one text on another.

    Training counts get add-one (Laplace) smoothing, so that no token is impossible.

    Args:
        train_counts: how often each token occurs in training, (vocabulary,).
        dev_counts: how often each token occurs in the text to score, (vocabulary,).

    Raises:
        ValueError: the shapes differ, or the text to score has no tokens.

    Example:
        >>> baseline = unigram_baseline(np.array([0, 2, 5]), np.array([1, 1, 2]))
        >>> baseline.accuracy, round(baseline.perplexity, 4)
        (0.5, 3.102)
    """
    train_counts, dev_counts = np.asarray(train_counts), np.asarray(dev_counts)
    if train_counts.shape != dev_counts.shape or not dev_counts.sum():
        raise ValueError(
            f"counts of shapes {train_counts.shape} and {dev_counts.shape}, {dev_counts.sum()} "
            "tokens to score: pass one count per token of the vocabulary, and not all 0"
        )
    smoothed = train_counts + 1.0
    surprise = -np.log(smoothed / smoothed.sum())  # (vocabulary,), in nats
    mean = float(surprise @ dev_counts / dev_counts.sum())
    accuracy = dev_counts[int(np.argmax(train_counts))] / dev_counts.sum()
    return UnigramBaseline(float(accuracy), float(np.exp(mean)))
