"""Loads an encoder from a folder: the family's own module knows how to read it.

A module in this folder registers its family by defining `FAMILY`; no list names it.
"""

import functools
import importlib
import logging
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras

from keras_transformers import convert
from keras_transformers.convert.config_map import read_config
from keras_transformers.convert.tensors import tensor_names
from keras_transformers.models.entry import Entry

__all__ = ["Family", "load_encoder"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Family:
    """How to read a family's encoders and tokenizers from files.

    Attributes:
        model_type: the family's name in `config.json`.
        entries: the family's named models.
        load: takes a folder in Hugging Face's layout and the dropout rate; returns an encoder
            without its pretraining heads.
        tokenizer: takes a folder or vocabulary file and whether to lower-case, which families that
            keep case ignore; returns a tokenizer.
    """

    model_type: str
    entries: Mapping[str, Entry]
    load: Callable[[Path, float], keras.Model]
    tokenizer: Callable[[Path, bool], Any]


@functools.cache
def families() -> tuple[Family, ...]:
    """Returns every family that a module in this folder registers."""
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
    """Loads an encoder and its tokenizer.

    Args:
        weights: folder of a pretrained encoder in Hugging Face's layout: config.json,
            model.safetensors and the vocabulary. Its pretraining heads are left out.
        model: instead of `weights`, a name from `list_models()`; its weights are random.
        vocabulary: the vocabulary for `model`, in its family's usual files; `weights` have their
            own.
        lowercase: whether to lower-case; families that always keep case ignore it.
        dropout: rate in the encoder and its attention.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: the arguments are neither `weights` alone nor `model` with `vocabulary`; the
            family is unknown; or the files do not belong together.
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


def without_missing_pooler(encoder: keras.Model, folder: Path) -> keras.Model:
    """Returns what a folder's weights fill: the encoder, or all but its pooler if they have none.

    Masked language models and token classifiers have no pooler. A task that needs one trains it.
    """
    if any(name.endswith("pooler.dense.weight") for name in tensor_names(folder)):
        return encoder
    _logger.warning("%s has no pooler: the encoder's starts with random weights", folder)
    outputs = {"sequence_output": encoder.output["sequence_output"]}
    return keras.Model(encoder.input, outputs, name=encoder.name)


def _family_of(folder: Path) -> Family:
    file, config = read_config(folder / "config.json")
    model_type = config.get("model_type", "bert")
    for family in families():
        if family.model_type == model_type:
            return family
    known = ", ".join(sorted(family.model_type for family in families()))
    raise ValueError(f"{file}: model_type {model_type!r} is unknown; expected one of {known}")
