"""Improves a language model with a cache of its states and tokens in the document so far."""

from collections.abc import Sequence
from typing import Self

import numpy as np

from keras_transformers.evaluation.kneser_ney import KneserNey
from keras_transformers.evaluation.mixtures import mixed_log_probabilities, mixture_weights
from keras_transformers.evaluation.scored_text import ScoredText

__all__ = ["DocumentCache", "compare_with_cache_and_ngrams"]

_QUERIES = 512  # predicted at once, to bound the memory


class DocumentCache:
    """Predicts that tokens of the document occur again when the model is in a similar state.

    Grave, Joulin & Usunier 2017, "Improving Neural Language Models with a Continuous Cache",
    arXiv:1612.04426, with vectors of length 1. If h_t is the vector that predicts token t:

        p(w) is proportional to the sum over i < t with token i = w of exp(sharpness * h_t . h_i)

    over the last `size` tokens of the same document. Mix it with the model (`mixture_weights`).

    Args:
        sharpness: how similar a state must be; the paper's theta.
        size: number of tokens to remember.

    Raises:
        ValueError: `sharpness` is below 0 or `size` below 1.

    Example:
        >>> hidden = np.array([[1, 0], [0, 1], [1, 0]], np.float32)
        >>> tokens, documents = np.array([7, 8, 7]), np.array([0, 0, 0])
        >>> text = ScoredText(np.log([0.5, 0.5, 0.5]), hidden, tokens, documents)
        >>> np.exp(DocumentCache(sharpness=2.0).log_probabilities(text)).round(3)
        array([0.5  , 0.   , 0.881])
    """

    def __init__(self, *, sharpness: float, size: int = 2000) -> None:
        if not sharpness >= 0 or size < 1:
            raise ValueError(
                f"sharpness={sharpness} and size={size}: must be 0 or more, and 1 or more"
            )
        self.sharpness = sharpness
        self.size = size

    @classmethod
    def best(
        cls, text: ScoredText, sharpness: Sequence[float] = (2.5, 5.0, 10.0, 20.0, 40.0)
    ) -> Self:
        """Returns the cache whose mixture with the model gives a text the highest probability.

        Args:
            text: development data.
            sharpness: values to try.
        """

        def score(cache: Self) -> float:
            models = {"model": text.log_probabilities, "cache": cache.log_probabilities(text)}
            return mixed_log_probabilities(models, mixture_weights(models)).mean()

        return max((cls(sharpness=value) for value in sharpness), key=score)

    def log_probabilities(self, text: ScoredText) -> np.ndarray:
        """Returns the log probability of each token, float64 (tokens,), in nats.

        It is -inf if the token has not occurred yet. For a document's first token, when the cache
        is empty, it is that of the model.
        """
        scale = np.linalg.norm(text.hidden, axis=1, keepdims=True)
        hidden = text.hidden / np.maximum(scale, 1e-12)
        probabilities = np.exp(text.log_probabilities)
        for start, end in text.spans():
            for first in range(start + 1, end, _QUERIES):
                queries = np.arange(first, min(first + _QUERIES, end))
                places = np.arange(max(start, first - self.size), queries[-1])
                distance = queries[:, None] - places  # (queries, places)
                scores = self.sharpness * (hidden[queries] @ hidden[places].T)
                shares = np.exp(scores - self.sharpness)  # at most 1
                shares[(distance < 1) | (distance > self.size)] = 0.0
                is_same = text.token_ids[queries][:, None] == text.token_ids[places]
                probabilities[queries] = (shares * is_same).sum(1) / shares.sum(1)
        with np.errstate(divide="ignore"):
            return np.log(probabilities)


def compare_with_cache_and_ngrams(
    name: str, dev: ScoredText, held_out: ScoredText, ngrams: KneserNey
) -> dict[str, float]:
    """Measures a model alone, with a cache of the document, and mixed with n-grams.

    The cache and the weights of mixtures are chosen on the development text.

    Args:
        name: the model's name, such as "GPT".
        dev: its predictions for the development text.
        held_out: its predictions for the text to report.
        ngrams: n-grams fitted on the same training text.

    Returns:
        Name, such as "GPT + cache", -> negative log-probability of `held_out` in nats.
    """
    cache, counts = DocumentCache.best(dev), f"Kneser-Ney {ngrams.order}-grams"
    on_dev, on_held_out = (
        {
            name: text.log_probabilities,
            "cache": cache.log_probabilities(text),
            counts: np.concatenate([ngrams.log_probabilities(ids) for ids in text.documents()]),
        }
        for text in (dev, held_out)
    )
    losses = {}
    for parts in ([name], [name, "cache"], [counts], [name, counts], [name, "cache", counts]):
        weights = mixture_weights({part: on_dev[part] for part in parts})
        mixed = mixed_log_probabilities({part: on_held_out[part] for part in parts}, weights)
        losses[" + ".join(parts)] = -float(mixed.sum())
    return losses
