"""Files written before `TransformerBlock` load and give the same answers; see golden/."""

from pathlib import Path

import keras
import numpy as np
import pytest
import tiny
from golden import make_before_parts as before_parts
from golden.make_before_blocks import inputs, models, of_weights

import keras_transformers as kt
from keras_transformers.layers import TransformerBlock
from keras_transformers.layers.old_files import load_weights

FOLDER = Path(__file__).parents[1] / "golden" / "before_blocks"
OUTPUTS = np.load(FOLDER / "outputs.npz")


def check_outputs(model, name):
    found = model(inputs(model), training=False)
    assert {f"{name}/{key}" for key in found} <= set(OUTPUTS)
    for key, value in found.items():
        wanted = OUTPUTS[f"{name}/{key}"]
        # In units of the largest output, as processors round differently.
        scale = max(1.0, np.abs(wanted).max())
        np.testing.assert_allclose(value / scale, wanted / scale, rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", ["bert_tagger", "mpnet", "gpt", "t5", "vit"])
def test_a_model_of_before_loads_and_is_saved_again(name, tmp_path):
    model = keras.models.load_model(FOLDER / f"{name}.keras")
    check_outputs(model, name)
    assert any(isinstance(layer, TransformerBlock) for layer in model.layers)
    model.save(tmp_path / "again.keras")
    check_outputs(keras.models.load_model(tmp_path / "again.keras"), name)


@pytest.mark.parametrize("name", ["bert_tagger", "t5"])
def test_its_weights_fit_the_model_of_today(name):
    old = keras.models.load_model(FOLDER / f"{name}.keras")
    model = dict(models())[name]
    assert [w.path for w in model.weights] == [w.path for w in old.weights]
    model.set_weights(old.get_weights())
    check_outputs(model, name)


def test_weights_of_before_load_into_the_model_of_today(tmp_path):
    model = of_weights()
    load_weights(model, FOLDER / "transformer.weights.h5")
    check_outputs(model, "transformer")
    model.save_weights(tmp_path / "new.weights.h5")
    other = of_weights()
    load_weights(other, tmp_path / "new.weights.h5")
    check_outputs(other, "transformer")


def test_a_pipeline_of_before_loads():
    text = "a good, very long film"
    assert kt.load(FOLDER / "tagger")(text) == tiny.pipeline("tagging")(text)


@pytest.mark.parametrize("form", before_parts.FORMS)
def test_a_recurrent_model_of_before_loads_and_is_saved_again(form, tmp_path):
    path = FOLDER.with_name("before_parts") / f"{form.replace(' ', '_')}.keras"
    expected = np.load(path.with_name("outputs.npz"))[form]
    old = keras.models.load_model(path)
    np.testing.assert_allclose(old(before_parts.INPUTS)["logits"], expected, atol=1e-6)
    old.save(tmp_path / "again.keras")
    again = keras.models.load_model(tmp_path / "again.keras")
    np.testing.assert_allclose(again(before_parts.INPUTS)["logits"], expected, atol=1e-6)
    # A seed gives the first weights of before, so the results of recipes are the same.
    made = before_parts.model(form)
    assert [w.path for w in made.weights] == [w.path for w in old.weights]
    for new, weight in zip(made.weights, old.weights, strict=True):
        np.testing.assert_array_equal(new, weight)
