"""Frozen layers stay frozen when Keras makes them again from their configuration."""

import functools
import importlib
import inspect
import pkgutil

import keras
import numpy as np
import pytest
import tiny

from keras_transformers import heads, layers
from keras_transformers.families.bert.model import bert
from keras_transformers.families.elmo import model as elmo
from keras_transformers.families.transformer.model import transformer
from keras_transformers.families.vit.model import vit
from keras_transformers.layers import FeedForward, MultiHeadAttention, TransformerBlock
from keras_transformers.layers.composite import CompositeLayer
from keras_transformers.layers.recurrent import RecurrentEncoder


def trained(model):
    """Returns the paths of the trainable weights."""
    return {variable.path for variable in model.trainable_variables}


def again(model, way, folder):
    """Returns the model as `way` makes it again."""
    if way == "cloned":
        return keras.models.clone_model(model)
    model.save(folder / "model.keras")
    return keras.models.load_model(folder / "model.keras")


def small_bert(num_layers=1):
    return bert(vocabulary_size=20, num_layers=num_layers, num_heads=2, hidden_dim=8)


def frozen_bert():
    encoder = small_bert()
    encoder.trainable = False
    return heads.tagger(encoder, 3)


def elmo_features():
    encoder = elmo.elmo(
        lstm_dim=6, projection_dim=4, num_highways=1, filters=[(1, 3), (2, 5)], character_dim=4
    )
    return heads.tagger(elmo.features(encoder, freeze=True), 3)


def one_frozen_layer():
    encoder = small_bert()
    encoder.get_layer("encoder_layer_0").trainable = False
    return heads.classifier(encoder, 2)


def frozen_parts():
    encoder = small_bert(num_layers=2)
    encoder.get_layer("encoder_layer_1").self_attention.trainable = False
    encoder.get_layer("encoder_layer_0").feed_forward.intermediate.trainable = False
    return encoder


def frozen_vit():
    encoder = vit(patch_size=4, num_layers=1, num_heads=2, hidden_dim=8, image_size=(8, 8))
    encoder.trainable = False
    return heads.classifier(encoder, 2)


def frozen_decoders():
    model = transformer(
        vocabulary_size=11,
        num_encoder_layers=1,
        num_decoder_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
    )
    model.get_layer("decoder_layer_0").trainable = False
    return model


def frozen_recurrent_encoder():
    model = tiny.seq2seq(
        vocabulary_size=11,
        cell="lstm",
        num_encoder_layers=1,
        num_decoder_layers=1,
        embedding_dim=4,
        hidden_dim=8,
    )
    next(found for found in model.layers if isinstance(found, RecurrentEncoder)).trainable = False
    return model


@functools.cache
def made(make):
    """Returns the model that a function makes, once for all tests, which do not change it."""
    return make()


@pytest.mark.one_case
@pytest.mark.parametrize("way", ["saved and loaded", "cloned"])
@pytest.mark.parametrize(
    "make",
    [
        frozen_bert,
        elmo_features,
        one_frozen_layer,
        frozen_parts,
        frozen_vit,
        frozen_decoders,
        frozen_recurrent_encoder,
    ],
)
def test_what_is_frozen_stays_frozen(make, way, tmp_path):
    model = made(make)
    found = again(model, way, tmp_path)
    assert trained(found) == trained(model)
    assert len(trained(model)) < len(model.weights)
    twice = again(found, "cloned", tmp_path)  # what was made again has the same configuration
    assert trained(twice) == trained(model)


def test_frozen_from_the_start():
    layer = TransformerBlock(MultiHeadAttention(2, 4), FeedForward(8, 4), trainable=False)
    inputs = keras.Input((3, 4))
    model = keras.Model(inputs, layer(inputs))
    assert not model.trainable_variables
    layer.trainable = True  # it thaws as a whole
    assert len(model.trainable_variables) == len(model.weights)


def test_weights_do_not_move_after_loading(tmp_path):
    model = frozen_bert()
    found = again(model, "saved and loaded", tmp_path)
    before = {v.path: np.array(v) for v in found.weights}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    found.compile("sgd", loss, run_eagerly=True)  # one step is not worth a graph
    inputs = {
        "token_ids": np.array([[2, 5, 6, 3]], np.int32),
        "segment_ids": np.zeros((1, 4), np.int32),
        "padding_mask": np.ones((1, 4), bool),
    }
    found.fit(inputs, {"logits": np.array([[0, 1, 2, 0]])}, verbose=0)
    moved = {v.path for v in found.weights if not np.array_equal(before[v.path], v)}
    assert moved == {"logits/kernel", "logits/bias"}


def test_a_whole_layer_has_no_list_of_frozen_parts():
    layer = small_bert().get_layer("encoder_layer_0")
    assert "frozen" not in layer.get_config()
    layer.trainable = False
    assert "frozen" not in layer.get_config()
    assert layer.get_config()["trainable"] is False


def test_parts_that_do_not_exist_are_refused():
    config = small_bert().get_layer("encoder_layer_0").get_config()
    layer = TransformerBlock.from_config({**config, "frozen": ["no_such_part"]})
    with pytest.raises(ValueError, match="no_such_part,"):
        layer.build((None, 3, 8))


def test_every_layer_made_of_layers_is_a_composite():
    """A plain `keras.layers.Layer` would train again after loading."""
    modules = pkgutil.walk_packages(layers.__path__, f"{layers.__name__}.")
    plain = {
        name
        for module in modules
        for name, value in vars(importlib.import_module(module.name)).items()
        if inspect.isclass(value)
        and issubclass(value, keras.layers.Layer)
        and value.__module__ == module.name
        and not issubclass(value, CompositeLayer)
        and any(
            ".build(" in line and "super()" not in line
            for line in inspect.getsource(value).splitlines()
        )
    }
    assert not plain
