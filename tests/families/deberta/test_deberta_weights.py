"""Loads and saves DeBERTa's weights, against transformers."""

import json
import runpy

import family_checks
import numpy as np
import pytest
from checks import in_float64, same_but_for_rounding
from family_checks import ALL_TASKS, FamilyFiles
from safetensors.numpy import save_file

import keras_transformers as kt
from keras_transformers.families.bert.model import bert
from keras_transformers.families.deberta.files import FAMILY as DEBERTA
from keras_transformers.families.deberta.model import deberta, with_pooler

SHAPE = {
    "vocabulary_size": 50,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 24,
    "max_sequence_length": 20,
    "max_distance": 12,
    "num_buckets": 6,
}
POOLED = ("classifier", "regressor", "multiple_choice")


def build(task):
    encoder = deberta(**SHAPE)
    return with_pooler(encoder) if task in POOLED else encoder


FAMILY = FamilyFiles("deberta", build, kt.convert.load_weights, DEBERTA.save, {})


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


VARIANTS = (
    *("convolution", "own_projections", "content_to_position", "position_to_content"),
    *("positions_and_segments", "not_legacy"),
)


def variant(name, folder):
    """A folder as transformers writes it, and what its model computes."""
    golden = np.load(family_checks.GOLDEN / "deberta_variants.npz")
    stored = {
        key.removeprefix(f"{name}/"): golden[key]
        for key in golden.files
        if key.startswith(f"{name}/")
    }
    (folder / "config.json").write_text(str(stored.pop("config")))
    wanted = stored.pop("output")
    save_file(stored, folder / "model.safetensors")
    return wanted


def variants_model(name, folder):
    model = deberta(**DEBERTA.read(folder))
    model = kt.heads.masked_lm(model) if name == "not_legacy" else model
    kt.convert.load_weights(model, folder)
    return model


def given(model):
    inputs = MAKER["inputs"]()
    rows, length = inputs["token_ids"].shape
    inputs["mask_positions"] = np.tile(np.arange(length, dtype="int32"), (rows, 1))
    return {name: inputs[name] for name in model.input}


MAKER = runpy.run_path(str(family_checks.GOLDEN / "make_deberta.py"))


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_equal_transformers_and_come_back(name, tmp_path):
    wanted = variant(name, tmp_path)
    model = variants_model(name, tmp_path)
    inputs = given(model)
    (found,), (exact,) = model(inputs).values(), in_float64(model)(inputs).values()
    real = inputs["padding_mask"]
    same_but_for_rounding(*(np.asarray(array)[real] for array in (wanted, found, exact)))
    (tmp_path / "copy").mkdir()
    DEBERTA.save(model, tmp_path / "copy/model.safetensors")
    DEBERTA.save_config(model, tmp_path / "copy/config.json")
    assert DEBERTA.read(tmp_path / "copy") == DEBERTA.read(tmp_path)
    again = variants_model(name, tmp_path / "copy")
    for one, other in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


CONFIG = {
    **MAKER["MAKER"].config,
    "model_type": "deberta-v2",
    "hidden_act": "gelu",
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "deberta"}, "model_type is 'deberta'; expected 'deberta-v2'"),
        ({"relative_attention": False}, "relative_attention=False; only true is supported"),
        ({"relative_attention": None}, "relative_attention=None; only true is supported"),
        ({"pos_att_type": None}, "pos_att_type=None; expected c2p, p2c or both"),
        ({"pos_att_type": "p2c|p2p"}, r"pos_att_type='p2c\|p2p'; expected c2p, p2c or both"),
        ({"norm_rel_ebd": "rms"}, "norm_rel_ebd='rms'; expected none or layer_norm"),
        ({"position_buckets": 7}, "position_buckets=7; expected an even number"),
        ({"position_buckets": 24}, "below twice max_relative_positions=12"),
        ({"max_relative_positions": 0}, "max_relative_positions=0; expected an integer from 1"),
        ({"type_vocab_size": -1}, "type_vocab_size=-1; expected an integer from 0"),
        ({"share_att_key": 1}, "share_att_key=1; expected true or false"),
        ({"embedding_size": 8}, "embedding_size=8; only 16 is supported"),
        ({"attention_head_size": 4}, "attention_head_size=4; only 8 is supported"),
        ({"pooler_hidden_act": "tanh"}, "pooler_hidden_act='tanh'; only 'gelu' is supported"),
        ({"conv_kernel_size": 2}, "conv_kernel_size=2; expected an odd number"),
        ({"conv_kernel_size": 3, "conv_act": "elu"}, "conv_act='elu'; expected one of gelu"),
        ({"hidden_size": None}, "has no field 'hidden_size'"),
    ],
)
def test_a_config_that_cannot_be_built_is_refused(change, message, tmp_path):
    config = {key: value for key, value in (CONFIG | change).items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        DEBERTA.read(tmp_path)


def test_microsofts_files_are_read(tmp_path):
    """With the head's other names, positions that nothing reads, and the generator's head."""
    tensors = {
        key.replace("cls.predictions.transform.", "lm_predictions.lm_head.").replace(
            "cls.predictions.bias", "lm_predictions.lm_head.bias"
        ): tensor
        for key, tensor in FAMILY.tensors("masked_lm").items()
        if "decoder" not in key
    }
    tensors["deberta.embeddings.position_embeddings.weight"] = np.ones((20, 16), "float32")
    tensors["mask_predictions.dense.weight"] = np.ones((16, 16), "float32")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    save_file(tensors, tmp_path / "model.safetensors")
    model = kt.heads.masked_lm(deberta(**SHAPE))
    kt.convert.load_weights(model, tmp_path, ignore=["mask_predictions.*"])
    wanted = kt.heads.masked_lm(deberta(**SHAPE))
    save_file(FAMILY.tensors("masked_lm"), tmp_path / "model.safetensors")
    kt.convert.load_weights(wanted, tmp_path)
    for one, other in zip(model.get_weights(), wanted.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_another_family_is_not_written_as_deberta(tmp_path):
    shape = {"vocabulary_size": 50, "num_layers": 1, "num_heads": 2, "hidden_dim": 8}
    with pytest.raises(ValueError, match="distance_embedding"):
        DEBERTA.save_config(bert(**shape), tmp_path / "config.json")


def test_what_does_not_fit_is_listed(tmp_path):
    tensors = FAMILY.tensors("encoder")
    del tensors["encoder.LayerNorm.bias"]
    rows = tensors["encoder.rel_embeddings.weight"][:8]
    save_file(
        tensors | {"encoder.rel_embeddings.weight": rows, "encoder.extra": np.zeros(3)},
        tmp_path / "model.safetensors",
    )
    with pytest.raises(ValueError, match="does not fit the model") as error:
        kt.convert.load_weights(deberta(**SHAPE), tmp_path)
    for part in (
        "missing from the file: deberta.encoder.LayerNorm.bias",
        r"deberta.encoder.rel_embeddings.weight is (8, 16)",
        "not used (name them in `ignore` to leave them out): deberta.encoder.extra",
    ):
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"distance_terms": ()}, r"distance_terms=\(\): expected 'c2p', 'p2c' or both"),
        ({"distance_terms": ("c2c",)}, "expected 'c2p', 'p2c' or both"),
        ({"convolution_width": 4}, "convolution_width=4: expected an odd number"),
    ],
)
def test_arguments_that_cannot_be_built_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        deberta(**SHAPE, **arguments)


@pytest.mark.reference
@pytest.mark.parametrize("name", VARIANTS)
def test_variants_live(name, tmp_path):
    """The frozen outputs are those of transformers, which reads what we write."""
    import transformers

    wanted = variant(name, tmp_path)
    np.testing.assert_allclose(MAKER["variant"](name)[2], wanted, atol=1e-5)
    model = variants_model(name, tmp_path)
    (tmp_path / "copy").mkdir()
    DEBERTA.save(model, tmp_path / "copy/model.safetensors")
    DEBERTA.save_config(model, tmp_path / "copy/config.json")
    masked = name == "not_legacy"
    kind = transformers.DebertaV2ForMaskedLM if masked else transformers.DebertaV2Model
    theirs, report = kind.from_pretrained(tmp_path / "copy", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    found = MAKER["outputs"](theirs.eval(), "logits" if masked else "last_hidden_state")
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert sum(p.numel() for p in theirs.parameters()) == model.count_params()
