"""Finds models by name: each family's model.py lists its `MODELS`."""

import contextlib
import difflib
import fnmatch
import inspect
from typing import Any

import keras

from keras_transformers import registry
from keras_transformers.models.entry import Entry

__all__ = ["create_model", "list_models"]


def all_entries() -> dict[str, Entry]:
    """Returns every registered model by name, with families in alphabetical order."""
    return {entry.name: entry for entry in registry.values("MODELS")}


def list_models(pattern: str = "*") -> list[str]:
    """Lists the names of the registered models.

    Args:
        pattern: shell-style wildcard, such as "bert_*".

    Returns:
        The names that match, in the order of registration.

    Example:
        >>> list_models("bert_b*")
        ['bert_base']
    """
    return [name for name in all_entries() if fnmatch.fnmatchcase(name, pattern)]


def entry(name: str) -> Entry:
    """Returns the entry of a registered model.

    A family whose sizes follow a pattern does not need to list them all: its model.py can define
    `entry_of`, as BERT's does for "bert_l4_h128".

    Raises:
        ValueError: no model has this name; the message suggests similar ones.
    """
    entries = all_entries()
    for entry_of in registry.values("entry_of") if name not in entries else ():
        with contextlib.suppress(ValueError):
            pattern: Entry = entry_of(name)
            return pattern
    if name not in entries:
        near = difflib.get_close_matches(name, entries, n=3) or list(entries)[:3]
        raise ValueError(
            f"model {name!r} is not registered; did you mean {', '.join(near)}? "
            "`keras-transformers list` lists all of them"
        )
    return entries[name]


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
    factory = entry(name).factory
    parameters = inspect.signature(factory).parameters
    unknown = sorted(set(overrides) - set(parameters))
    if unknown:
        raise ValueError(
            f"{name} takes no argument {', '.join(map(repr, unknown))}; it takes "
            f"{', '.join(parameters)}"
        )
    return factory(**overrides)
