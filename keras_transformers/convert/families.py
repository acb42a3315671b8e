"""Encoders by what is in their folder: each family's module says how its own is read.

A module of this room registers a family by a `FAMILY` at its top level; nothing lists them.
"""

import functools
import importlib
import json
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras

from keras_transformers import convert
from keras_transformers.models.entry import Entry

__all__ = ["Family", "load_encoder"]


@dataclass(frozen=True)
class Family:
    """How the encoders of a family and their tokenizers come from files.

    Attributes:
        model_type: in `config.json`.
        entries: the family's named models.
        load: reads an encoder from a folder in Hugging Face's layout; takes the folder and the
            dropout rate. The heads of its own pretraining are left out.
        tokenizer: reads a tokenizer from a folder, or from a vocabulary file; takes the path and
            whether to lower-case, which families that keep case ignore.
    """

    model_type: str
    entries: Mapping[str, Entry]
    load: Callable[[Path, float], keras.Model]
    tokenizer: Callable[[Path, bool], Any]


@functools.cache
def families() -> tuple[Family, ...]:
    """All that the modules of this room register."""
    modules = (
        importlib.import_module(f"{convert.__name__}.{found.name}")
        for found in pkgutil.iter_modules(convert.__path__)
    )
    return tuple(module.FAMILY for module in modules if hasattr(module, "FAMILY"))


def load_encoder(
    *,
    weights: Path | str | None = None,
    model: str | None = None,
    vocabulary: Path | str | None = None,
    lowercase: bool = True,
    dropout: float = 0.1,
) -> tuple[keras.Model, Any]:
    """An encoder and the tokenizer whose ids it reads.

    Args:
        weights: folder in Hugging Face's layout, pretrained: config.json, model.safetensors and the
            vocabulary. The heads of its own pretraining are left out.
        model: instead, a name of `list_models()`, with random weights.
        vocabulary: of `model`, as its family stores it; `weights` bring their own.
        lowercase: False for cased vocabularies; families that always keep case ignore it.
        dropout: in the encoder and its attention.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: neither kind is asked for, or both; the family is unknown; or the files do not
            fit each other.
    """
    if weights and not model and not vocabulary:
        family = _family_of(Path(weights))
        encoder = family.load(Path(weights), dropout)
        return encoder, family.tokenizer(Path(weights), lowercase)
    if model and vocabulary and not weights:
        named = next((family for family in families() if model in family.entries), None)
        if named is None:
            known = ", ".join(name for family in families() for name in family.entries)
            raise ValueError(f"--model {model}: take one of {known}")
        tokenizer = named.tokenizer(Path(vocabulary), lowercase)
        encoder = named.entries[model].factory(
            vocabulary_size=tokenizer.vocabulary_size, dropout=dropout, attention_dropout=dropout
        )
        return encoder, tokenizer
    raise ValueError("give either --weights FOLDER, or --model NAME and --vocabulary FILE")


def _family_of(folder: Path) -> Family:
    file = folder / "config.json"
    if not file.is_file():
        raise FileNotFoundError(f"{file} does not exist: a folder of Hugging Face has config.json")
    try:
        config = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{file}: not a JSON object ({error})") from error
    model_type = config.get("model_type", "bert") if isinstance(config, dict) else None
    for family in families():
        if family.model_type == model_type:
            return family
    known = ", ".join(sorted(family.model_type for family in families()))
    raise ValueError(f"{file}: model_type {model_type!r} is no encoder that can be read: {known}")
