"""What a model has to beat: figures of models that look at nothing."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class UnigramBaseline:
    """A language model that knows how often each token occurs, and nothing else.

    Attributes:
        accuracy: share of the tokens that are the most frequent one of the training, 0 to 1.
        perplexity: exp of the mean cross-entropy of a token under the training's frequencies.
    """

    accuracy: float
    perplexity: float


def unigram_baseline(train_counts: np.ndarray, dev_counts: np.ndarray) -> UnigramBaseline:
    """Measures the frequencies of one text on another.

    Each token counts once more than it occurs in training (Laplace), so that none is impossible.

    Args:
        train_counts: how often each token occurs in training, (vocabulary,).
        dev_counts: how often in what is measured, (vocabulary,).

    Raises:
        ValueError: the shapes differ, or there are no tokens to measure.

    Example:
        >>> baseline = unigram_baseline(np.array([0, 2, 5]), np.array([1, 1, 2]))
        >>> baseline.accuracy, round(baseline.perplexity, 4)
        (0.5, 3.102)
    """
    train_counts, dev_counts = np.asarray(train_counts), np.asarray(dev_counts)
    if train_counts.shape != dev_counts.shape or not dev_counts.sum():
        raise ValueError(
            f"counts of shapes {train_counts.shape} and {dev_counts.shape}, {dev_counts.sum()} "
            "tokens to measure: need one count for each token of the vocabulary, not all 0"
        )
    smoothed = train_counts + 1.0
    surprise = -np.log(smoothed / smoothed.sum())  # (vocabulary,), in nats
    mean = float(surprise @ dev_counts / dev_counts.sum())
    accuracy = dev_counts[int(np.argmax(train_counts))] / dev_counts.sum()
    return UnigramBaseline(float(accuracy), float(np.exp(mean)))
