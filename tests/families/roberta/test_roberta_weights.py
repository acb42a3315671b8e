"""Loads and saves RoBERTa's weights, against transformers."""

import json

import family_checks
import numpy as np
import pytest
import roberta_toy
from family_checks import ALL_TASKS, FamilyFiles
from safetensors.numpy import save_file

import keras_transformers as kt
from keras_transformers.families.roberta.files import FAMILY as ROBERTA
from keras_transformers.families.roberta.model import roberta

SHAPE = {
    "vocabulary_size": 50,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 24,
    "max_sequence_length": 20,
}
CONFIG = {
    "model_type": "roberta",
    "vocab_size": 50,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "hidden_size": 16,
    "intermediate_size": 24,
    "max_position_embeddings": 22,
    "type_vocab_size": 1,
    "pad_token_id": 1,
    "hidden_act": "gelu",
}
FAMILY = FamilyFiles(
    "roberta",
    lambda task: roberta(**SHAPE),
    kt.convert.load_weights,
    ROBERTA.save,
    {"masked_lm": {"norm_epsilon": 1e-5}},
    without_pooler=("masked_lm", "classifier", "regressor", "tagger", "span_extractor"),
)


@pytest.mark.parametrize("task", ALL_TASKS)
def test_outputs_equal_transformers(task, tmp_path):
    family_checks.outputs_equal_transformers(FAMILY, task, tmp_path)


def test_padding_may_be_on_the_left(tmp_path):
    family_checks.padding_on_the_left_is_as_on_the_right(FAMILY, tmp_path)


@pytest.mark.parametrize("task", ALL_TASKS)
def test_saving_gives_the_same_tensors(task, tmp_path):
    family_checks.saving_gives_the_same_tensors(FAMILY, task, tmp_path)


@pytest.mark.reference
@pytest.mark.parametrize("task", ALL_TASKS)
def test_against_transformers_live(task, tmp_path):
    family_checks.the_frozen_outputs_are_transformers_own(FAMILY, task)
    family_checks.transformers_reads_what_we_write(FAMILY, task, tmp_path)


def test_the_labels_of_a_head_are_written(tmp_path):
    save = ROBERTA.save_config
    family_checks.the_labels_of_a_head_are_written(roberta(**SHAPE), save, tmp_path)


def test_a_config_comes_back(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    found = ROBERTA.read(tmp_path)
    assert SHAPE.items() <= found.items()
    ROBERTA.save_config(roberta(**found), tmp_path / "copy.json")
    assert ROBERTA.read(tmp_path / "copy.json") == found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "bert"}, "model_type is 'bert'"),
        ({"position_embedding_type": "relative_key"}, "only 'absolute' is supported"),
        ({"type_vocab_size": 2}, "type_vocab_size=2; only 1 is supported"),
        ({"pad_token_id": 0}, "pad_token_id=0; only 1 is supported"),
        ({"max_position_embeddings": 2}, "max_position_embeddings=2; expected an integer from 3"),
        ({"max_position_embeddings": "x"}, "max_position_embeddings='x'; expected an integer"),
        ({"hidden_act": "elu"}, "hidden_act='elu'; expected one of gelu"),
        ({"hidden_size": None}, "has no field 'hidden_size'"),
        ({"max_position_embeddings": 2}, "=2; expected an integer from 3"),
    ],
)
def test_a_config_that_cannot_be_built_is_refused(change, message, tmp_path):
    config = {key: value for key, value in (CONFIG | change).items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        ROBERTA.read(tmp_path)


def test_a_folder_of_a_masked_language_model_is_an_encoder(tmp_path):
    folder = tmp_path / "roberta"
    size = {"vocabulary_size": roberta_toy.tokenizer(folder).vocabulary_size}
    written = roberta(**(SHAPE | size))
    ROBERTA.save_config(written, folder / "config.json")
    ROBERTA.save(kt.heads.masked_lm(written), folder / "model.safetensors")
    loaded, tokenizer = kt.convert.load_encoder(weights=folder)
    assert tokenizer.mask_token == "<mask>"
    inputs = tokenizer(["a film", "two dogs run"], max_sequence_length=12)
    np.testing.assert_array_equal(
        np.asarray(loaded(inputs)["sequence_output"]),
        np.asarray(written(inputs)["sequence_output"]),
    )


def test_a_tied_copy_that_differs_is_refused(tmp_path):
    tensors = FAMILY.tensors("masked_lm")
    tensors["lm_head.decoder.bias"] = tensors["lm_head.bias"] + 1
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="differs from lm_head.bias"):
        kt.convert.load_weights(kt.heads.masked_lm(roberta(**SHAPE)), tmp_path)
