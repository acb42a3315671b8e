"""Hugging Face's activations: what each name means, and that a folder may use it."""

import json
import runpy
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_transformers as kt
from keras_transformers.convert.config_map import ACTIVATIONS
from keras_transformers.families.bert.model import bert
from keras_transformers.layers.dense import activation_function

GOLDEN = Path(__file__).parents[1] / "golden"
FROZEN = json.loads((GOLDEN / "activations.json").read_text())
SHAPE = {
    "vocabulary_size": 20,
    "num_layers": 1,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 12,
    "max_sequence_length": 10,
}


def test_every_activation_of_transformers_without_weights_is_known():
    assert ACTIVATIONS.keys() == FROZEN["outputs"].keys()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_equals_transformers(name):
    function = activation_function(ACTIVATIONS[name])
    found = np.asarray(function(np.asarray(FROZEN["inputs"], "float32")))
    np.testing.assert_allclose(found, FROZEN["outputs"][name], rtol=1e-6, atol=1e-6)


@pytest.mark.one_case
@pytest.mark.parametrize("name", sorted(set(ACTIVATIONS.values())))
def test_a_model_with_it_is_written_and_read_and_saved(name, tmp_path):
    model = kt.heads.masked_lm(bert(**SHAPE, activation=name), activation=name)
    kt.families.bert.FAMILY.save_config(model, tmp_path / "config.json")
    assert kt.families.bert.FAMILY.read(tmp_path)["activation"] == name
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    inputs = {
        "token_ids": np.arange(6)[None],
        "segment_ids": np.zeros((1, 6), "int32"),
        "padding_mask": np.ones((1, 6), bool),
        "mask_positions": np.array([[1, 2]]),
    }
    np.testing.assert_array_equal(again(inputs)["mask_logits"], model(inputs)["mask_logits"])


@pytest.mark.parametrize(
    ("field", "wanted", "gated"),
    [
        ("gelu", "gelu", False),
        ("gated-gelu", "gelu_approximate", True),
        ("gated-gelu_python", "gelu", True),
        ("gated-quick_gelu", "quick_gelu", True),
        ("swish", "silu", False),
    ],
)
def test_a_t5s_activation_may_be_gated(field, wanted, gated, tmp_path):
    sizes = {"vocab_size": 9, "num_layers": 1, "num_heads": 2, "d_model": 8, "d_ff": 8, "d_kv": 4}
    config = {"model_type": "t5", **sizes, "feed_forward_proj": field}
    (tmp_path / "config.json").write_text(json.dumps(config))
    arguments = kt.convert.t5.FAMILY.read(tmp_path)
    assert (arguments["activation"], arguments["gated_feed_forward"]) == (wanted, gated)


@pytest.mark.parametrize("name", ["prelu", "elu", "GELU", None, 3])
def test_an_unknown_one_is_refused_with_those_that_are_known(name, tmp_path):
    kt.families.bert.FAMILY.save_config(bert(**SHAPE), tmp_path / "config.json")
    config = json.loads((tmp_path / "config.json").read_text()) | {"hidden_act": name}
    (tmp_path / "config.json").write_text(json.dumps(config))
    known = ", ".join(sorted(ACTIVATIONS))
    with pytest.raises(
        ValueError, match=rf"config.json: hidden_act={name!r}; expected one of {known}"
    ):
        kt.families.bert.FAMILY.read(tmp_path)


@pytest.mark.reference
def test_the_frozen_values_are_transformers_own():
    found = runpy.run_path(str(GOLDEN / "make_activations.py"))["outputs"]()
    assert found.keys() == FROZEN["outputs"].keys()
    for name, values in found.items():
        np.testing.assert_allclose(
            values, FROZEN["outputs"][name], rtol=1e-6, atol=1e-6, err_msg=name
        )
