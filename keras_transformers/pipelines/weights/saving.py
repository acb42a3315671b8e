"""Saves pipelines to folders and restores them bit for bit.

pipeline.json        task, class and configuration; the tokenizers' classes and options
model.json           the model's Keras configuration
model.safetensors    its weights, named by the paths of the variables
<tokenizer's files>  those of `tokenizer`; any other tokenizer has a subfolder with its name
"""

import importlib
import os
import pkgutil
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers import files
from keras_transformers.convert.tensors import read_safetensors, unusable

PIPELINE = "pipeline.json"
MODEL = "model.json"
WEIGHTS = "model.safetensors"
_FORMAT = 1
_SMALL = 2**20  # a size that is harmless in any model


def save(pipeline: Any, folder: str | os.PathLike[str]) -> Path:
    """Writes a pipeline; see `Pipeline.save`."""
    from safetensors.numpy import save_file

    with files.new_folder(folder) as new:
        tokenizers = {}
        for name, tokenizer in pipeline.tokenizers.items():
            place = new if name == "tokenizer" else new / name
            place.mkdir(exist_ok=True)
            tokenizer.save(place)
            tokenizers[name] = {"class": type(tokenizer).__name__, "options": tokenizer.config()}
        description = {
            "format": _FORMAT,
            "task": pipeline.task,
            "class": type(pipeline).__name__,
            "config": pipeline.config(),
            "tokenizers": tokenizers,
        }
        files.write_json(new / PIPELINE, description)
        model = keras.saving.serialize_keras_object(pipeline.model)
        # Answers need neither loss nor optimizer, and Keras may be unable to restore them.
        model.pop("compile_config", None)
        files.write_json(new / MODEL, model)
        arrays = {
            path: np.ascontiguousarray(keras.ops.convert_to_numpy(variable))
            for path, variable in _by_path(pipeline.model).items()
        }
        save_file(arrays, new / WEIGHTS)
    return Path(folder)


def is_pipeline(folder: str | os.PathLike[str]) -> bool:
    """Returns whether `save` wrote this folder, though a file may be missing since."""
    return any(Path(folder, name).is_file() for name in (PIPELINE, MODEL))


def load(folder: str | os.PathLike[str]) -> Any:
    """Loads the pipeline that `save` wrote.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or comes from a newer version of this package.
    """
    folder = Path(folder)
    description = files.read_json(folder / PIPELINE)
    if description.get("format") != _FORMAT:
        raise ValueError(
            f"{folder / PIPELINE}: format {description.get('format')!r}, and this version reads "
            f"{_FORMAT}: update keras-transformers"
        )
    try:
        tokenizers = {
            name: _public("tokenizers", entry["class"]).load(
                _place(folder, name), **entry["options"]
            )
            for name, entry in description["tokenizers"].items()
        }
        make, config = _public("pipelines", description["class"]), description["config"]
    except KeyError as error:
        raise ValueError(
            f"{folder / PIPELINE}: no entry {error}: save the pipeline again"
        ) from None
    except LookupError as error:
        raise ValueError(
            f"{folder / PIPELINE}: {error}: update keras-transformers, or save the pipeline again"
        ) from None
    except (AttributeError, TypeError) as error:  # an entry of another type
        raise _damaged(folder / PIPELINE, error) from error
    arrays = read_safetensors(folder / WEIGHTS)
    model = _model(folder / MODEL, arrays)
    _set_weights(model, folder / WEIGHTS, arrays)
    try:
        return make.restore(model, tokenizers, **config)
    except Exception as error:  # whatever a pipeline makes of a damaged configuration
        raise _damaged(folder / PIPELINE, error) from error


def _place(folder: Path, name: str) -> Path:
    """Returns the folder with a tokenizer's files."""
    if name == "tokenizer":
        return folder
    if Path(name).name != name or not (folder / name).is_dir():
        raise LookupError(f"tokenizer {name!r} has no folder of its name beside this file")
    return folder / name


def _damaged(file: Path, error: Exception) -> ValueError:
    reason = " ".join(str(error).split())
    return ValueError(f"{file}: not what `save` wrote ({reason}): save the pipeline again")


def _check_sizes(file: Path, description: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Raises ValueError if a size in a model's configuration cannot be one of these weights.

    Keras makes the weights before it can be asked for their shapes, and a mistaken size could take
    all memory.
    """
    most = max(_SMALL, sum(array.size for array in arrays.values()))
    values: list[tuple[Any, Any]] = [("", description)]
    while values:
        name, value = values.pop()
        if isinstance(value, dict):
            values += value.items()
        elif isinstance(value, list):
            values += [(name, item) for item in value]
        elif type(value) is int and value > most and name != "seed":
            raise ValueError(
                f"{file}: {name}={value!r:.100} is more than all weights in {WEIGHTS}: save the "
                "pipeline again"
            )


def _model(file: Path, arrays: dict[str, np.ndarray]) -> keras.Model:
    description = files.read_json(file)
    _check_sizes(file, description, arrays)
    for room in ("layers", "models"):  # Keras finds our classes once their modules are imported
        package = importlib.import_module(f"keras_transformers.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    try:
        model = keras.saving.deserialize_keras_object(description)
    except Exception as error:  # whatever Keras makes of a damaged configuration
        raise ValueError(
            f"{file}: Keras cannot make this model: update keras-transformers, or save the "
            "pipeline again"
        ) from error
    if not isinstance(model, keras.Model):  # Keras returns an object without a class as it is
        raise ValueError(f"{file}: not the configuration of a model: save the pipeline again")
    return model


def _public(room: str, name: str) -> Any:
    """Returns the public `name` of a room of this package."""
    try:
        return getattr(importlib.import_module(f"keras_transformers.{room}"), name)
    except AttributeError:
        raise LookupError(f"no {name!r} in {room}") from None


def _by_path(model: keras.Model) -> dict[str, Any]:
    variables = {variable.path: variable for variable in model.weights}
    if len(variables) != len(model.weights):
        raise ValueError(
            f"model {model.name!r} has several weights with the same path: give its layers "
            "different names"
        )
    return variables


def _set_weights(model: keras.Model, file: Path, arrays: dict[str, np.ndarray]) -> None:
    variables = _by_path(model)
    differing = sorted(variables.keys() ^ arrays.keys())
    if differing:
        raise ValueError(f"{file}: not the weights of {model.name!r}: {', '.join(differing)}")
    troubles = unusable(arrays)
    if troubles:
        raise ValueError(f"{file}: {'. '.join(troubles)}: save the pipeline again")
    for path, variable in variables.items():
        if tuple(variable.shape) != arrays[path].shape:
            raise ValueError(
                f"{file}: {path} has shape {arrays[path].shape}, the model {tuple(variable.shape)}"
            )
        variable.assign(arrays[path])
