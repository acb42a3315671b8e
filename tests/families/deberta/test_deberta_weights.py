"""Loads and saves DeBERTa's weights, against transformers."""

import json
import runpy

import family_checks
import keras
import numpy as np
import pytest
from checks import in_float64, same_but_for_rounding
from family_checks import ALL_TASKS, FamilyFiles
from safetensors.numpy import load_file, save_file

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
