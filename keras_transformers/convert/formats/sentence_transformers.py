"""Reads and writes the parts of sentence-transformers' folders: modules, lengths and prompts.

Each kind of model is a format of its task, in the task's files.py.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import save_file

from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.huggingface import open_huggingface
from keras_transformers.convert.formats.weights import FoundWeights, TrainedModel
from keras_transformers.files import may_be_name, read_json_list, write_json

__all__: list[str] = []

MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"
_LENGTH = "sentence_bert_config.json"
# Its names in older versions, in the order in which sentence-transformers tries them.
_LENGTHS = (
    _LENGTH,
    *("sentence_roberta_config.json", "sentence_distilbert_config.json"),
    *("sentence_camembert_config.json", "sentence_albert_config.json"),
    *("sentence_xlm-roberta_config.json", "sentence_xlnet_config.json"),
)
_MOST_DIMENSIONS = 1 << 16  # so that a damaged number cannot take all memory


class Written(NamedTuple):
    """A module to write after the first.

    Attributes:
        kind: the name of its class, such as "Pooling".
        config: what its config.json holds; none if empty.
        arrays: its weights, as model.safetensors; none if empty.
        package: where sentence-transformers defines the class.
    """

    kind: str
    config: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]
    package: str = "sentence_transformers.models"


def read_modules(folder: Folder) -> list[tuple[str, Folder]]:
    """Returns the kind and folder of each module, in order.

    Raises:
        ValueError: the file is damaged.
    """
    file = folder / MODULES
    modules: list[tuple[str, Folder]] = []
    for module in folder.once(read_json_list, file):
        fields = module if isinstance(module, dict) else {}
        modules.append(module_at(file, folder, fields.get("type"), fields.get("path", "")))
    return modules


def module_at(file: Path, folder: Folder, kind: Any, path: Any) -> tuple[str, Folder]:
    """Returns the kind and folder of a module from what a file says of it.

    Args:
        file: the file, for error messages.
        folder: the folder that the path is in.
        kind: the module's class.
        path: the module's folder; "" for `folder`.

    Raises:
        ValueError: the class or the path is invalid.
    """
    if not isinstance(kind, str) or not isinstance(path, str):
        raise ValueError(
            f"{file}: a module needs a type and a path, not {kind!r:.100} and {path!r:.100}"
        )
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise ValueError(f"{file}: path {path!r:.100} points outside the folder")
    if not all(map(may_be_name, PurePosixPath(path).parts)):
        raise ValueError(f"{file}: path {path!r:.100} is not a valid folder")
    # "sentence_transformers.models.Pooling", or "sentence_transformers.sentence_transformer
    # .modules.pooling.Pooling"; modules from other packages are foreign code.
    is_theirs = kind.startswith("sentence_transformers.")
    place = Folder(folder / path) if PurePosixPath(path).parts else folder
    return (kind.rpartition(".")[2] if is_theirs else kind), place


def module_kinds(folder: Folder) -> frozenset[str]:
    """Returns the kinds of a folder's modules; none if it has no such file, or a damaged one."""
    try:
        return frozenset(kind for kind, _ in read_modules(folder))
    except (OSError, ValueError):
        return frozenset()


def open_transformer(folder: Folder, module: Folder) -> FoundWeights:
    """Opens a Transformer module: an encoder, the maximum length of its texts, its tokenizers.

    Args:
        folder: the whole model's.
        module: the module's; often the same.
    """
    encoder = dataclasses.replace(open_huggingface(module, encodes=True), source=folder.path)
    name = next((name for name in _LENGTHS if (module / name).is_file()), _LENGTH)
    file, config = module / name, module.json(name, missing_ok=True)
    return dataclasses.replace(
        encoder,
        max_sequence_length=_length(file, config, encoder),
        tokenizers=_lowercasing(file, config, encoder),
    )


def write_modules(
    trained: TrainedModel,
    folder: Path,
    after: Sequence[Written],
    settings: Mapping[str, Any],
    *,
    first: str = "sentence_transformers.models.Transformer",
) -> None:
    """Writes what makes a folder with an encoder a model of sentence-transformers.

    Args:
        trained: the model, whose encoder the folder holds.
        folder: the folder.
        after: the modules after the encoder's.
        settings: what config_sentence_transformers.json holds beside the prompts.
        first: the class of the encoder's module.
    """
    places = ["", *(f"{index}_{module.kind}" for index, module in enumerate(after, 1))]
    types = [first, *(f"{module.package}.{module.kind}" for module in after)]
    modules = [
        {"idx": index, "name": str(index), "path": place, "type": kind}
        for index, (place, kind) in enumerate(zip(places, types, strict=True))
    ]
    write_json(folder / MODULES, modules)
    for place, module in zip(places[1:], after, strict=True):
        (folder / place).mkdir()
        if module.config:
            write_json(folder / place / "config.json", dict(module.config))
        if module.arrays:
            save_file(dict(module.arrays), folder / place / "model.safetensors", {"format": "pt"})
    write_length(trained, folder)
    write_settings(trained, folder, settings)


def write_length(trained: TrainedModel, folder: Path) -> None:
    """Writes the maximum length of texts, for the Transformer module in a folder."""
    length = {"max_seq_length": trained.max_sequence_length, "do_lower_case": False}
    write_json(folder / _LENGTH, length)


def write_settings(trained: TrainedModel, folder: Path, settings: Mapping[str, Any]) -> None:
    """Writes config_sentence_transformers.json: the prompts, and other settings."""
    prompts = {
        "prompts": trained.options.get("prompts", {}),
        "default_prompt_name": trained.options.get("default_prompt_name"),
    }
    write_json(folder / SETTINGS, {**prompts, **settings})


def read_prompts(file: Path, settings: Mapping[str, Any], *, includes: bool) -> dict[str, Any]:
    """Returns the options `prompts` and `default_prompt_name` of pipelines that embed."""
    prompts, default = settings.get("prompts") or {}, settings.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(p, str) for p in prompts.values()):
        raise ValueError(f"{file}: prompts={prompts!r:.100}; expected names and texts")
    if default is not None and default not in prompts:
        raise ValueError(
            f"{file}: default_prompt_name={default!r} is not one of the prompts "
            f"{', '.join(prompts) or '(there are none)'}"
        )
    if not any(prompts.values()):  # the default of 5.x: two empty prompts
        return {}
    if not includes:
        raise ValueError(
            f"{file}: pooling without the prompts (include_prompt=false) is not supported: set "
            "prompts to {} there to embed texts without prompts"
        )
    return {"prompts": prompts, "default_prompt_name": default}


def size_of(file: Path, name: str, config: Mapping[str, Any]) -> int:
    """Returns a number of dimensions; ValueError if it is out of range."""
    value = config.get(name)
    if type(value) is not int or not 0 < value <= _MOST_DIMENSIONS:
        raise ValueError(
            f"{file}: {name}={value!r}; expected a number from 1 to {_MOST_DIMENSIONS}"
        )
    return value


def _length(file: Path, config: Mapping[str, Any], encoder: FoundWeights) -> int | None:
    """Returns the maximum length in sentence_bert_config.json, or else the tokenizer's."""
    length = config.get("max_seq_length")
    if length is None:
        return encoder.max_sequence_length
    if type(length) is not int or length < 1:
        raise ValueError(f"{file}: max_seq_length={length!r}; expected a number above 0")
    return length


def _lowercasing(
    file: Path, config: Mapping[str, Any], encoder: FoundWeights
) -> Callable[..., tuple[Any, ...]]:
    """Returns the function that makes the tokenizers, which must lower-case if the file says so."""
    if not config.get("do_lower_case"):
        return encoder.tokenizers

    def tokenizers(lowercase: bool | None = None) -> tuple[Any, ...]:
        tokenizers = encoder.tokenizers(lowercase)
        for tokenizer in tokenizers:
            if not getattr(tokenizer, "lowercase", False):
                raise ValueError(
                    f"{file}: do_lower_case=True, but its {type(tokenizer).__name__} keeps case, "
                    "and lower-casing before a tokenizer is not supported: set do_lower_case to "
                    "false there if the model was trained on unchanged texts"
                )
        return tokenizers

    return tokenizers
