"""PEGASUS against Hugging Face's, with the random models of make_pegasus.py."""

import encoder_decoder_checks as checks
import numpy as np
import pytest

from keras_transformers.families.marian.files import FAMILY as MARIAN
from keras_transformers.families.pegasus.files import FAMILY as PEGASUS
from keras_transformers.layers.embeddings import sinusoids

GOLDEN = checks.Golden(PEGASUS)
NAMES = ("base", "unscaled")
POSITIONS = [f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")]


@pytest.mark.one_case
@pytest.mark.parametrize("name", NAMES)
def test_logits_and_searches_equal_transformers(name, tmp_path):
    checks.outputs_equal_transformers(GOLDEN, name, tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_saving_gives_the_same_files(name, tmp_path):
    checks.saving_gives_the_same_files(GOLDEN, name, tmp_path)


def test_files_may_have_sinusoids_and_lack_the_bias(tmp_path):
    tensors = GOLDEN.tensors("base")
    bias = tensors.pop("final_logits_bias")
    table = sinusoids(30, 16, interleaved=False)
    tensors |= dict.fromkeys(POSITIONS, table)
    model = checks.loaded(PEGASUS, GOLDEN.folder("base", tmp_path, tensors=tensors))
    found = model(GOLDEN.maker.inputs("base"), training=False)["logits"]
    checks.same_logits(found, GOLDEN.outputs("base")["logits"] - bias)


def test_positions_of_other_families_are_refused():
    with pytest.raises(ValueError, match="positions='rotary': expected .* for PEGASUS"):
        PEGASUS.build(
            vocabulary_size=9,
            num_encoder_layers=1,
            num_decoder_layers=1,
            num_heads=2,
            hidden_dim=8,
            intermediate_dim=8,
            positions="rotary",
        )


def test_positions_that_are_not_sinusoids_are_learned(tmp_path):
    """As TensorFlow's class in transformers trained them."""
    table = np.random.default_rng(0).normal(0, 1, (30, 16)).astype("float32")
    tensors = GOLDEN.tensors("base") | dict.fromkeys(POSITIONS, table)
    model = checks.loaded(PEGASUS, GOLDEN.folder("base", tmp_path, tensors=tensors))
    for side in ("source", "target"):
        layer = model.get_layer(f"{side}_position_embedding")
        np.testing.assert_array_equal(layer.embeddings, table)
    PEGASUS.save(model, tmp_path / "copy.safetensors")


def test_weights_that_do_not_fit_are_refused(tmp_path):
    tensors = GOLDEN.tensors("base")
    norm = "model.decoder.layer_norm.bias"
    kept = {name: tensor for name, tensor in tensors.items() if name != norm}
    with pytest.raises(ValueError, match=f"missing from the file: {norm}"):
        checks.loaded(PEGASUS, GOLDEN.folder("base", tmp_path, tensors=kept))
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "num_heads": 2, "hidden_dim": 8}
    other = MARIAN.build(**sizes, vocabulary_size=9, intermediate_dim=8)
    with pytest.raises(ValueError, match="not a PEGASUS: it has no layer encoder_norm"):
        PEGASUS.save(other, tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "bart"}, "model_type is 'bart'; expected 'pegasus'"),
        ({"scale_embedding": 1}, "scale_embedding=1; expected true or false"),
        ({"normalize_before": False}, "normalize_before=False; only True is supported"),
        ({"add_final_layer_norm": False}, "add_final_layer_norm=False; only True is supported"),
        ({"decoder_ffn_dim": 8}, "decoder_ffn_dim=8 and encoder_ffn_dim=24; they must"),
        ({"pad_token_id": 1}, "pad_token_id=1; only 0 is supported"),
        ({"d_model": None}, "has no field 'd_model'"),
    ],
)
def test_a_config_that_cannot_be_built_is_refused(change, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        PEGASUS.read(GOLDEN.folder("base", tmp_path, **change))


@pytest.mark.reference
@pytest.mark.parametrize("name", NAMES)
def test_against_transformers_live(name, tmp_path):
    checks.the_frozen_outputs_are_transformers_own(GOLDEN, name)
    checks.transformers_and_we_read_what_the_other_writes(GOLDEN, name, tmp_path)
