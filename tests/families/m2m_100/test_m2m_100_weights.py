"""M2M-100 against Hugging Face's, with the random model of make_m2m_100.py."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

import keras_transformers as kt
from keras_transformers.decoding import beam_search
from keras_transformers.families.m2m_100.files import FAMILY as M2M_100
from keras_transformers.families.m2m_100.model import m2m_100
from keras_transformers.families.transformer.model import transformer

FAMILIES = Path(__file__).parents[2] / "golden" / "families"
GOLDEN = np.load(FAMILIES / "m2m_100.npz")
MAKER = runpy.run_path(str(FAMILIES / "make_m2m_100.py"))
INPUTS = MAKER["inputs"]()
PAD, END = MAKER["PAD"], MAKER["END"]
SEARCHES = {"greedy": 1, "beams": MAKER["NUM_BEAMS"]}
CONFIG = {"model_type": "m2m_100", **MAKER["CONFIG"]}
TENSORS = {
    name.removeprefix("tensors/"): GOLDEN[name]
    for name in GOLDEN.files
    if name.startswith("tensors/")
}


def folder_of(folder, tensors=TENSORS, **changes):
    """A folder as transformers writes it; a change to None removes the field."""
    config = {key: value for key, value in (CONFIG | changes).items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """The model with transformers' weights; do not change it."""
    folder = folder_of(tmp_path_factory.mktemp("m2m_100"))
    model = m2m_100(**M2M_100.read(folder))
    kt.convert.load_weights(model, folder)
    return model


def same_logits(logits, wanted):
    np.testing.assert_allclose(logits, wanted, atol=1e-5 * np.abs(wanted).max())


def test_logits_equal_transformers(loaded):
    same_logits(np.asarray(loaded(INPUTS, training=False)["logits"]), GOLDEN["logits"])


@pytest.mark.one_case
@pytest.mark.parametrize("name", SEARCHES)
def test_searches_find_what_transformers_finds(name, loaded):
    @tf.function(autograph=False)
    def search(sources):
        step, cache = loaded.start_decoding(sources)
        return beam_search(
            step,
            tf.fill([3], END),
            cache,
            end_token_id=END,
            max_length=MAKER["MAX_LENGTH"],
            num_beams=SEARCHES[name],
            rules="transformers",
            first_token_ids=MAKER["LANGUAGE"],
            pad_token_id=PAD,
            growing_axis=2,
        )

    found = search(INPUTS["source_token_ids"])
    np.testing.assert_array_equal(found.token_ids[:, 0], GOLDEN[name])
    assert (found.token_ids[:, 0, 0] == MAKER["LANGUAGE"]).numpy().all()


def test_saving_gives_the_same_files(loaded, tmp_path):
    M2M_100.save(loaded, tmp_path / "model.safetensors")
    found = load_file(tmp_path / "model.safetensors")
    assert set(found) == set(TENSORS)
    for name, tensor in TENSORS.items():
        np.testing.assert_array_equal(found[name], tensor, err_msg=name)
    M2M_100.save_config(loaded, tmp_path / "config.json")
    written = json.loads((tmp_path / "config.json").read_text())
    assert written.items() >= CONFIG.items()
    assert M2M_100.read(tmp_path) == M2M_100.read(folder_of(tmp_path))


def test_sinusoids_and_copies_in_older_files_are_not_needed(loaded, tmp_path):
    copies = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
    more = dict.fromkeys((*copies, "lm_head.weight"), TENSORS["model.shared.weight"])
    more["model.encoder.embed_positions.weights"] = np.zeros((32, 16), "float32")
    more["model.decoder.embed_positions.weights"] = np.zeros((32, 16), "float32")
    model = m2m_100(**M2M_100.read(folder_of(tmp_path, TENSORS | more)))
    kt.convert.load_weights(model, tmp_path)
    same_logits(np.asarray(model(INPUTS, training=False)["logits"]), GOLDEN["logits"])
    more["lm_head.weight"] = more["lm_head.weight"] + 1
    with pytest.raises(ValueError, match=r"lm_head.weight.*model.shared.weight"):
        kt.convert.load_weights(model, folder_of(tmp_path, TENSORS | more))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "marian"}, "model_type is 'marian'; expected 'm2m_100'"),
        ({"scale_embedding": False}, "scale_embedding=False; only True is supported"),
        ({"decoder_ffn_dim": 8}, "decoder_ffn_dim=8 .*encoder_ffn_dim=24"),
        ({"decoder_start_token_id": 1}, "decoder_start_token_id=1; only 2 is supported"),
        ({"activation_function": "elu"}, "activation_function='elu'; expected one of gelu"),
        ({"d_model": None}, "has no field 'd_model'"),
    ],
)
def test_a_config_that_cannot_be_built_is_refused(change, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        M2M_100.read(folder_of(tmp_path, **change))


def test_weights_that_do_not_fit_are_refused(tmp_path):
    kept = {name: array for name, array in TENSORS.items() if "decoder.layer_norm" not in name}
    model = m2m_100(**M2M_100.read(folder_of(tmp_path, kept)))
    with pytest.raises(ValueError, match="missing from the file: model.decoder.layer_norm"):
        kt.convert.load_weights(model, tmp_path)
    other = transformer(
        vocabulary_size=40,
        num_encoder_layers=2,
        num_decoder_layers=1,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=24,
        norm_position="pre",
        positions="sinusoidal_opennmt",
    )
    with pytest.raises(ValueError, match="target_position_embedding.first_position"):
        M2M_100.save(other, tmp_path / "model.safetensors")


@pytest.mark.reference
def test_the_frozen_outputs_are_transformers_own():
    for key, value in MAKER["outputs"]().items():
        np.testing.assert_allclose(GOLDEN[key], value, atol=1e-5, rtol=1e-6, err_msg=key)


@pytest.mark.reference
@pytest.mark.parametrize("seed", range(3))
def test_logits_of_other_models_equal_transformers(seed, tmp_path):
    import torch
    import transformers

    transformers.set_seed(seed)
    sizes = {"d_model": 16 + 8 * seed, "encoder_layers": 1 + seed, "decoder_layers": 2}
    sizes |= {"max_position_embeddings": 12, "activation_function": ("relu", "gelu", "silu")[seed]}
    theirs = transformers.M2M100ForConditionalGeneration(
        transformers.M2M100Config(**MAKER["CONFIG"] | sizes)
    ).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    theirs.save_pretrained(tmp_path)
    model = M2M_100.build(**M2M_100.read(tmp_path))
    M2M_100.fill(model, tmp_path)
    assert model.count_params() == theirs.num_parameters()
    sources, targets = (torch.tensor(INPUTS[name]).long() for name in INPUTS)
    with torch.no_grad():
        wanted = theirs(
            sources, attention_mask=(sources != PAD).long(), decoder_input_ids=targets
        ).logits.numpy()
    same_logits(np.asarray(model(INPUTS, training=False)["logits"]), wanted)


@pytest.mark.reference
def test_transformers_reads_what_we_write(loaded, tmp_path):
    import torch
    import transformers

    M2M_100.save(loaded, tmp_path / "model.safetensors")
    M2M_100.save_config(loaded, tmp_path / "config.json")
    found, report = transformers.M2M100ForConditionalGeneration.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    sources, targets = (torch.tensor(INPUTS[name]).long() for name in INPUTS)
    with torch.no_grad():
        logits = found.eval()(
            sources, attention_mask=(sources != PAD).long(), decoder_input_ids=targets
        ).logits.numpy()
    same_logits(logits, GOLDEN["logits"])
