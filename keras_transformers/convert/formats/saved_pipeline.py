"""Opens saved pipelines as weights: pipeline.json, model.json and model.safetensors.

pipeline.json        task, class and configuration; the tokenizers' classes and options
model.json           the model's Keras configuration
model.safetensors    its weights, named by the paths of the variables
<tokenizer's files>  those of `tokenizer`; any other tokenizer has a subfolder with its name

`tasks.weights.saving` writes pipelines and restores them unchanged.
"""

import contextlib
import fnmatch
import importlib
import math
import os
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import keras

from keras_transformers import registry
from keras_transformers.convert.containers.arrays import Arrays, open_arrays
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.weights import Format, FoundWeights
from keras_transformers.convert.tensors import NamedTensor, read_values, set_values
from keras_transformers.dependencies.private_api import without_values
from keras_transformers.models.headless import headless

PIPELINE = "pipeline.json"
MODEL = "model.json"
WEIGHTS = "model.safetensors"
FORMAT_NUMBER = 1
_SMALL = 2**20  # a size that is harmless in any model
_RATES = ("dropout", "attention_dropout")


def is_pipeline(folder: str | os.PathLike[str]) -> bool:
    """Returns whether a folder is a saved pipeline, even if a file is missing."""
    return any(Path(folder, name).is_file() for name in (PIPELINE, MODEL))


def read_description(folder: Folder) -> dict[str, Any]:
    """Returns the contents of pipeline.json.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is damaged, or comes from a newer version of this package.
    """
    description = folder.json(PIPELINE)
    if description.get("format") != FORMAT_NUMBER:
        raise ValueError(
            f"{folder / PIPELINE}: format {description.get('format')!r}, but this version reads "
            f"{FORMAT_NUMBER}: update keras-transformers"
        )
    return description


def read_saved_tokenizers(folder: Folder, description: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the tokenizers by the names of their arguments in the pipeline.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or comes from a newer version of this package.
    """
    with reading(folder / PIPELINE):
        return {
            name: _class(entry["class"]).load(_place(folder, name), **entry["options"])
            for name, entry in description["tokenizers"].items()
        }


@contextlib.contextmanager
def reading(file: Path) -> Iterator[None]:
    """Raises a ValueError that names pipeline.json if something in it is missing or damaged."""
    try:
        yield
    except KeyError as error:
        raise ValueError(f"{file}: no entry {error}: save the pipeline again") from None
    except LookupError as error:
        raise ValueError(
            f"{file}: {error}: update keras-transformers, or save the pipeline again"
        ) from None
    except (AttributeError, TypeError) as error:  # an entry of the wrong type
        raise damaged(file, error) from error


def open_saved_pipeline(folder: Folder) -> FoundWeights:
    """Opens a saved pipeline as weights to train further: its model without its task's head.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or models of this kind have no head.
    """
    description = read_description(folder)
    arrays = open_arrays(folder / WEIGHTS)
    whole = read_model(folder, arrays)
    model = headless(whole)
    body = by_path(model)

    def build(**changes: Any) -> keras.Model:
        rates = {name: changes.pop(name) for name in _RATES if name in changes}
        model = headless(read_model(folder, arrays, **rates))
        for name, value in changes.items():
            if value != (has := _image_fields(model).get(name)):
                raise ValueError(
                    f"{folder}: the model of this pipeline has {name}={has}, not {value}: pass that"
                )
        return model

    def fill(model: keras.Model, ignore: Iterable[str]) -> list[str]:
        wanted, others = by_path(model), []
        for path in sorted(arrays.keys() - wanted.keys()):
            if any(fnmatch.fnmatchcase(path, pattern) for pattern in ignore):
                others.append(path)
        set_weights(model, arrays.without(*others))
        return others

    def tokenizers(lowercase: bool | None = None) -> tuple[Any, ...]:
        return tuple(read_saved_tokenizers(folder, description).values())

    return FoundWeights(
        source=folder.path,
        base=_base(model),
        trained=(),
        build=build,
        fill=fill,
        tokenizers=tokenizers,
        heads=f"a pipeline for {description.get('task')}",
        parts=(*(path for path in arrays if path not in body), "pooler/*"),
        has_pooler="pooled_output" in model.output,
    )


def _base(model: keras.Model) -> str:
    """Returns the task that a model without a head serves; see `FoundWeights.base`."""
    kinds = {
        "source_token_ids": "translation",
        "images": "image_classification",
        "character_ids": "word_embedding",
    }
    for name, base in kinds.items():
        if name in model.input:
            return base
    return "generation" if hasattr(model, "start_decoding") else "embedding"


def _image_fields(model: keras.Model) -> dict[str, Any]:
    if "images" not in model.input:
        return {}
    height, width, channels = model.input["images"].shape[1:]
    return {"image_size": (height, width), "num_channels": channels}


def _with_rates(description: Any, rates: Mapping[str, float]) -> Any:
    """Returns a model's configuration with different dropout rates."""
    if isinstance(description, list):
        return [_with_rates(item, rates) for item in description]
    if not isinstance(description, dict):
        return description
    changed = {name: _with_rates(value, rates) for name, value in description.items()}
    if "dropout" in rates and changed.get("class_name") == "Dropout":
        changed["config"] = {**changed["config"], "rate": rates["dropout"]}
    return {
        name: rates[name] if name in rates and isinstance(value, float | int) else value
        for name, value in changed.items()
    }


def _place(folder: Folder, name: str) -> Path:
    """Returns the folder with a tokenizer's files."""
    if name == "tokenizer":
        return folder.path
    if Path(name).name != name or not (folder / name).is_dir():
        raise LookupError(f"tokenizer {name!r} has no folder with its name beside this file")
    return folder / name


def damaged(file: Path, error: Exception) -> ValueError:
    """Returns the error for a file that is not as `save` wrote it."""
    reason = " ".join(str(error).split())
    return ValueError(f"{file}: not as `save` wrote it ({reason}): save the pipeline again")


def _check_sizes(file: Path, description: dict[str, Any], arrays: Arrays) -> None:
    """Raises ValueError if a size in a model's configuration does not fit these weights.

    Keras creates weights before their shapes can be checked, and a mistaken size could take all
    memory.
    """
    most = max(_SMALL, sum(map(math.prod, arrays.shapes.values())))
    values: list[tuple[Any, Any]] = [("", description)]
    while values:
        name, value = values.pop()
        if isinstance(value, dict):
            values += value.items()
        elif isinstance(value, list):
            values += [(name, item) for item in value]
        elif type(value) is int and value > most and name != "seed":
            raise ValueError(
                f"{file}: {name}={value!r:.100} is larger than all weights in {WEIGHTS}: save the "
                "pipeline again"
            )


def read_model(folder: Folder, arrays: Arrays, **rates: float) -> keras.Model:
    """Returns the model of a configuration; its variables have no values yet.

    Args:
        folder: has model.json.
        arrays: its weights, which limit its size.
        **rates: dropout rates, `dropout` and `attention_dropout`, instead of its own.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is damaged.
    """
    file, description = folder / MODEL, _with_rates(folder.json(MODEL), rates)
    _check_sizes(file, description, arrays)
    for room in ("layers", "models"):  # so that Keras finds our classes
        package = importlib.import_module(f"keras_transformers.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    for constant in ("FAMILY", "MODELS", "TASK"):  # and those of other packages
        registry.additions(constant)
    try:
        with without_values():
            model = keras.saving.deserialize_keras_object(description)
    except Exception as error:  # any error that a damaged configuration causes in Keras
        raise ValueError(
            f"{file}: Keras cannot make this model: update keras-transformers, or save the "
            "pipeline again"
        ) from error
    if not isinstance(model, keras.Model):  # Keras returns an object without a class unchanged
        raise ValueError(f"{file}: not the configuration of a model: save the pipeline again")
    return model


def _class(name: str) -> Any:
    """Returns a class of tokenizers: a public one, or a family's own."""
    from keras_transformers import tokenizers

    if hasattr(tokenizers, name):
        return getattr(tokenizers, name)
    for other in registry.additions("TOKENIZER"):
        if other.__name__ == name:
            return other
    raise LookupError(f"no tokenizer {name!r}: install or register the package that has its family")


def by_path(model: keras.Model) -> dict[str, Any]:
    """Returns path -> variable; ValueError if two have the same path."""
    variables = {variable.path: variable for variable in model.weights}
    if len(variables) != len(model.weights):
        raise ValueError(
            f"model {model.name!r} has several weights with the same path: give its layers "
            "different names"
        )
    return variables


def set_weights(model: keras.Model, arrays: Arrays) -> None:
    """Fills a model with arrays, by the paths of its variables; ValueError if they do not fit."""
    file, shapes = arrays.source, arrays.shapes
    named = [NamedTensor(path, (variable,)) for path, variable in by_path(model).items()]
    differing = sorted({tensor.name for tensor in named} ^ shapes.keys())
    if differing:
        raise ValueError(f"{file}: not the weights of {model.name!r}: {', '.join(differing)}")
    for tensor in named:
        if shapes[tensor.name] != tensor.shape:
            raise ValueError(
                f"{file}: {tensor.name} has shape {shapes[tensor.name]}, the model {tensor.shape}"
            )
    values, unusable = read_values(named, arrays)
    if unusable:
        raise ValueError(f"{file}: {'. '.join(unusable)}: save the pipeline again")
    set_values(named, arrays, values)


FORMAT = Format("saved pipelines", is_pipeline, open_saved_pipeline)
