"""Linear mixtures of language models: how much one knows that the others do not."""

from collections.abc import Mapping

import numpy as np

__all__ = ["mixed_log_probabilities", "mixture_weights"]


def mixture_weights(
    log_probabilities: Mapping[str, np.ndarray], *, rounds: int = 100
) -> dict[str, float]:
    """Finds the weights with which a mixture of models gives a text the highest probability.

    Expectation maximisation from equal weights (Jelinek & Mercer 1980; SRILM's `compute-best-mix`).
    Choose the weights on development data, never on the text whose perplexity is reported.

    Args:
        log_probabilities: name -> what the model gives each token of the text, (tokens,), in nats;
            -inf where only another model knows the token.
        rounds: number of updates.

    Returns:
        Name -> weight; they sum to 1.

    Raises:
        ValueError: no models, different numbers of tokens, or a token that no model knows.

    Example:
        >>> models = {"a": np.log([0.9, 0.1]), "b": np.log([0.1, 0.9])}
        >>> mixture_weights(models)
        {'a': 0.5, 'b': 0.5}
    """
    probabilities = np.exp(_stacked(log_probabilities))  # (models, tokens)
    if not (probabilities.sum(axis=0) > 0).all():
        place = int(np.argmin(probabilities.sum(axis=0)))
        raise ValueError(f"no model gives token {place} of the text a probability above 0")
    weights = np.full(len(probabilities), 1 / len(probabilities))
    for _ in range(rounds):
        shares = weights[:, None] * probabilities
        weights = (shares / shares.sum(axis=0)).mean(axis=1)
    return dict(zip(log_probabilities, weights.tolist(), strict=True))


def mixed_log_probabilities(
    log_probabilities: Mapping[str, np.ndarray], weights: Mapping[str, float]
) -> np.ndarray:
    """Returns what the mixture gives each token, float64 (tokens,), in nats.

    Args:
        log_probabilities: see `mixture_weights`.
        weights: of the same names.

    Raises:
        ValueError: a model has no weight, no models, or different numbers of tokens.
    """
    if unknown := log_probabilities.keys() ^ weights.keys():
        raise ValueError(f"models and weights differ in {', '.join(sorted(unknown))}")
    shares = np.array([weights[name] for name in log_probabilities])
    with np.errstate(divide="ignore"):
        return np.log(shares @ np.exp(_stacked(log_probabilities)))


def _stacked(log_probabilities: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns (models, tokens)."""
    lengths = {name: len(values) for name, values in log_probabilities.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"tokens per model: {lengths}; pass one model or more, of one text")
    return np.stack([np.asarray(v, np.float64) for v in log_probabilities.values()])
