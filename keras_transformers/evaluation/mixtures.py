"""Mixes language models linearly, to see how much each knows that the others do not."""

from collections.abc import Mapping

import numpy as np

__all__ = ["mixed_log_probabilities", "mixture_weights"]


def mixture_weights(
    log_probabilities: Mapping[str, np.ndarray], *, rounds: int = 100
) -> dict[str, float]:
    """Finds the weights with which a text is most likely under a mixture of models.

    It uses expectation maximisation from equal weights (Jelinek & Mercer 1980; SRILM's
    `compute-best-mix`). Choose the weights on development data, never on the text whose perplexity
    is reported.

    Args:
        log_probabilities: name -> log-probability of each token of the text under the model,
            (tokens,), in nats; -inf where only another model knows the token.
        rounds: number of updates.

    Returns:
        Name -> weight; they sum to 1.

    Raises:
        ValueError: there are no models, their numbers of tokens differ, or no model knows a token.

    Example:
        >>> models = {"a": np.log([0.9, 0.1]), "b": np.log([0.1, 0.9])}
        >>> mixture_weights(models)
        {'a': 0.5, 'b': 0.5}
    """
    probabilities = np.exp(_stacked(log_probabilities))  # (models, tokens)
    if not (probabilities.sum(axis=0) > 0).all():
        place = int(np.argmin(probabilities.sum(axis=0)))
        raise ValueError(f"token {place} of the text has probability 0 under every model")
    weights = np.full(len(probabilities), 1 / len(probabilities))
    for _ in range(rounds):
        shares = weights[:, None] * probabilities
        weights = (shares / shares.sum(axis=0)).mean(axis=1)
    return dict(zip(log_probabilities, weights.tolist(), strict=True))


def mixed_log_probabilities(
    log_probabilities: Mapping[str, np.ndarray], weights: Mapping[str, float]
) -> np.ndarray:
    """Returns the log-probability of each token under the mixture, float64 (tokens,), in nats.

    Args:
        log_probabilities: see `mixture_weights`.
        weights: name -> weight, for the same names.

    Raises:
        ValueError: a model has no weight, there are no models, or their numbers of tokens differ.
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
        raise ValueError(
            f"tokens per model: {lengths}; expected one or more models of the same text"
        )
    return np.stack([np.asarray(v, np.float64) for v in log_probabilities.values()])
