"""Loads and saves MPNet's weights, against transformers."""

import json

import family_checks
import numpy as np
import pytest
from family_checks import ALL_TASKS, FamilyFiles
from safetensors.numpy import save_file

import keras_transformers as kt
from keras_transformers.families.mpnet.files import FAMILY as MPNET
from keras_transformers.families.mpnet.model import mpnet
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
    "model_type": "mpnet",
    "vocab_size": 50,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "hidden_size": 16,
    "intermediate_size": 24,
    "max_position_embeddings": 22,
    "relative_attention_num_buckets": 32,
    "hidden_act": "gelu",
}
FAMILY = FamilyFiles(
    "mpnet",
    lambda task: mpnet(**SHAPE, norm_epsilon=1e-5),
    kt.convert.load_weights,
    MPNET.save,
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


def test_a_config_comes_back(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    found = MPNET.read(tmp_path)
    assert SHAPE.items() <= found.items()
    MPNET.save_config(mpnet(**found), tmp_path / "copy.json")
    assert MPNET.read(tmp_path / "copy.json") == found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "bert"}, "model_type is 'bert'"),
        (
            {"relative_attention_num_buckets": 64},
            "relative_attention_num_buckets=64; only 32 is supported",
        ),
        ({"pad_token_id": 0}, "pad_token_id=0; only 1 is supported"),
        ({"max_position_embeddings": 2}, "max_position_embeddings=2; expected an integer from 3"),
        ({"max_position_embeddings": "x"}, "max_position_embeddings='x'; expected an integer"),
        ({"hidden_act": "elu"}, "hidden_act='elu'; expected one of gelu"),
        ({"hidden_size": None}, "has no field 'hidden_size'"),
    ],
)
def test_a_config_that_cannot_be_built_is_refused(change, message, tmp_path):
    config = {key: value for key, value in (CONFIG | change).items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        MPNET.read(tmp_path)


def write_folder(folder, tensors):
    """A folder as transformers writes it, with the weights of a task."""
    (folder / "config.json").write_text(json.dumps(CONFIG | {"layer_norm_eps": 1e-5}))
    special = ["<s>", "<pad>", "</s>", "<unk>", "[UNK]"]
    tokens = [*special, *(f"w{number}" for number in range(44)), "<mask>"]
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize("task", ["encoder", "masked_lm"])
def test_a_folder_is_an_encoder(task, tmp_path):
    """With or without a pooler, and with the positions' numbers that older versions saved."""
    numbers = np.arange(22)[None]
    name = "embeddings.position_ids" if task == "encoder" else "mpnet.embeddings.position_ids"
    write_folder(tmp_path, FAMILY.tensors(task) | {name: numbers})
    loaded, tokenizer = kt.convert.load_encoder(weights=tmp_path)
    assert tokenizer.mask_token == "<mask>"
    assert set(loaded.input) == set(tokenizer(["w1"], max_sequence_length=8))
    inputs = FAMILY.maker.inputs("encoder")
    found = np.asarray(loaded(inputs)["sequence_output"])[inputs["padding_mask"]]
    wanted = FAMILY.golden["encoder/sequence_output"][inputs["padding_mask"]]
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_what_does_not_fit_is_listed(tmp_path):
    tensors = FAMILY.tensors("encoder")
    bias = "encoder.relative_attention_bias.weight"
    del tensors["embeddings.LayerNorm.bias"]
    write_folder(tmp_path, tensors | {bias: tensors[bias][:, :1], "encoder.extra": np.zeros(3)})
    model = mpnet(**SHAPE)
    before = model.get_weights()
    with pytest.raises(ValueError, match="does not fit the model") as error:
        kt.convert.load_weights(model, tmp_path)
    for part in (
        "missing from the file: mpnet.embeddings.LayerNorm.bias",
        r"mpnet.encoder.relative_attention_bias.weight is (32, 1)",
        "not used (name them in `ignore` to leave them out): mpnet.encoder.extra",
    ):
        assert part in str(error.value)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_another_family_is_not_written_as_mpnet(tmp_path):
    with pytest.raises(ValueError, match="relative_position_bias"):
        MPNET.save_config(roberta(**SHAPE), tmp_path / "config.json")


def test_a_tied_copy_that_differs_is_refused(tmp_path):
    tensors = FAMILY.tensors("masked_lm")
    tensors["lm_head.decoder.bias"] = tensors["lm_head.bias"] + 1
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="differs from lm_head.bias"):
        kt.convert.load_weights(kt.heads.masked_lm(mpnet(**SHAPE)), tmp_path)
