"""Tokens that no token attends to."""

import keras
import numpy as np
import pytest
import tiny

import keras_transformers as kt
from keras_transformers.models.headless import headless
from keras_transformers.models.unattended import with_unattended, without_unattended


def inputs(model, **changes):
    ids = np.array([[2, 5, 6, 4, 4, 4]], "int32")
    given = {
        "token_ids": ids,
        "segment_ids": np.zeros_like(ids),
        "padding_mask": np.ones_like(ids, bool),
        "unattended_mask": np.array([[False] * 3 + [True] * 3]),
        **changes,
    }
    return {name: given[name] for name in model.input}


FAMILIES = {
    "bert": lambda: tiny.encoder(),
    "mpnet": lambda: kt.families.mpnet.mpnet(  # whose attention has a bias of its own
        vocabulary_size=14, num_layers=2, num_heads=2, hidden_dim=8, max_sequence_length=16
    ),
    "deberta": lambda: kt.families.deberta.deberta(
        vocabulary_size=14, num_layers=2, num_heads=2, hidden_dim=8
    ),
    "modern_bert": lambda: kt.families.modern_bert.modern_bert(
        vocabulary_size=14, num_layers=2, num_heads=2, hidden_dim=8, intermediate_dim=12
    ),
}


@pytest.mark.one_case
@pytest.mark.parametrize("family", FAMILIES)
def test_no_token_attends_to_them(family):
    encoder = tiny.lively(FAMILIES[family]())
    model = with_unattended(encoder)
    found = model(inputs(model))["sequence_output"]
    other = np.array([[2, 5, 6, 4, 7, 8]], "int32")
    changed = model(inputs(model, token_ids=other))["sequence_output"]
    np.testing.assert_allclose(found[:, :4], changed[:, :4], atol=1e-6)
    assert np.abs(found[:, 4:] - changed[:, 4:]).max() > 1e-2
    # The others are as if the text ended before them.
    short = {name: value[:, :3] for name, value in inputs(encoder).items()}
    np.testing.assert_allclose(found[:, :3], encoder(short)["sequence_output"], atol=1e-5)
    none = np.zeros((1, 6), bool)
    np.testing.assert_allclose(
        model(inputs(model, unattended_mask=none))["sequence_output"],
        encoder(inputs(encoder))["sequence_output"],
        atol=1e-6,
    )


def test_it_can_be_undone():
    encoder = tiny.lively(FAMILIES["mpnet"]())
    model = with_unattended(encoder)
    for plain in (without_unattended(model), headless(model)):
        assert set(plain.input) == set(encoder.input)
        np.testing.assert_array_equal(
            plain(inputs(encoder))["sequence_output"], encoder(inputs(encoder))["sequence_output"]
        )
    assert without_unattended(encoder) is encoder


def test_keras_saves_such_models(tmp_path):
    model = with_unattended(tiny.lively(tiny.encoder()))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        again(inputs(model))["sequence_output"], model(inputs(model))["sequence_output"]
    )
