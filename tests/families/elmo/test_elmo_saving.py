"""save_elmo writes the same files as bilm-tf, and they load again."""

import json

import bilm_reference as bilm
import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from checks import same_outputs

import keras_transformers as kt
from keras_transformers.families.elmo.files import (
    load_elmo,
    read_elmo_options,
    save_elmo,
    save_elmo_options,
)
from keras_transformers.families.elmo.model import elmo, features, language_model
from keras_transformers.tokenizers.characters import CharacterTokenizer
from keras_transformers.training.sampled_softmax import SampledSoftmax


@pytest.fixture
def model(tmp_path):
    (tmp_path / "bilm").mkdir()
    path = bilm.write(tmp_path / "bilm", bilm.OPTIONS, bilm.random_arrays(bilm.OPTIONS))
    model = elmo(**read_elmo_options(tmp_path / "bilm/tiny_options.json"), dropout=0.0)
    load_elmo(model, path)
    return model


def save(model, folder):
    save_elmo(model, folder / "weights.hdf5")
    save_elmo_options(model, folder / "options.json")
    return folder / "weights.hdf5"


def test_arrays_and_options_are_those_that_were_loaded(model, tmp_path):
    path = save(model, tmp_path)
    arrays, expected = {}, bilm.random_arrays(bilm.OPTIONS)
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: arrays.update({name: item[...]}) if hasattr(item, "shape") else None
        )
    assert arrays.keys() == expected.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)
    options = json.loads((tmp_path / "options.json").read_text())
    assert options["char_cnn"] == bilm.OPTIONS["char_cnn"]
    assert options["lstm"] == bilm.OPTIONS["lstm"]
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "bilm",
        "options.json",
        "weights.hdf5",
    ]


@pytest.mark.parametrize(
    "shape",
    [
        {"lstm_dim": 6, "projection_dim": 4, "num_highways": 0, "num_layers": 1},
        {"lstm_dim": 5, "projection_dim": 5, "num_highways": 1, "filters": [(2, 5)]},
        {"lstm_dim": 6, "projection_dim": 4, "num_highways": 1, "cell_clip": None,
         "projection_clip": None, "use_skip_connections": False, "activation": "tanh"},
    ],
    ids=["one layer", "no projections", "no clips or skips"],
)  # fmt: skip
def test_a_new_model_loads_what_was_saved(shape, tmp_path):
    keras.utils.set_random_seed(0)
    model = elmo(**({"filters": [(1, 3), (3, 4)], "max_characters": 9} | shape))
    path = save(model, tmp_path)
    other = elmo(**read_elmo_options(tmp_path / "options.json"))
    load_elmo(other, path)
    ids = CharacterTokenizer(max_characters=9)(tf.constant(["the cat", "überlange Wörter da"]))
    real = (ids["character_ids"].numpy() > 0).any(-1)
    one, two = (m(ids)["layer_outputs"].numpy()[real] for m in (model, other))
    same_outputs(one, two)
    assert np.abs(one).max() > 0.01


def test_a_language_models_or_a_tasks_encoder_is_saved(model, tmp_path):
    save(language_model(model, SampledSoftmax(9, num_sampled=2)), tmp_path)
    other = elmo(**read_elmo_options(tmp_path / "options.json"))
    kt.convert.load_elmo(other, tmp_path / "weights.hdf5")
    for one, two in zip(model.weights, other.weights, strict=True):
        if "embeddings" not in one.path:  # the padding row is not saved
            same_outputs(one.numpy(), two.numpy())
    kt.convert.save_elmo(features(model), tmp_path / "again.hdf5")
    assert (tmp_path / "again.hdf5").stat().st_size > 0


def test_where_nothing_can_be_saved(model, tmp_path):
    for function in (save_elmo, save_elmo_options):
        with pytest.raises(FileNotFoundError, match="none .*create it"):
            function(model, tmp_path / "none" / "file")
        stranger = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        with pytest.raises(ValueError, match="has no CharacterCNN"):
            function(stranger, tmp_path / "file")
    assert not (tmp_path / "file").exists()
