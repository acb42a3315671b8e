"""Loads and saves DistilBERT's weights, against transformers."""

import json

import family_checks
import numpy as np
import pytest
from family_checks import ALL_TASKS, FamilyFiles
from safetensors.numpy import save_file

import keras_transformers as kt
from keras_transformers.families.distilbert.files import FAMILY as DISTILBERT
from keras_transformers.families.distilbert.model import distilbert, with_pooler

SHAPE = {
    "vocabulary_size": 50,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 24,
    "max_sequence_length": 20,
}
CONFIG = {
    "model_type": "distilbert",
    "vocab_size": 50,
    "n_layers": 2,
    "n_heads": 2,
    "dim": 16,
    "hidden_dim": 24,
    "max_position_embeddings": 20,
    "activation": "gelu",
}


def encoder(task):
    model = distilbert(**SHAPE)
    return with_pooler(model) if task in ("classifier", "regressor", "multiple_choice") else model


FAMILY = FamilyFiles("distilbert", encoder, kt.convert.load_weights, DISTILBERT.save, {})


@pytest.mark.parametrize("task", ALL_TASKS)
def test_outputs_equal_transformers(task, tmp_path):
    family_checks.outputs_equal_transformers(FAMILY, task, tmp_path)


@pytest.mark.parametrize("task", ALL_TASKS)
def test_saving_gives_the_same_tensors(task, tmp_path):
    family_checks.saving_gives_the_same_tensors(FAMILY, task, tmp_path)


@pytest.mark.reference
@pytest.mark.parametrize("task", ALL_TASKS)
def test_against_transformers_live(task, tmp_path):
    family_checks.the_frozen_outputs_are_transformers_own(FAMILY, task)
    family_checks.transformers_reads_what_we_write(FAMILY, task, tmp_path)


def test_the_labels_of_a_head_are_written(tmp_path):
    save = DISTILBERT.save_config
    family_checks.the_labels_of_a_head_are_written(with_pooler(distilbert(**SHAPE)), save, tmp_path)


def test_a_config_comes_back(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    found = DISTILBERT.read(tmp_path)
    assert SHAPE.items() <= found.items()
    DISTILBERT.save_config(distilbert(**found), tmp_path / "copy.json")
    assert DISTILBERT.read(tmp_path / "copy.json") == found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "bert"}, "model_type is 'bert'"),
        ({"activation": "elu"}, "activation='elu'; expected one of gelu"),
        ({"dim": None}, "has no field 'dim'"),
    ],
)
def test_a_config_that_cannot_be_built_is_refused(change, message, tmp_path):
    config = {key: value for key, value in (CONFIG | change).items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        DISTILBERT.read(tmp_path)


def test_a_folder_is_an_encoder_with_a_new_pooler(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(45))]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n")
    save_file(FAMILY.tensors("masked_lm"), tmp_path / "model.safetensors")
    loaded, tokenizer = kt.convert.load_encoder(weights=tmp_path)
    assert set(loaded.output) == {"sequence_output", "pooled_output"}
    assert set(loaded.input) == {"token_ids", "padding_mask"}
    inputs = FAMILY.maker.inputs("encoder")
    found = np.asarray(loaded(inputs)["sequence_output"])[inputs["padding_mask"]]
    wanted = FAMILY.golden["encoder/sequence_output"][inputs["padding_mask"]]
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert tokenizer.vocabulary_size == 50


def test_a_tied_copy_that_differs_is_refused(tmp_path):
    tensors = FAMILY.tensors("masked_lm")
    tensors["vocab_projector.weight"] = tensors["vocab_projector.weight"] + 1
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="differs from distilbert.embeddings.word_embeddings"):
        kt.convert.load_weights(kt.heads.masked_lm(distilbert(**SHAPE)), tmp_path)
