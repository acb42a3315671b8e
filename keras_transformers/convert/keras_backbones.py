"""Describes a family's counterpart in keras-nlp, now keras-hub."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformers.convert.folder import Folder

__all__: list[str] = []

SIZES = ("vocabulary_size", "num_layers", "num_heads", "hidden_dim", "intermediate_dim")
TEXTS = (*SIZES, "dropout", "max_sequence_length")

CONVERTER = "image_converter.json"

Arguments = dict[str, Any]
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """How a class of keras-nlp becomes a family's model.

    Attributes:
        name: the class.
        fields: the fields of its configuration that our builder takes under the same names.
        fixed: our builder's arguments that the class fixes.
        only: a field of its configuration -> the only value that our layers support.
        arguments: takes the preset's folder, the arguments above and the configuration;
            returns our builder's arguments.
        has_pooler: whether it has our encoder's pooler.
        blocks: the pattern of a path in a block: the block's number, and the rest.
        first_block: the number of the first block.
        our_blocks: our name of block {}, counted from 0.
        modules: patterns for the start of other paths -> ours, besides those of all classes.
        arrays: takes the backbone; returns its variables under our paths, if paths do not tell.
        adapt: takes the variables under our paths; returns those that our model needs.
        tokenizers: takes the folder of the vocabulary and the configuration; returns the
            tokenizers, if the family's function for Hugging Face's files does not make them.
    """

    name: str
    fields: tuple[str, ...] = TEXTS
    fixed: Mapping[str, Any] = field(default_factory=dict)
    only: Mapping[str, Any] = field(default_factory=dict)
    arguments: Callable[[Folder, Arguments, Mapping[str, Any]], Arguments] = (
        lambda folder, arguments, config: {**arguments, "attention_dropout": arguments["dropout"]}
    )
    has_pooler: bool = False
    blocks: str = r"transformer_layer_(\d+)/(.+)"
    first_block: int = 0
    our_blocks: str = "encoder_layer_{}"
    modules: tuple[tuple[str, str], ...] = ()
    arrays: Callable[[Any], Arrays] | None = None
    adapt: Callable[[Arrays], Arrays] = lambda arrays: arrays
    tokenizers: Callable[[Path, Mapping[str, Any]], tuple[Any, ...]] | None = None


def read_described(
    folder: Folder, file: str, *, missing_ok: bool = False
) -> tuple[str, dict[str, Any]]:
    """Reads the class, without its package, and the configuration of one of keras-nlp's objects.

    Args:
        folder: the preset.
        file: the name of the file with the object.
        missing_ok: whether a file that does not exist counts as an object of the class "".

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it does not describe such an object.
    """
    if missing_ok and not (folder / file).is_file():
        return "", {}
    contents = folder.json(file)
    name, config = contents.get("registered_name"), contents.get("config")
    package, _, name = str(name).rpartition(">")
    if package not in ("keras_hub", "keras_nlp") or not isinstance(config, dict):
        raise ValueError(f"{folder / file}: not the configuration of a keras-nlp class")
    return name, config


def checked(file: Path, config: Mapping[str, Any], name: str, *, sides: int = 0) -> Any:
    """Returns a field with a size, with a rate if it is `dropout`, or with a list of `sides` sizes.

    Raises:
        ValueError: the field is missing or its value is out of range.
    """
    if name not in config:
        raise ValueError(f"{file}: has no field {name!r}")
    value = config[name]
    if name == "dropout":
        fits = type(value) in (int, float) and 0 <= value < 1
    elif sides:
        fits = isinstance(value, list) and len(value) == sides and all(map(_is_size, value))
    else:
        fits = _is_size(value)
    if not fits:
        raise ValueError(f"{file}: {name}={value!r} is out of range")
    return value


def _is_size(value: Any) -> bool:
    return type(value) is int and value > 0
