"""`kt.save` in Hugging Face's layout: the same pipeline comes back, and transformers reads it."""

import json
import os

import numpy as np
import pytest
import tiny
import weights_folders
from weights_folders import ENCODERS, LABELS

import keras_transformers as kt
from keras_transformers.models.gpt import gpt

TASKS = ("classification", "embedding", "fill_mask", "question_answering", "regression", "tagging")
OTHERS = ("next_sentence", "generation", "image_classification")
QUICK = {
    "bert": "classification",
    "distilbert": "tagging",
    "mpnet": "question_answering",
    "roberta": "embedding",
    "xlm-roberta": "fill_mask",
}
ENCODER_PIPELINES = [
    pytest.param(family, task, marks=() if QUICK[family] == task else pytest.mark.slow)
    for family in ENCODERS
    for task in TASKS
]


def pipeline(family, task, folder):
    """A tiny one, whose options are not the defaults."""
    if family == "openai-gpt":
        made = tiny.pipeline("generation")
        first = gpt(
            vocabulary_size=made.tokenizer.vocabulary_size, norm_position="post",
            num_layers=1, num_heads=2, hidden_dim=16, max_sequence_length=24,
        )  # fmt: skip
        return kt.pipelines.TextGenerator(tiny.lively(first), made.tokenizer, top_k=3)
    if family not in ENCODERS:
        return tiny.pipeline(task)
    made = weights_folders.pipeline(family, task, folder / "vocabulary")
    changes = {
        "classification": {"pair": True, "max_sequence_length": 9},
        "embedding": {"max_sequence_length": 7},
        "fill_mask": {"top_k": 2},
        "question_answering": {"no_answer_threshold": 0.5, "offset_unit": "byte"},
        "tagging": {"max_sequence_length": 8},
    }.get(task, {})
    return type(made).restore(made.model, made.tokenizers, **made.config() | changes)


def same_pipelines(one, other):
    """They have the same type, options, vocabularies and, bit for bit, weights."""
    assert type(one) is type(other)
    assert one.config() == other.config()
    for found, wanted in zip(one.tokenizers.values(), other.tokenizers.values(), strict=True):
        assert found.config() == wanted.config()
        assert list(found.vocabulary) == list(wanted.vocabulary)
    found, wanted = ({v.path: np.asarray(v) for v in p.model.weights} for p in (one, other))
    assert found.keys() == wanted.keys()
    for path, array in wanted.items():
        np.testing.assert_array_equal(found[path], array, err_msg=path)


@pytest.mark.parametrize(("family", "task"), [*ENCODER_PIPELINES, *(("", x) for x in OTHERS)])
def test_the_same_pipeline_comes_back(family, task, tmp_path, caplog):
    made = pipeline(family, task, tmp_path)
    assert kt.save(made, tmp_path / "hf", format="huggingface") == tmp_path / "hf"
    same_pipelines(kt.load(tmp_path / "hf"), made)
    assert not caplog.records  # nothing is left out, and nothing is new
    assert (tmp_path / "hf/modules.json").exists() == (task == "embedding")
