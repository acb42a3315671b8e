"""Checks of every task's pipeline on a family's encoder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import keras_transformers as kt
from keras_transformers import pipelines
from keras_transformers.tasks.pipeline import Pipeline

# Task -> functions that put the head on an encoder, and the pipeline on the head.
TASKS: dict[str, Callable[[keras.Model, Any], Pipeline]] = {
    "classification": lambda encoder, tokenizer: pipelines.TextClassifier(
        kt.heads.classifier(encoder, 3), tokenizer, ["a", "b", "c"], pair=True
    ),
    "regression": lambda encoder, tokenizer: pipelines.TextRegressor(
        kt.heads.regressor(encoder), tokenizer
    ),
    "tagging": lambda encoder, tokenizer: pipelines.Tagger(
        kt.heads.tagger(encoder, 3), tokenizer, ["O", "B-X", "I-X"]
    ),
    "question_answering": lambda encoder, tokenizer: pipelines.QuestionAnswerer(
        kt.heads.span_extractor(encoder),
        tokenizer,
        max_sequence_length=20,
        doc_stride=4,
        max_question_length=6,
    ),
    "fill_mask": lambda encoder, tokenizer: pipelines.MaskFiller(
        kt.heads.masked_lm(encoder), tokenizer, top_k=3
    ),
    "embedding": lambda encoder, tokenizer: pipelines.Embedder(encoder, tokenizer),
}


def slow_but(*fast: str) -> list[Any]:
    """Returns all tasks as a test's parameters; those not in `fast` are slow."""
    return [task if task in fast else pytest.param(task, marks=pytest.mark.slow) for task in TASKS]


def lively(model: keras.Model, seed: int = 3) -> keras.Model:
    """Returns the model with new random matrices, so large that every input matters."""
    generator = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        scale = 0.5 if len(variable.shape) > 1 else 0.1
        variable.assign_add(generator.normal(0.0, scale, variable.shape))
    return model


def texts(pipeline: Pipeline) -> list[list[str]]:
    """Returns a column of texts per input; some are empty, some long, some have masks."""
    mask = getattr(pipeline.tokenizer, "mask_token", "")
    column = ["a good film", "", f"two {mask} run", "very good " * 30]
    return [column, column[::-1]][: len(pipeline.text_names)]


def answers_do_not_depend_on_the_batch(pipeline: Pipeline) -> None:
    """Checks that a row has the same answer alone and in a batch."""
    columns = texts(pipeline)
    together = pipeline(*columns)
    for row, expected in zip(zip(*columns, strict=True), together, strict=True):
        alone = pipeline(*row)
        assert type(alone) is type(expected)
        for name, value in vars(expected).items():
            found = getattr(alone, name)
            if isinstance(value, str) or (isinstance(value, list) and _has_strings(value)):
                assert found == value
            else:
                np.testing.assert_allclose(found, value, atol=1e-5)


def it_comes_back(pipeline: Pipeline, folder: Path) -> None:
    """Checks that the saved and loaded pipeline gives exactly the same answers."""
    pipeline.save(folder / "saved")
    assert kt.load(folder / "saved")(*texts(pipeline)) == pipeline(*texts(pipeline))


def its_export_answers_alike(pipeline: Pipeline, folder: Path) -> None:
    """Checks that the export passes its self-check and repeats the pipeline's rows."""
    version = kt.export(pipeline, folder / "export")
    named = dict(zip(pipeline.text_names, texts(pipeline), strict=True))
    for found, expected in zip(
        kt.saved_model.predict(version, named), pipeline.rows(named), strict=True
    ):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            if isinstance(value, str) or (isinstance(value, list) and _has_strings(value)):
                assert found[name] == value
            else:
                np.testing.assert_allclose(found[name], value, atol=1e-5)


def _has_strings(values: list[Any]) -> bool:
    while isinstance(values, list) and values:
        values = values[0]
    return isinstance(values, str)
