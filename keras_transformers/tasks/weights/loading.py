"""Loads a pipeline from a folder of weights, in any supported format."""

import functools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from keras_transformers.collector import paused_collector
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.weights import FoundWeights, find_weights, local
from keras_transformers.models.anatomy import anatomy
from keras_transformers.options import unknown_option
from keras_transformers.tasks.embedding.head import (
    with_cls_pooling,
    with_last_pooling,
    with_mean_pooling,
)
from keras_transformers.tasks.pipeline import Pipeline
from keras_transformers.tasks.task import Task, all_tasks
from keras_transformers.tasks.weights import adapters, saving
from keras_transformers.tasks.weights.assembly import assemble
from keras_transformers.tasks.weights.heads import for_task

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
    'use long_texts="windows", with window_overlap= and window_pooling=': (
        *("truncation", "stride", "overlap", "sliding_window", "return_overflowing_tokens"),
    ),
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
    "normalized_mean": functools.partial(with_mean_pooling, normalize=True),
    "cls": with_cls_pooling,
    "lasttoken": with_last_pooling,
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
            the vector that it reads: "mean" over the real tokens, "normalized_mean" for the same
            with length 1, "cls" for the first token's, "lasttoken" for the last real token's, or
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
    folder = local(path)
    with paused_collector():
        pipe, new = _load(folder, pipeline, options)
    if adapter is not None:
        stored = adapters.add(pipe, local(adapter).path)
        new = [layer for layer in new if not {x.path for x in layer.weights} <= stored]
    if new:
        _logger.warning(
            "%s: the layers %s for %s are new, with random weights; train them before use",
            folder,
            ", ".join(layer.name for layer in new),
            pipe.task,
        )
    return pipe


def _load(
    folder: Folder, pipeline: str | None, options: dict[str, Any]
) -> tuple[Pipeline, list[keras.layers.Layer]]:
    """Loads a pipeline; also returns its layers whose weights are random."""
    if saving.is_pipeline(folder) and pipeline in (None, saving.task_of(folder)):
        if pipeline is not None or options:
            extra = ", ".join(([] if pipeline is None else ["pipeline"]) + list(options))
            raise ValueError(
                f"{folder} is a saved pipeline, defined by its {saving.PIPELINE}: leave out "
                f"{extra}, or make another pipeline from its `model` and `tokenizer`"
            )
        return saving.load(folder), []
    weights = for_task(find_weights(folder), pipeline)
    task = _task(weights, pipeline)
    for name in options:
        if name not in task.options:
            names = {"path", "pipeline", "adapter", *task.options}
            raise unknown_option("load", name, names, _ADVICE)
    stored = _options(weights, task) if task.name in weights.trained else {}
    fills_head = _has_head(weights, task, stored, options)
    if fills_head:
        if "labels" in stored and "labels" in options:
            _warn_of_order(weights, stored["labels"], options["labels"])
        options = stored | options
    for name in task.needs:
        if name not in options:
            raise ValueError(
                f"{folder} has no head for {task.name}: pass {name}=[...], the names of the "
                "classes, for a new one"
            )
    num_labels = len(options["labels"]) if "labels" in task.needs else 0
    pooling = "pooler"
    if not fills_head:
        pooling, options = _pooling(weights, task, options)

    def head(encoder: keras.Model) -> keras.Model:
        if fills_head and weights.with_head is not None:
            return weights.with_head(encoder)
        return task.head(_POOLINGS[pooling](encoder), weights, num_labels)

    model, new, unused = assemble(weights, head, fills_head=fills_head)
    pipe = _pipeline(weights, task, model, options)
    if unused:
        _logger.warning("%s: %s does not use %s", folder, task.name, ", ".join(unused))
    return pipe, new


def _task(weights: FoundWeights, wanted: str | None) -> Task[Any]:
    """Returns the task to load the weights for; ValueError if they cannot serve it."""
    tasks = all_tasks()
    new = [task.name for task in tasks.values() if task.new_head_on == weights.base]
    headless = [weights.base] if tasks[weights.base].headless else []
    possible = dict.fromkeys([*weights.trained, *new, *headless])
    if weights.serves is not None:
        possible = dict.fromkeys(weights.serves)
    elif weights.as_encoder is not None:
        possible |= dict.fromkeys(weights.as_encoder().serves or ())
    if wanted is None:
        if weights.undecided:
            raise ValueError(f"{weights.source}: {weights.undecided}")
        if weights.trained:
            return tasks[weights.trained[0]]
        what = f"the head of {weights.heads}" if weights.heads else "weights without a head"
        raise ValueError(
            f"{weights.source}: no pipeline here uses {what}: pass pipeline=..., one of "
            f"{', '.join(possible)}, to use the layers below a head"
        )
    if wanted not in tasks:
        loaded = [task.name for task in tasks.values() if not task.made_by]
        raise ValueError(f"pipeline={wanted!r}: use one of {', '.join(loaded)}")
    if made_by := tasks[wanted].made_by:
        raise ValueError(f"pipeline={wanted!r} is not made from weights alone: use {made_by}")
    if wanted not in possible:
        raise ValueError(
            f"pipeline={wanted!r}: {weights.source} can only serve {', '.join(possible)}"
        )
    return tasks[wanted]


def _options(weights: FoundWeights, task: Task[Any]) -> dict[str, Any]:
    """Returns the pipeline's options that the files hold for a trained task."""
    stored = dict(weights.options)
    if weights.head is not None:
        stored |= task.read_options(weights.head.folder)
        if "labels" in task.needs:
            stored["labels"] = weights.head.labels()
        written, options = weights.head.written
        if written == task.name:
            stored |= options
    return {name: stored[name] for name in stored if name != "labels" or "labels" in task.needs}


def _has_head(
    weights: FoundWeights, task: Task[Any], stored: Mapping[str, Any], options: Mapping[str, Any]
) -> bool:
    """Returns whether the weights have the head that the task needs."""
    if task.name not in weights.trained:
        return task.headless and task.name == weights.base
    if "labels" not in stored or "labels" not in options:
        return True
    return len(stored["labels"]) == len(options["labels"])


def _warn_of_order(weights: FoundWeights, stored: Sequence[str], labels: Sequence[str]) -> None:
    """Warns if labels for a trained head are its own in another order, which swaps its answers."""
    if list(stored) != list(labels) and sorted(stored) == sorted(labels):
        _logger.warning(
            "%s: the labels of the trained head are %s, in this order; labels=%s renames them: "
            "leave out labels to keep them",
            weights.source,
            ", ".join(stored),
            list(labels),
        )


def _pooling(
    weights: FoundWeights, task: Task[Any], options: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Returns the pooling for a new head, and the options left for the pipeline."""
    if not task.pooled or weights.base != task.new_head_on:
        return "pooler", options
    pooling = options.get("pooling", weights.options.get("pooling", "pooler"))
    if pooling not in _POOLINGS:
        raise ValueError(f"pooling={pooling!r}: a new head takes one of {', '.join(_POOLINGS)}")
    return pooling, {name: value for name, value in options.items() if name != "pooling"}


def _pipeline(
    weights: FoundWeights, task: Task[Any], model: keras.Model, options: dict[str, Any]
) -> Pipeline:
    """Makes the pipeline; errors name the weights."""
    tokenizers = weights.tokenizers()
    length = task.parameters.get("max_sequence_length")
    if length is not None:
        positions = anatomy(model).trained_length
        limits = [weights.max_sequence_length, positions, length.default]
        shortest = min((limit for limit in limits if limit is not None), default=None)
        if shortest != (length.default or positions):  # which are the pipeline's default
            options = {"max_sequence_length": shortest, **options}
    try:
        pipe: Pipeline = task.make(model, *tokenizers, **options)
    except (AttributeError, TypeError, ValueError) as error:  # an option of the wrong type
        raise ValueError(f"{weights.source}: {error}") from error
    return pipe
