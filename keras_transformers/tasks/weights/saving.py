"""Saves pipelines to folders and restores them bit for bit.

`convert.formats.saved_pipeline` lists the files, and reads them as weights to train further.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers import files, registry
from keras_transformers.convert.containers.arrays import open_arrays
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.saved_pipeline import (
    FORMAT_NUMBER,
    MODEL,
    PIPELINE,
    WEIGHTS,
    by_path,
    damaged,
    read_description,
    read_model,
    read_saved_tokenizers,
    reading,
    set_weights,
)
from keras_transformers.convert.formats.saved_pipeline import is_pipeline as is_pipeline
from keras_transformers.dependencies.private_api import give_values


def save(pipeline: Any, folder: str | os.PathLike[str]) -> Path:
    """Writes a pipeline; see `Pipeline.save`."""
    from safetensors.numpy import save_file

    with files.new_folder(folder) as new:
        described = {}
        for name, tokenizer in pipeline.tokenizers.items():
            place = new if name == "tokenizer" else new / name
            place.mkdir(exist_ok=True)
            tokenizer.save(place)
            described[name] = {"class": type(tokenizer).__name__, "options": tokenizer.config()}
        description = {
            "format": FORMAT_NUMBER,
            "task": pipeline.task,
            "class": type(pipeline).__name__,
            "config": pipeline.config(),
            "tokenizers": described,
        }
        files.write_json(new / PIPELINE, description)
        model = keras.saving.serialize_keras_object(pipeline.model)
        # Answers need neither loss nor optimizer, and Keras may be unable to restore them.
        model.pop("compile_config", None)
        files.write_json(new / MODEL, model)
        arrays = {
            path: np.ascontiguousarray(keras.ops.convert_to_numpy(variable))
            for path, variable in by_path(pipeline.model).items()
        }
        save_file(arrays, new / WEIGHTS)
    return Path(folder)


def task_of(folder: Folder) -> Any:
    """Returns the task of a saved pipeline."""
    return read_description(folder).get("task")


def load(folder: str | os.PathLike[str]) -> Any:
    """Loads the pipeline that `save` wrote.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or comes from a newer version of this package.
    """
    folder = Folder.at(folder)
    description = read_description(folder)
    tokenizers = read_saved_tokenizers(folder, description)
    with reading(folder / PIPELINE):
        make, config = _pipeline(description), description["config"]
    arrays = open_arrays(folder / WEIGHTS)
    model = read_model(folder, arrays)
    set_weights(model, arrays)
    give_values(model)
    try:
        return make.restore(model, tokenizers, **config)
    except Exception as error:  # any error that a damaged configuration causes
        raise damaged(folder / PIPELINE, error) from error


def _pipeline(description: Mapping[str, Any]) -> Any:
    """Returns the class of a saved pipeline, which its task has."""
    name, task_name = description["class"], description["task"]
    for task in registry.values("TASK"):
        if (task.name, task.pipeline.__name__) == (task_name, name):
            return task.pipeline
    raise LookupError(
        f"no pipeline {name!r} for the task {task_name!r}; another package's has to be installed "
        "or registered"
    )
