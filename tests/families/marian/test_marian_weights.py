"""Marian against Hugging Face's, with the random model of make_marian.py."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

import keras_transformers as kt
from keras_transformers.decoding import beam_search
from keras_transformers.families.marian.files import FAMILY as MARIAN
from keras_transformers.families.marian.model import marian
from keras_transformers.families.transformer.model import transformer
from keras_transformers.layers.embeddings import sinusoids

FAMILIES = Path(__file__).parents[2] / "golden" / "families"
GOLDEN = np.load(FAMILIES / "marian.npz")
MAKER = runpy.run_path(str(FAMILIES / "make_marian.py"))
INPUTS = MAKER["inputs"]()
PAD = MAKER["PAD"]
SEARCHES = {
    "greedy": {"num_beams": 1},
    "beams": {"num_beams": 3, "length_penalty": 0.0},
    "defaults": {"num_beams": 3, "rules": "transformers"},
}
CONFIG = {"model_type": "marian", **MAKER["CONFIG"]}
TENSORS = {
    name.removeprefix("tensors/"): GOLDEN[name]
    for name in GOLDEN.files
    if name.startswith("tensors/")
}

POSITIONS = MAKER["positions"]()
SINUSOIDS = sinusoids(30, 16, interleaved=False)


def folder_of(folder, tensors=TENSORS, **changes):
    """A folder as transformers writes it; a change to None removes the field."""
    config = {key: value for key, value in (CONFIG | changes).items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """The model with transformers' weights; do not change it."""
    folder = folder_of(tmp_path_factory.mktemp("marian"))
    model = marian(**MARIAN.read(folder))
    kt.convert.load_weights(model, folder)
    return model


def same_logits(logits, wanted):
    """Equal but for padding, whose logit is near -10,000."""
    logits, wanted = (np.asarray(array)[..., :PAD] for array in (logits, wanted))
    np.testing.assert_allclose(logits, wanted, atol=1e-5 * np.abs(wanted).max())
    assert np.ptp(wanted) > 1


def test_logits_equal_transformers(loaded):
    same_logits(loaded(INPUTS, training=False)["logits"], GOLDEN["logits"])


@pytest.mark.one_case
@pytest.mark.parametrize("name", SEARCHES)
def test_searches_find_the_tokens_of_transformers(loaded, name):
    @tf.function(autograph=False)
    def search(sources):
        step, cache = loaded.start_decoding(sources)
        return beam_search(
            step,
            tf.fill([tf.shape(sources)[0]], PAD),
            cache,
            end_token_id=0,
            max_length=MAKER["MAX_LENGTH"],
            pad_token_id=PAD,
            growing_axis=2,
            **SEARCHES[name],
        ).token_ids[:, 0]

    np.testing.assert_array_equal(search(INPUTS["source_token_ids"]), GOLDEN[name])
    assert (GOLDEN["greedy"] != GOLDEN["beams"]).any()


def test_saving_gives_the_same_tensors(loaded, tmp_path):
    MARIAN.save(loaded, tmp_path / "copy.safetensors")
    found = load_file(tmp_path / "copy.safetensors")
    assert set(found) == set(TENSORS)
    for name, tensor in TENSORS.items():
        np.testing.assert_array_equal(found[name], tensor, err_msg=name)


def test_a_config_comes_back(loaded, tmp_path):
    arguments = MARIAN.read(folder_of(tmp_path))
    assert (arguments["activation"], arguments["pad_token_id"]) == ("silu", PAD)
    MARIAN.save_config(loaded, tmp_path / "config.json")
    assert MARIAN.read(tmp_path) == arguments
    written = json.loads((tmp_path / "config.json").read_text())
    wanted = {key: value for key, value in CONFIG.items() if value is not None}
    assert wanted.items() <= written.items()


def test_copies_and_sinusoids_in_the_file(loaded, tmp_path):
    shared = TENSORS["model.shared.weight"]
    names = ("model.encoder.embed_tokens.weight", "lm_head.weight")
    more = dict.fromkeys(names, shared)
    more["model.decoder.embed_positions.weight"] = SINUSOIDS
    more["model.encoder.embed_positions.weight"] = SINUSOIDS.astype("float16")
    model = marian(**MARIAN.read(folder_of(tmp_path, TENSORS | more)))
    kt.convert.load_weights(model, tmp_path)
    for one, other in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    folder_of(tmp_path, TENSORS | {"lm_head.weight": shared + 1})
    with pytest.raises(ValueError, match=r"lm_head.weight.*model.shared.weight,"):
        kt.convert.load_weights(model, tmp_path)
    kept = {name: tensor for name, tensor in TENSORS.items() if "final_logits" not in name}
    folder_of(tmp_path, kept | {"more": shared})
    with pytest.raises(ValueError, match="missing from the file: final_logits_bias.* used .*more"):
        kt.convert.load_weights(model, tmp_path)


def test_positions_that_are_not_sinusoids_are_loaded_and_saved(tmp_path):
    folder = folder_of(tmp_path, TENSORS | POSITIONS)
    model = MARIAN.build(**MARIAN.read(folder))
    MARIAN.fill(model, folder)
    same_logits(model(INPUTS, training=False)["logits"], GOLDEN["moved_logits"])
    MARIAN.save(model, tmp_path / "model.safetensors")
    again = load_file(tmp_path / "model.safetensors")
    for name, tensor in POSITIONS.items():
        np.testing.assert_array_equal(again[name], tensor, err_msg=name)
    with pytest.raises(ValueError, match=r"embed_positions.weight has other values.*='learned'"):
        kt.convert.load_weights(marian(**MARIAN.fields.read(folder)), folder)


def test_a_file_with_one_sides_positions_means_sinusoids_on_the_other(tmp_path):
    name = "model.decoder.embed_positions.weight"
    folder = folder_of(tmp_path, TENSORS | {name: POSITIONS[name]})
    model = MARIAN.build(**MARIAN.read(folder))
    MARIAN.fill(model, folder)
    sides = [model.get_layer(f"{side}_position_embedding") for side in ("source", "target")]
    for side, wanted in zip(sides, (SINUSOIDS, POSITIONS[name]), strict=True):
        np.testing.assert_array_equal(side.embeddings, wanted)


def test_positions_of_another_shape_are_refused(tmp_path):
    name = "model.decoder.embed_positions.weight"
    folder = folder_of(tmp_path, TENSORS | {name: POSITIONS[name][:20]})
    with pytest.raises(ValueError, match=r"of another shape: .*embed_positions.weight is .20, 16."):
        MARIAN.fill(MARIAN.build(**MARIAN.read(folder)), folder)
    with pytest.raises(ValueError, match=r"positions='positions': expected 'sinusoidal_hal"):
        marian(**MARIAN.fields.read(folder), positions="positions")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "bart"}, "model_type is 'bart'; expected 'marian'"),
        ({"scale_embedding": None}, "scale_embedding must be true"),
        ({"normalize_before": True}, "normalize_before=True; only False is supported"),
        ({"decoder_ffn_dim": 8}, "decoder_ffn_dim=8 .*encoder_ffn_dim=24"),
        ({"decoder_start_token_id": 1}, "decoder_start_token_id=1 and pad_token_id=39; they must"),
        ({"activation_function": "elu"}, "activation_function='elu'; expected one of gelu"),
        ({"d_model": None}, "has no field 'd_model'"),
    ],
)
def test_a_config_that_cannot_be_built_is_refused(change, message, tmp_path):
    folder_of(tmp_path, **change)
    with pytest.raises(ValueError, match=message):
        MARIAN.read(tmp_path)


def test_what_is_no_marian_is_refused(tmp_path):
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "num_heads": 2}
    other = transformer(
        vocabulary_size=9, hidden_dim=4, intermediate_dim=4, use_output_bias=True, **sizes
    )
    with pytest.raises(ValueError, match="target_position_embedding.interleaved"):
        MARIAN.save(other, tmp_path / "model.safetensors")
    other = transformer(vocabulary_size=9, hidden_dim=4, intermediate_dim=4, **sizes)
    with pytest.raises(ValueError, match="'transformer'"):
        MARIAN.save_config(other, tmp_path / "config.json")


@pytest.mark.reference
def test_the_frozen_outputs_are_transformers_own():
    for key, value in MAKER["outputs"]().items():
        np.testing.assert_allclose(GOLDEN[key], value, atol=1e-5, rtol=1e-6, err_msg=key)


@pytest.mark.reference
def test_transformers_and_we_read_what_the_other_writes(loaded, tmp_path):
    import torch
    import transformers

    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    MARIAN.save(loaded, ours / "model.safetensors")
    MARIAN.save_config(loaded, ours / "config.json")
    found, report = transformers.MarianMTModel.from_pretrained(ours, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    given = {name: torch.tensor(array).long() for name, array in INPUTS.items()}
    sources = given["source_token_ids"]
    with torch.no_grad():
        logits = found.eval()(
            input_ids=sources,
            attention_mask=(sources != PAD).long(),
            decoder_input_ids=given["target_token_ids"],
        ).logits.numpy()
    same_logits(logits, GOLDEN["logits"])
    MAKER["model"]().save_pretrained(theirs)
    model = marian(**MARIAN.read(theirs))
    kt.convert.load_weights(model, theirs)
    same_logits(model(INPUTS, training=False)["logits"], GOLDEN["logits"])
