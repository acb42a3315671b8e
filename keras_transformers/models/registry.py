"""Names of models: every family file in `models/` lists its own in `MODELS`; this finds them."""

import fnmatch
import functools
import importlib
import inspect
import pkgutil
from typing import Any

import keras

from keras_transformers import models
from keras_transformers.models.entry import ModelCard

__all__ = ["create_model", "list_models"]


@functools.cache
def all_cards() -> dict[str, ModelCard]:
    """Every registered model's card by name, families in alphabetical order.

    Raises:
        ValueError: two families register the same name.
    """
    cards: dict[str, ModelCard] = {}
    for module_info in pkgutil.iter_modules(models.__path__):
        module = importlib.import_module(f"{models.__name__}.{module_info.name}")
        for name, card in getattr(module, "MODELS", {}).items():
            if name in cards:
                raise ValueError(f"model {name!r} is registered twice, again in {module.__name__}")
            cards[name] = card
    return cards


def list_models(pattern: str = "*") -> list[str]:
    """Names of the registered models.

    Args:
        pattern: shell-style wildcard, such as "bert_*".

    Returns:
        The names that match, in the order of registration.

    Example:
        >>> list_models("bert_b*")
        ['bert_base']
    """
    return [name for name in all_cards() if fnmatch.fnmatchcase(name, pattern)]


def model_card(name: str) -> ModelCard:
    """What is known of a registered model.

    Raises:
        ValueError: no model has this name; the message names the nearest ones.
    """
    cards = all_cards()
    if name not in cards:
        import difflib

        near = difflib.get_close_matches(name, cards, n=3) or list(cards)[:3]
        raise ValueError(
            f"model {name!r} is not registered; did you mean {', '.join(near)}? "
            "`keras-transformers list` names them all"
        )
    return cards[name]


def create_model(name: str, **overrides: Any) -> keras.Model:
    """Builds a registered model with random weights.

    Args:
        name: one of `list_models()`.
        **overrides: arguments of the model's factory, such as `vocabulary_size=30000`.

    Returns:
        A built functional model.

    Raises:
        ValueError: the name is not registered, or the factory has no such argument.

    Example:
        >>> create_model("bert_tiny").count_params()
        4385920
    """
    factory = model_card(name).factory
    known = inspect.signature(factory).parameters
    unknown = sorted(set(overrides) - set(known))
    if unknown:
        raise ValueError(
            f"{name} takes no argument {', '.join(map(repr, unknown))}; it takes {', '.join(known)}"
        )
    return factory(**overrides)
