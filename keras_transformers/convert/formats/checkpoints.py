"""What a folder or file of weights holds, found out before any weight is read.

A module in this folder registers its format by defining `FORMAT`; no list names it.
"""

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert import formats
from keras_transformers.convert.tensors import PICKLES, refuse_pickle

__all__ = ["Checkpoint", "Format", "Served", "open_checkpoint"]


MOST_LABELS = 1_000_000  # a damaged count must not make names until memory ends


@dataclass(frozen=True)
class Checkpoint:
    """Weights in other people's format, and what they were trained for.

    Attributes:
        source: the folder or file, for messages.
        base: the task that the model serves without a head: "embedding" for encoders of texts.
        trained: the tasks that its heads were trained for, the main one first; those of the
            pipelines. Empty if it has no head, or one that no pipeline uses.
        build: makes the model without heads, with random weights.
        fill: takes a model with any head, and `ignore`, wildcards of tensors to leave out; fills
            the model, or fails and lists what does not fit. Returns the names left out.
        tokenizers: makes the pipeline's tokenizers, of the texts and, if it differs, of the
            answers; none for images.
        heads: what the heads are, for error messages, such as "BertForMultipleChoice".
        parts: wildcards of the tensors outside the encoder's layers: its pooler and all heads.
        has_pooler: whether there are weights for the encoder's pooler.
        options: keyword arguments of the pipeline of each trained task, such as the labels.
        max_sequence_length: most tokens of a text, if the files set a limit.
        masked_lm: the options of `heads.masked_lm`.
    """

    source: Path
    base: str
    trained: tuple[str, ...]
    build: Callable[[], keras.Model]
    fill: Callable[[keras.Model, Iterable[str]], list[str]]
    tokenizers: Callable[[], tuple[Any, ...]]
    heads: str = ""
    parts: tuple[str, ...] = ()
    has_pooler: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    max_sequence_length: int | None = None
    masked_lm: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Served:
    """A model with what its answers need: all that a pipeline has to be written elsewhere.

    Attributes:
        task: what it is trained for, one of the pipelines' tasks.
        model: the model with its head.
        tokenizers: by the names of the pipeline's arguments; empty for images.
        options: the pipeline's keyword arguments, as JSON values, the labels among them.
        max_sequence_length: most tokens of a text; None for images.
    """

    task: str
    model: keras.Model
    tokenizers: Mapping[str, Any]
    options: Mapping[str, Any]
    max_sequence_length: int | None = None


@dataclass(frozen=True)
class Format:
    """A format of weights.

    Attributes:
        contents: what such a folder or file holds, for error messages.
        recognises: returns whether a path is in this format; it may look at names and small files.
        open: reads the configuration at a path. FileNotFoundError if a file is missing, ValueError
            if one is damaged or asks for something that the models lack.
    """

    contents: str
    recognises: Callable[[Path], bool]
    open: Callable[[Path], Checkpoint]


def open_checkpoint(path: Path) -> Checkpoint:
    """Opens weights by what is in a folder or file; reads no weights yet.

    Raises:
        FileNotFoundError: the path, or a file of the format, does not exist.
        ValueError: the format is unknown, or a file is damaged.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: give a folder of weights")
    for known in all_formats():
        if known.recognises(path):
            return known.open(path)
    if path.is_file():
        if path.suffix in PICKLES:
            refuse_pickle(path)
        raise ValueError(f"{path}: a file of unknown format; if it is part of a folder, give that")
    if (path / "saved_model.pb").is_file():
        raise ValueError(
            f"{path} is a SavedModel, which cannot be trained further: ask it with "
            "keras_transformers.saved_model.Predictor, or load the pipeline that it came from"
        )
    wanted = "; ".join(known.contents for known in all_formats())
    raise ValueError(f"{path} holds no weights in a known format, which are {wanted}")


def is_checkpoint(path: Path) -> bool:
    """Returns whether a folder or file holds weights in a known format."""
    return path.exists() and any(known.recognises(path) for known in all_formats())


@functools.cache
def all_formats() -> tuple[Format, ...]:
    """Returns every format that a module in this folder registers."""
    modules = (
        importlib.import_module(f"{formats.__name__}.{found.name}")
        for found in pkgutil.iter_modules(formats.__path__)
    )
    return tuple(module.FORMAT for module in modules if hasattr(module, "FORMAT"))
