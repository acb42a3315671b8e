"""ELECTRA under the names of Google's code (google-research/electra), beside Hugging Face's."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf
import tiny

import keras_transformers as kt
from keras_transformers.families.electra.model import electra

SIZES = {
    "vocabulary_size": len(tiny.VOCABULARY),
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 128,
    "embedding_dim": 8,
    "intermediate_dim": 12,
    "max_sequence_length": 16,
}


def google_name(name):
    """The name in the checkpoint of a tensor of Hugging Face's."""
    name = name.replace("encoder.layer.", "encoder.layer_")
    name = name.replace("dense_prediction", "dense_1")
    name = re.sub(r"LayerNorm\.weight", "LayerNorm.gamma", name)
    name = re.sub(r"LayerNorm\.bias", "LayerNorm.beta", name)
    name = name.replace("_embeddings.weight", "_embeddings").replace(".weight", ".kernel")
    return name.replace(".", "/")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The same discriminator in Google's layout and in Hugging Face's."""
    random = np.random.default_rng(3)
    folder = tmp_path_factory.mktemp("electra")
    model = kt.heads.replaced_token_detector(electra(**SIZES, activation="gelu_approximate"))
    for weight in model.weights:
        weight.assign(random.normal(0, 0.3, weight.shape) + ("gamma" in weight.path))
    (folder / "words").write_text("".join(f"{token}\n" for token in tiny.VOCABULARY))
    tokenizer = kt.tokenizers.WordPieceTokenizer(folder / "words")
    kt.convert.save_weights(model, folder / "hf", tokenizer, family="electra")
    arrays = dict(kt.convert.containers.open_arrays(folder / "hf"))
    (folder / "google").mkdir()
    (folder / "google/vocab.txt").write_bytes((folder / "words").read_bytes())
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        stored = {
            google_name(name): array.T if google_name(name).endswith("kernel") else array
            for name, array in arrays.items()
        }
        # What is in a published checkpoint of a pair, besides.
        stored["generator/encoder/layer_0/output/dense/kernel"] = np.ones((3, 4), "float32")
        stored["generator_predictions/output_bias"] = np.ones(14, "float32")
        stored["electra/encoder/layer_0/output/dense/kernel/adam_m"] = np.ones(4, "float32")
        stored["global_step"] = np.int64(7)
        for name, array in stored.items():
            tf.compat.v1.get_variable(name, initializer=np.ascontiguousarray(array))
        session.run(tf.compat.v1.global_variables_initializer())
        prefix = str(folder / "google/electra_small.ckpt")
        tf.compat.v1.train.Saver().save(session, prefix, write_meta_graph=False)
    return folder


@pytest.mark.parametrize("task", ["replaced_tokens", "embedding"])
def test_the_model_is_that_of_hugging_faces_folder(task, folders, caplog):
    google, other = (kt.load(folders / name, pipeline=task) for name in ("google", "hf"))
    assert type(google) is type(other)
    for found, wanted in zip(google.model.weights, other.model.weights, strict=True):
        assert found.path == wanted.path
        np.testing.assert_array_equal(found, wanted, err_msg=wanted.path)
    for pipeline in (google, other):
        block = pipeline.model.get_layer("encoder_layer_0")
        assert block.feed_forward.activation == "gelu_approximate"
        assert block.self_attention.num_heads == 2
    for found, wanted in zip(google(["a good film"]), other(["a good film"]), strict=True):
        assert found == wanted
    assert "generator.encoder.layer.0.output.dense.weight" in caplog.text


def test_the_task_is_told_by_the_head(folders):
    for path in ("google", "google/electra_small.ckpt"):
        assert list(kt.load(folders / path).labels) == ["original", "replaced"]


def test_a_config_beside_it_says_another_shape(folders, tmp_path):
    for file in (folders / "google").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((folders / "hf/config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_attention_heads": 4}))
    detect = kt.load(tmp_path)
    assert detect.model.get_layer("encoder_layer_0").self_attention.num_heads == 4
