"""Saves and loads only a pipeline's low-rank updates, in PEFT's format."""

from pathlib import Path
from typing import Any

from keras_transformers.convert.formats.huggingface import family_for
from keras_transformers.convert.formats.peft import CONFIG, read_peft, write_peft
from keras_transformers.convert.formats.weights import TrainedModel
from keras_transformers.tasks.task import all_tasks


def save(pipeline: Any, folder: Path) -> None:
    """Writes the adapter of a pipeline to a folder.

    Raises:
        ValueError: the pipeline has no adapter, or transformers has no class for it.
    """
    if pipeline.adapter is None:
        raise ValueError(
            "format='peft': the pipeline's last training had no low-rank updates: train it with "
            "fit(..., lora=8), or save the whole pipeline in another format"
        )
    trained = trained_model(pipeline)
    family, writer, _ = family_for(trained)
    name = writer.class_for(trained.task, trained.class_end)
    write_peft(pipeline.model, family, pipeline.adapter, folder, class_name=name)


def add(pipeline: Any, folder: Path) -> set[str]:
    """Merges an adapter into a pipeline's model.

    Returns:
        The paths of the variables that the adapter stores in full, such as those of a head.

    Raises:
        FileNotFoundError: the folder has no adapter.
        ValueError: see `read_peft`.
    """
    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(f"{folder}: no {CONFIG}; pass the folder of a PEFT adapter")
    family, *_ = family_for(trained_model(pipeline))
    return read_peft(pipeline.model, family, folder)


def trained_model(pipeline: Any) -> TrainedModel:
    """Returns the parts of a pipeline that writers for other libraries take."""
    task = all_tasks()[pipeline.task]
    return TrainedModel(
        task=pipeline.task,
        model=pipeline.model,
        tokenizers=pipeline.tokenizers,
        options=pipeline.config(),
        max_sequence_length=getattr(pipeline, "max_sequence_length", None),
        class_end=next(iter(task.classes), ""),
        fields=task.config_fields(pipeline.config()),
    )
