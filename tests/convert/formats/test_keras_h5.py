"""Keras 2 models around a TensorFlow class of transformers, as their users saved them."""

import json
import shutil

import h5py
import numpy as np
import pytest

import keras_transformers as kt


@pytest.fixture
def file(left_behind, tmp_path):
    """A copy of a model that model.save wrote: a TFBertModel and a dense layer named "out"."""
    return shutil.copytree(left_behind("user/model_h5"), tmp_path / "model") / "model.h5"


def config_of(file):
    with h5py.File(file) as opened:
        layers = json.loads(opened.attrs["model_config"])["config"]["layers"]
    return next(layer["config"] for layer in layers if layer["class_name"] == "TFBertModel")


def weights_alone(file):
    """Writes what save_weights writes: the groups of layers at the root, and no description."""
    copy = file.with_name("weights.h5")
    with h5py.File(file) as opened, h5py.File(copy, "w") as written:
        for name in opened["model_weights"]:
            opened.copy(f"model_weights/{name}", written)
    return copy


def value(model, path):
    (found,) = [np.asarray(each) for each in model.weights if each.path == path]
    return found


def test_the_encoder_loads_and_other_layers_are_named(file, caplog):
    embed = kt.load(file)
    assert embed.task == "embedding"
    assert "model_weights/out/out/kernel:0 (16, 3)" in caplog.text
    assert "model.get_layer('logits').set_weights([kernel, bias])" in caplog.text
    with h5py.File(file) as opened:
        encoder = opened["model_weights/bert/bert/bert"]
        for path, stored in (
            ("token_embedding/embeddings", "embeddings/word_embeddings/weight:0"),
            (
                "encoder_layer_1/feed_forward/output/kernel",
                "encoder/layer_._1/output/dense/kernel:0",
            ),
            (
                "encoder_layer_0/self_attention_norm/gamma",
                "encoder/layer_._0/attention/output/LayerNorm/gamma:0",
            ),
        ):
            np.testing.assert_array_equal(value(embed.model, path), encoder[stored][...])
        classify = kt.load(file, pipeline="classification", labels=["a", "b", "c"])
        pooler = encoder["pooler/dense/kernel:0"][...]
        np.testing.assert_array_equal(value(classify.model, "pooler/kernel"), pooler)


def test_weights_alone_need_the_encoders_configuration(file, caplog):
    weights = weights_alone(file)
    with pytest.raises(
        FileNotFoundError, match=r"weights\.h5 has only weights.*copy the config\.json"
    ):
        kt.load(weights)
    weights.with_name("config.json").write_text(json.dumps(config_of(file)))
    found, wanted = kt.load(weights).model, kt.load(file).model
    assert "out/out/kernel:0 (16, 3)" in caplog.text
    for ours, theirs in zip(found.weights, wanted.weights, strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


@pytest.mark.parametrize(
    "outer",
    ["tf_bert_model/tf_bert_model", "encoder/encoder", "tf_bert_model/my_model/tf_bert_model"],
)
def test_the_encoder_may_have_any_name(file, outer):
    """The default one, the user's, and as a part of a subclassed model."""
    wanted = kt.load(file).model
    with h5py.File(file, "a") as opened:
        opened.move("model_weights/bert/bert/bert", f"model_weights/{outer}/bert")
        del opened["model_weights/bert"]
    for ours, theirs in zip(kt.load(file).model.weights, wanted.weights, strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


def test_a_tf_model_h5_itself_may_be_the_path(left_behind):
    tag = kt.load(left_behind("hf_old_3.5.1/bert_tok") / "tf_model.h5")
    assert tag.task == "tagging"


def test_what_the_file_lacks_is_named(file):
    with h5py.File(file, "a") as opened:
        del opened["model_weights/bert/bert/bert/pooler/dense/bias:0"]
    with pytest.raises(
        ValueError, match=r"model\.h5 does not fit .*missing.*bert\.pooler\.dense\.bias"
    ):
        kt.load(file, pipeline="classification", labels=["a", "b"])
    with h5py.File(file, "a") as opened:
        opened.attrs["model_config"] = "{"
    with pytest.raises(ValueError, match=r"model\.h5:.*model_config.*not JSON"):
        kt.load(file)
