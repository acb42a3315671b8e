"""Saves a pipeline as a folder that this library or transformers loads."""

import os
from pathlib import Path
from typing import Any, Literal, get_args

import keras
import numpy as np

from keras_transformers import files
from keras_transformers.options import named
from keras_transformers.tasks.pipeline import Pipeline
from keras_transformers.tasks.task import all_tasks
from keras_transformers.tasks.weights import adapters, loading

__all__ = ["save"]

SavedFormat = Literal["keras_transformers", "huggingface", "peft"]

_NEVER_FOUND = -9e3  # lower logits are never found by a search or an answer
_TRIAL_LENGTH = 6


_ADVICE = {
    "use folder=": ("path", "filepath", "save_directory", "output_dir"),
    'use format=, such as format="huggingface"': ("save_format", "safe_serialization"),
}


@named(_ADVICE)
def save(
    pipeline: Pipeline,
    folder: str | os.PathLike[str],
    *,
    format: SavedFormat = "keras_transformers",
) -> Path:
    """Writes a pipeline to a new folder, completely or not at all.

    `keras_transformers.load` makes the same pipeline from either format. "huggingface" writes what
    transformers' `from_pretrained` reads, with the head, its labels and the tokenizer; an
    `Embedder` becomes a folder for SentenceTransformer, a `LateInteraction` one for
    MultiVectorEncoder. The folder appears once it has been read
    back and the model in it has given the same outputs. docs/weights.md lists its files.

    Args:
        pipeline: any pipeline; for "huggingface", transformers must have a class for it.
        folder: created, with its parents.
        format: "keras_transformers", as `Pipeline.save`; "huggingface"; or "peft", only the
            low-rank updates from training with `fit(..., lora=8)`, which PEFT and
            `load(adapter=...)` add to the model that was trained.

    Returns:
        The folder.

    Raises:
        FileExistsError: the folder exists.
        ValueError: the format is unknown; or transformers has no class for the pipeline, or one
            that computes something else.

    Example:
        kt.save(classify, "sst2-bert/", format="huggingface")
        transformers.AutoModelForSequenceClassification.from_pretrained("sst2-bert/")
    """
    if format not in get_args(SavedFormat):
        raise ValueError(f"format={format!r}: use one of {', '.join(get_args(SavedFormat))}")
    if format == "keras_transformers":
        return pipeline.save(folder)
    if format == "peft":
        with files.new_folder(folder) as new:
            adapters.save(pipeline, new)
        return Path(folder)
    task = all_tasks().get(pipeline.task)
    if task is None:
        raise ValueError(
            f"task {pipeline.task!r}: transformers has no class for it: save it in the format "
            "'keras_transformers'"
        )
    pipeline = task.prepare(pipeline)
    trained = adapters.trained_model(pipeline)
    with files.new_folder(folder) as new:
        task.write(trained, new)
        _check(pipeline, new, Path(folder))
    return Path(folder)


def _check(pipeline: Pipeline, written: Path, folder: Path) -> None:
    """Raises ValueError unless the written folder loads as the same pipeline."""
    try:
        copy = loading.load(written)
    except ValueError as error:
        reason = str(error).replace(str(written), str(folder))
        raise ValueError(
            f"{folder}: not written, because it could not be read: {reason}"
        ) from error
    differing = [
        name
        for name, one, other in (
            ("class", type(pipeline), type(copy)),
            ("options", pipeline.config(), copy.config()),
            ("vocabulary", _vocabularies(pipeline), _vocabularies(copy)),
            ("outputs", set(pipeline.model.output), set(copy.model.output)),
        )
        if one != other
    ]
    if differing:
        raise ValueError(
            f"{folder}: not written, because it loads with another {' and '.join(differing)}: save "
            "it in the format 'keras_transformers'"
        )
    inputs = {name: _trial(tensor) for name, tensor in pipeline.model.input.items()}
    outputs, wanted = (model(inputs, training=False) for model in (copy.model, pipeline.model))
    for name, value in wanted.items():
        one, other = (
            keras.ops.convert_to_numpy(x).astype("float32") for x in (outputs[name], value)
        )
        counts = one > _NEVER_FOUND
        difference = np.abs(one - other).max(where=counts, initial=0.0)
        if not difference <= pipeline.tolerance * np.abs(other).max(where=counts, initial=1.0):
            raise ValueError(
                f"{folder}: not written, because transformers' class would compute something else: "
                f"{name!r} of model {pipeline.model.name!r} differs by {difference:.1e}; the model "
                "may have an activation or an epsilon for which config.json has no field"
            )


def _vocabularies(pipeline: Pipeline) -> list[tuple[str, dict[str, Any], list[str]]]:
    return [
        (type(tokenizer).__name__, tokenizer.config(), list(tokenizer.vocabulary))
        for tokenizer in pipeline.tokenizers.values()
    ]


def _trial(tensor: Any) -> np.ndarray:
    """Returns an input of two rows: small ids, the second row padded, or synthetic pixels."""
    shape = (2, *(_TRIAL_LENGTH if size is None else size for size in tensor.shape[1:]))
    places = np.arange(np.prod(shape)).reshape(shape)
    if tensor.dtype == "bool":
        ends = np.array([shape[-1], shape[-1] - 2]).reshape(2, *[1] * (len(shape) - 1))
        return places % shape[-1] < ends
    return (places % (256 if "float" in tensor.dtype else 2)).astype(tensor.dtype)
