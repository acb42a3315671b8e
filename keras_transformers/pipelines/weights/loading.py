"""One door for weights: a folder in, the pipeline that its weights were trained for out."""

import functools
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert.families import without_pooler
from keras_transformers.convert.formats import hub
from keras_transformers.convert.formats.checkpoints import (
    Checkpoint,
    is_checkpoint,
    open_checkpoint,
)
from keras_transformers.models import heads
from keras_transformers.pipelines.base import Pipeline
from keras_transformers.pipelines.classification import TextClassifier
from keras_transformers.pipelines.embedding import Embedder
from keras_transformers.pipelines.generation import TextGenerator
from keras_transformers.pipelines.images import ImageClassifier, ImageDecoder
from keras_transformers.pipelines.masked_words import MaskFiller
from keras_transformers.pipelines.multiple_choice import MultipleChoice
from keras_transformers.pipelines.next_sentence import NextSentenceClassifier
from keras_transformers.pipelines.question_answering import QuestionAnswerer
from keras_transformers.pipelines.regression import TextRegressor
from keras_transformers.pipelines.tagging import Tagger
from keras_transformers.pipelines.token_inputs import num_positions, part
from keras_transformers.pipelines.translation import Translator
from keras_transformers.pipelines.weights import saving
from keras_transformers.pipelines.word_vectors import WordEmbedder

__all__ = ["load"]

_logger = logging.getLogger(__name__)

_PIPELINES: dict[str, Callable[..., Pipeline]] = {
    "classification": TextClassifier,
    "embedding": Embedder,
    "fill_mask": MaskFiller,
    "generation": TextGenerator,
    "image_classification": ImageClassifier,
    "multiple_choice": MultipleChoice,
    "next_sentence": NextSentenceClassifier,
    "question_answering": QuestionAnswerer,
    "regression": TextRegressor,
    "replaced_tokens": functools.partial(Tagger, labels=["original", "replaced"]),
    "tagging": Tagger,
    "translation": Translator,
    "word_embedding": WordEmbedder,
}
# The task that a model without a head serves -> the tasks that a new head on it can serve.
_NEW_HEADS: dict[str, tuple[str, ...]] = {
    "embedding": (
        *("classification", "fill_mask", "multiple_choice", "question_answering", "regression"),
        "tagging",
    ),
    "generation": (),
    "image_classification": ("image_classification",),
    "translation": (),
    "word_embedding": (),
}
# Their heads read the pooler's output.
_POOLED = ("classification", "multiple_choice", "next_sentence", "regression")
_LABELLED = ("classification", "image_classification", "tagging")
_QUESTION_LENGTH = 384  # QuestionAnswerer's default


def load(path: str | os.PathLike[str], *, pipeline: str | None = None, **options: Any) -> Any:
    """Loads the pipeline that a folder of weights was trained for.

    The folder may be one that `Pipeline.save` wrote, which comes back bit for bit, or other
    people's: docs/weights.md lists the formats and the pipeline that each becomes. Every weight
    is used or named in a warning; if one is missing or does not fit, loading fails. Nothing in a
    folder is executed, and pickles are refused.

    Args:
        path: the folder, the file where the format is one file, or "hf://organization/name@commit"
            for a model of the Hugging Face Hub (see `convert.fetch`).
        pipeline: the task of the pipeline to return, such as "classification" or "embedding",
            instead of the one that the weights were trained for. If the weights have no head for
            it, or one for another number of labels, it gets a new one with random weights to train.
        **options: the pipeline's keyword arguments, such as `labels` for a new classifier, `pair`
            or `max_sequence_length`.

    Returns:
        The pipeline. Its `model` can be trained further.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, of an unknown format, or asks for something that is not
            supported here; weights are missing, left over or of another shape (the message lists
            them all); or `pipeline` or `options` do not fit the weights.

    Example:
        classify = kt.load("sst2-bert/")
        embed = kt.load("all-MiniLM-L6-v2/")
        new = kt.load("bert-base-uncased/", pipeline="classification", labels=["bad", "good"])
    """
    given = os.fspath(path)
    path = hub.fetch(given) if given.startswith(hub.PREFIX) else Path(given)
    if saving.is_pipeline(path):
        if pipeline is not None or options:
            extra = ", ".join(([] if pipeline is None else ["pipeline"]) + list(options))
            raise ValueError(
                f"{path} is a saved pipeline, whose {saving.PIPELINE} says what it is: leave out "
                f"{extra}, or make another pipeline of its `model` and `tokenizer`"
            )
        return saving.load(path)
    checkpoint = open_checkpoint(path)
    task = _task(checkpoint, pipeline)
    has_head = _has_head(checkpoint, task, options)
    if has_head and task in checkpoint.trained:
        options = {**checkpoint.options, **options}
    if task in _LABELLED and "labels" not in options:
        raise ValueError(
            f"{path} has no head for {task}: give labels=[...], the names of the classes, for a "
            "new one"
        )
    labels = len(options["labels"]) if task in _LABELLED else 0
    model = checkpoint.build()
    if has_head:
        model = _with_head(model, task, checkpoint, labels)
        left_out = checkpoint.fill(model, checkpoint.parts)
        new: list[str] = []
    else:
        uses_pooler = task in _POOLED and checkpoint.has_pooler
        filled = model if uses_pooler or checkpoint.base != "embedding" else without_pooler(model)
        left_out = checkpoint.fill(filled, checkpoint.parts)
        known = {layer.name for layer in filled.layers}
        model = _with_head(model, task, checkpoint, labels)
        new = [layer.name for layer in model.layers if layer.weights and layer.name not in known]
    made = _made(checkpoint, task, model, options)
    if left_out:
        _logger.warning("%s: %s does not use %s", path, task, ", ".join(left_out))
    if new:
        _logger.warning(
            "%s: the layers %s for %s are new, with random weights: train them",
            path,
            ", ".join(new),
            task,
        )
    return made


def can_load(path: str | os.PathLike[str]) -> bool:
    """Returns whether a path is a saved pipeline, weights in a known format, or on the Hub."""
    given = os.fspath(path)
    if given.startswith(hub.PREFIX):
        return True
    return saving.is_pipeline(given) or is_checkpoint(Path(given))


def _task(checkpoint: Checkpoint, wanted: str | None) -> str:
    """Returns the task to load for; ValueError if the weights cannot serve it."""
    possible = dict.fromkeys([*checkpoint.trained, *_NEW_HEADS[checkpoint.base]])
    if checkpoint.base != "image_classification":
        possible[checkpoint.base] = None
    if wanted is None:
        if checkpoint.trained:
            return checkpoint.trained[0]
        what = f"the head of {checkpoint.heads}" if checkpoint.heads else "weights without a head"
        raise ValueError(
            f"{checkpoint.source}: no pipeline here uses {what}: give pipeline=..., one of "
            f"{', '.join(possible)}, to use the layers below a head"
        )
    if wanted not in _PIPELINES:
        raise ValueError(f"pipeline={wanted!r}: take one of {', '.join(_PIPELINES)}")
    if wanted not in possible:
        raise ValueError(
            f"pipeline={wanted!r}: {checkpoint.source} can only serve {', '.join(possible)}"
        )
    return wanted


def _has_head(checkpoint: Checkpoint, task: str, options: Mapping[str, Any]) -> bool:
    """Returns whether the weights have what the task needs."""
    if task not in checkpoint.trained:
        return task == checkpoint.base != "image_classification"
    own, given = checkpoint.options.get("labels"), options.get("labels")
    return own is None or given is None or len(own) == len(given)


def _with_head(
    encoder: keras.Model, task: str, checkpoint: Checkpoint, num_labels: int
) -> keras.Model:
    if task in ("classification", "image_classification"):
        return heads.classifier(encoder, num_labels)
    if task == "regression":
        return heads.regressor(encoder)
    if task == "multiple_choice":
        return heads.multiple_choice(encoder)
    if task == "tagging":
        return heads.tagger(encoder, num_labels)
    if task == "question_answering":
        return heads.span_extractor(encoder)
    if task == "replaced_tokens":
        return heads.replaced_token_tagger(heads.replaced_token_detector(encoder))
    if task == "next_sentence" and "fill_mask" not in checkpoint.trained:
        return part(heads.pretrainer(encoder), ("next_sentence_logits",))
    if task in ("fill_mask", "next_sentence"):
        both = "next_sentence" in checkpoint.trained
        return (heads.pretrainer if both else heads.masked_lm)(encoder, **checkpoint.masked_lm)
    return without_pooler(encoder) if task == "embedding" else encoder


def _made(
    checkpoint: Checkpoint, task: str, model: keras.Model, options: dict[str, Any]
) -> Pipeline:
    """Makes the pipeline; an error names the weights that it is for."""
    parts: list[Any] = [model, *checkpoint.tokenizers()]
    if task not in ("generation", "image_classification"):
        options = {**_length(checkpoint, task, model), **options}
    try:
        if task == "image_classification":
            height, width, channels = model.input["images"].shape[1:]
            limits = {name: options.pop(name) for name in ("max_pixels",) if name in options}
            decoder = options.pop("decoder", None)
            parts.append(decoder or ImageDecoder((height, width), channels, **limits))
        return _PIPELINES[task](*parts, **options)
    except (AttributeError, TypeError, ValueError) as error:  # an option of the wrong kind
        raise ValueError(f"{checkpoint.source}: {error}") from error


def _length(checkpoint: Checkpoint, task: str, model: keras.Model) -> dict[str, int]:
    """Returns the length to pack to if it is not the pipeline's default."""
    limits = [checkpoint.max_sequence_length, num_positions(model)]
    if task == "question_answering":
        limits.append(_QUESTION_LENGTH)
    shortest = min((limit for limit in limits if limit is not None), default=None)
    return {} if shortest is None else {"max_sequence_length": shortest}
