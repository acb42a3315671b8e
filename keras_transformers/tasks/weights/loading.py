"""Loads a pipeline from a folder of weights, in any supported format."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert.families import without_pooler
from keras_transformers.convert.formats.weights import FoundWeights, find_weights, local
from keras_transformers.dependencies.private_api import give_values, without_values
from keras_transformers.models.anatomy import anatomy
from keras_transformers.options import unknown_option
from keras_transformers.tasks.embedding.head import with_cls_pooling, with_mean_pooling
from keras_transformers.tasks.pipeline import Pipeline
from keras_transformers.tasks.task import Task, all_tasks
from keras_transformers.tasks.weights import adapters, saving
from keras_transformers.tasks.weights.heads import with_trained

__all__ = ["load"]

_logger = logging.getLogger(__name__)

_ADVICE = {
    "use path=": ("pretrained_model_name_or_path", "model_name", "preset", "folder", "filepath"),
    'use pipeline=, such as pipeline="classification"': ("task", "task_name", "head"),
    "use labels=, the names of the classes": (
        *("num_labels", "num_classes", "id2label", "label2id", "class_names", "label_names"),
    ),
    "use max_sequence_length=": (
        *("max_seq_length", "max_length", "model_max_length", "sequence_length"),
    ),
    "use pair=True": ("text_pair", "pairs"),
    "use pooling=": ("pooling_mode", "pooling_strategy"),
    "use adapter=": ("adapter_name_or_path", "peft_model_id", "lora"),
    "leave it out: the tokenizer of the weights is loaded with them": (
        *("tokenizer", "vocabulary", "do_lower_case", "lowercase"),
    ),
    "call keras.config.set_dtype_policy before loading": ("dtype", "torch_dtype", "precision"),
}

# How to make one vector per text -> the encoder that does it.
_POOLINGS: dict[str, Callable[[keras.Model], keras.Model]] = {
    "mean": with_mean_pooling,
    "cls": with_cls_pooling,
    "pooler": lambda encoder: encoder,
}


def load(
    path: str | os.PathLike[str],
    *,
    pipeline: str | None = None,
    adapter: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Pipeline:
    """Loads the pipeline that a folder of weights was trained for.

    The folder may come from `Pipeline.save`, which is restored bit for bit, or from another
    library: docs/weights.md lists the formats and the pipeline that each becomes. Every weight is
    used or named in a warning; if one is missing or does not fit, loading fails. Nothing in a
    folder is executed, not even pickles, which are read as data.

    Args:
        path: the folder; the file, if the format is a single file; or
            "hf://organization/name@commit" for a model on the Hugging Face Hub (see
            `convert.fetch`).
        pipeline: the task of the pipeline to return, such as "classification" or "embedding", if
            not the one that the weights were trained for. If the weights have no head for it, or a
            head for another number of labels, it gets a new head with random weights to train.
        adapter: a folder of low-rank updates to merge into the model, from PEFT or
            `save(format="peft")`.
        **options: the pipeline's keyword arguments, such as `labels` for a new classifier, `pair`
            or `max_sequence_length`. A new head for whole texts also takes `pooling`, which selects
            the vector that it reads: "mean" over the real tokens, "cls" for the first token's, or
            "pooler" for the encoder's pooler, the default unless a sentence-transformers folder
            says otherwise.

    Returns:
        The pipeline. Its `model` can be trained further.

    Raises:
        FileNotFoundError: a file is missing.
        TypeError: the task has no such option; the message says which may be meant.
        ValueError: a file is damaged, has an unknown format, or needs something that is not
            supported here; weights are missing, left over or of another shape (the message lists
            them all); or `pipeline` or `options` do not fit the weights.

    Example:
        classify = kt.load("sst2-bert/")
        embed = kt.load("all-MiniLM-L6-v2/")
        new = kt.load("bert-base-uncased/", pipeline="classification", labels=["bad", "good"])
    """
    path = local(path)
    loaded, new = _load(path, pipeline, options)
    if adapter is not None:
        stored = adapters.add(loaded, local(adapter))
        new = [layer for layer in new if not {x.path for x in layer.weights} <= stored]
    if new:
        _logger.warning(
            "%s: the layers %s for %s are new, with random weights; train them before use",
            path,
            ", ".join(layer.name for layer in new),
            loaded.task,
        )
    return loaded


def _load(
    path: Path, pipeline: str | None, options: dict[str, Any]
) -> tuple[Pipeline, list[keras.layers.Layer]]:
    """Loads a pipeline; also returns its layers whose weights are random."""
    if saving.is_pipeline(path) and pipeline in (None, saving.task_of(path)):
        if pipeline is not None or options:
            extra = ", ".join(([] if pipeline is None else ["pipeline"]) + list(options))
            raise ValueError(
                f"{path} is a saved pipeline, defined by its {saving.PIPELINE}: leave out {extra}, "
                "or make another pipeline from its `model` and `tokenizer`"
            )
        return saving.load(path), []
    found = with_trained(find_weights(path))
    task = _task(found, pipeline)
    for name in options:
        if name not in task.options:
            names = {"path", "pipeline", "adapter", *task.options}
            raise unknown_option("load", name, names, _ADVICE)
    own = _options(found, task) if task.name in found.trained else {}
    has_head = _has_head(found, task, own, options)
    if has_head:
        if "labels" in own and "labels" in options:
            _warn_of_order(found, own["labels"], options["labels"])
        options = own | options
    for name in task.needs:
        if name not in options:
            raise ValueError(
                f"{path} has no head for {task.name}: pass {name}=[...], the names of the classes, "
                "for a new one"
            )
    num_labels = len(options["labels"]) if "labels" in task.needs else 0
    with without_values():
        model = found.build()
    if has_head:
        with_head = found.with_head or (lambda model: task.head(model, found, num_labels))
        model = with_head(model)
        left_out = found.fill(model, found.parts)
        new: list[keras.layers.Layer] = []
    else:
        pooling, options = _pooling(found, task, options)
        uses_pooler = task.pooled and pooling == "pooler" and found.has_pooler
        filled = model if uses_pooler or found.base != "embedding" else without_pooler(model)
        left_out = found.fill(filled, found.parts)
        known = set(map(id, filled.layers))
        encoder = model if pooling == "pooler" else _POOLINGS[pooling](filled)
        model = task.head(encoder, found, num_labels)
        new = [layer for layer in model.layers if layer.weights and id(layer) not in known]
    give_values(model)
    made = _made(found, task, model, options)
    if left_out:
        _logger.warning("%s: %s does not use %s", path, task.name, ", ".join(left_out))
    return made, new


def _task(found: FoundWeights, wanted: str | None) -> Task[Any]:
    """Returns the task to load the weights for; ValueError if they cannot serve it."""
    tasks = all_tasks()
    new = [task.name for task in tasks.values() if task.new_head_on == found.base]
    headless = [found.base] if tasks[found.base].headless else []
    possible = dict.fromkeys([*found.trained, *new, *headless])
    if wanted is None:
        if found.undecided:
            raise ValueError(f"{found.source}: {found.undecided}")
        if found.trained:
            return tasks[found.trained[0]]
        what = f"the head of {found.heads}" if found.heads else "weights without a head"
        raise ValueError(
            f"{found.source}: no pipeline here uses {what}: pass pipeline=..., one of "
            f"{', '.join(possible)}, to use the layers below a head"
        )
    if wanted not in tasks:
        raise ValueError(f"pipeline={wanted!r}: use one of {', '.join(tasks)}")
    if wanted not in possible:
        raise ValueError(
            f"pipeline={wanted!r}: {found.source} can only serve {', '.join(possible)}"
        )
    return tasks[wanted]


def _options(found: FoundWeights, task: Task[Any]) -> dict[str, Any]:
    """Returns the pipeline's options that the files hold for a trained task."""
    own = dict(found.options)
    if found.head is not None:
        own |= task.read_options(found.head.file.parent)
        if "labels" in task.needs:
            own["labels"] = found.head.labels()
        written, options = found.head.written
        if written == task.name:
            own |= options
    return {name: own[name] for name in own if name != "labels" or "labels" in task.needs}


def _has_head(
    found: FoundWeights, task: Task[Any], own: Mapping[str, Any], given: Mapping[str, Any]
) -> bool:
    """Returns whether the weights have the head that the task needs."""
    if task.name not in found.trained:
        return task.headless and task.name == found.base
    if "labels" not in own or "labels" not in given:
        return True
    return len(own["labels"]) == len(given["labels"])


def _warn_of_order(found: FoundWeights, own: Sequence[str], given: Sequence[str]) -> None:
    """Warns if labels for a trained head are its own in another order, which swaps its answers."""
    if list(own) != list(given) and sorted(own) == sorted(given):
        _logger.warning(
            "%s: the labels of the trained head are %s, in this order; labels=%s renames them: "
            "leave out labels to keep them",
            found.source,
            ", ".join(own),
            list(given),
        )


def _pooling(
    found: FoundWeights, task: Task[Any], options: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Returns the pooling for a new head, and the options left for the pipeline."""
    if not task.pooled or found.base != "embedding":
        return "pooler", options
    pooling = options.get("pooling", found.options.get("pooling", "pooler"))
    if pooling not in _POOLINGS:
        raise ValueError(f"pooling={pooling!r}: a new head takes one of {', '.join(_POOLINGS)}")
    return pooling, {name: value for name, value in options.items() if name != "pooling"}


def _made(
    found: FoundWeights, task: Task[Any], model: keras.Model, options: dict[str, Any]
) -> Pipeline:
    """Makes the pipeline; errors name the weights."""
    tokenizers = found.tokenizers()
    length = task.parameters.get("max_sequence_length")
    if length is not None:
        positions = anatomy(model).trained_length
        limits = [found.max_sequence_length, positions, length.default]
        shortest = min((limit for limit in limits if limit is not None), default=None)
        if shortest != (length.default or positions):  # which are the pipeline's default
            options = {"max_sequence_length": shortest, **options}
    try:
        made: Pipeline = task.make(model, *tokenizers, **options)
    except (AttributeError, TypeError, ValueError) as error:  # an option of the wrong type
        raise ValueError(f"{found.source}: {error}") from error
    return made
