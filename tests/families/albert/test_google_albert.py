"""ALBERT under the names of Google's code (google-research/albert), beside Hugging Face's."""

import json
import re

import albert_toy
import numpy as np
import pytest
import tensorflow as tf
import tiny

import keras_transformers as kt
from keras_transformers.convert.containers.arrays import open_arrays

GROUP = "bert/encoder/transformer/group_0/inner_group_0"
CONFIG = {
    "vocab_size": 0,
    "embedding_size": 8,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_hidden_groups": 1,
    "inner_group_num": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "hidden_act": "gelu",
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
}
LAYER = "albert.encoder.albert_layer_groups.0.albert_layers.0"
SCOPES = {
    f"{LAYER}.attention.LayerNorm": f"{GROUP}/LayerNorm",
    f"{LAYER}.full_layer_layer_norm": f"{GROUP}/LayerNorm_1",
    f"{LAYER}.attention.dense": f"{GROUP}/attention_1/output/dense",
    f"{LAYER}.attention": f"{GROUP}/attention_1/self",
    f"{LAYER}.ffn_output": f"{GROUP}/ffn_1/intermediate/output/dense",
    f"{LAYER}.ffn": f"{GROUP}/ffn_1/intermediate/dense",
    "albert.pooler": "bert/pooler/dense",
    "albert": "bert",
    "predictions.dense": "cls/predictions/transform/dense",
    "predictions.LayerNorm": "cls/predictions/transform/LayerNorm",
    "predictions.bias": "cls/predictions/output_bias",
    "classifier.weight": "output_weights",
    "classifier.bias": "output_bias",
}


def google_name(name):
    """The name in the checkpoint of a tensor of Hugging Face's."""
    start = next(s for s in SCOPES if name == s or name.startswith(f"{s}."))
    name = (SCOPES[start] + name.removeprefix(start)).replace(".", "/")
    name = re.sub(r"(LayerNorm(_1)?)/weight", r"\1/gamma", name)
    name = re.sub(r"(LayerNorm(_1)?)/bias", r"\1/beta", name)
    return name.replace("_embeddings/weight", "_embeddings").replace("/weight", "/kernel")


def write(folder, hugging_face, **changes):
    """Writes the folder that Google would have published, with the weights of another."""
    arrays = dict(open_arrays(hugging_face))
    folder.mkdir()
    (folder / "30k-clean.model").write_bytes((hugging_face / "spiece.model").read_bytes())
    size = len(arrays["albert.embeddings.word_embeddings.weight"])
    config = {**CONFIG, "vocab_size": size, **changes}
    (folder / "albert_config.json").write_text(json.dumps(config))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        stored = {
            google_name(name): array.T if google_name(name).endswith("kernel") else array
            for name, array in arrays.items()
        }
        width = len(arrays["albert.pooler.bias"]) if "albert.pooler.bias" in arrays else 16
        stored["cls/seq_relationship/output_weights"] = np.ones((2, width), "float32")
        stored["cls/seq_relationship/output_bias"] = np.ones(2, "float32")
        stored[f"{GROUP}/ffn_1/intermediate/dense/kernel/adam_m"] = np.ones(4, "float32")
        stored["global_step"] = np.int64(7)
        for name, array in stored.items():
            tf.compat.v1.get_variable(name, initializer=np.ascontiguousarray(array))
        session.run(tf.compat.v1.global_variables_initializer())
        prefix = str(folder / "model.ckpt-best")
        tf.compat.v1.train.Saver().save(session, prefix, write_meta_graph=False)
    return folder


@pytest.fixture(scope="module")
def pipelines(tmp_path_factory):
    """The same encoder with two heads, in Hugging Face's layout and in Google's."""
    folder = tmp_path_factory.mktemp("albert")
    tokenizer = albert_toy.tokenizer(folder)
    sizes = {"num_layers": 3, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24}
    encoder = tiny.lively(
        kt.create_model(
            "albert_base",
            vocabulary_size=tokenizer.vocabulary_size,
            embedding_dim=8,
            max_sequence_length=16,
            **sizes,
        )
    )
    head = kt.heads.masked_lm(encoder, activation="gelu_approximate")
    made = {
        "fill_mask": kt.pipelines.MaskFiller(head, tokenizer),
        "classification": kt.pipelines.TextClassifier(
            kt.heads.classifier(encoder, 3), tokenizer, ["LABEL_0", "LABEL_1", "LABEL_2"]
        ),
    }
    for task, pipeline in made.items():
        kt.save(pipeline, folder / f"{task}_hf", format="huggingface")
        write(folder / task, folder / f"{task}_hf")
    return folder


@pytest.mark.parametrize("task", ["fill_mask", "classification"])
def test_the_answers_are_those_of_hugging_faces_folder(task, pipelines):
    google, other = kt.load(pipelines / task), kt.load(pipelines / f"{task}_hf")
    assert type(google) is type(other)
    texts = ["A good [MASK]", "Zwei [MASK]"] if task == "fill_mask" else ["a Good film", "Café"]
    for found, wanted in zip(google(texts), other(texts), strict=True):
        assert found.probabilities == wanted.probabilities
    assert google.tokenizer.lowercase


def test_a_prefix_is_a_path_and_new_tasks_get_new_heads(pipelines):
    path = pipelines / "fill_mask/model.ckpt-best"
    assert isinstance(kt.load(path, pipeline="embedding"), kt.pipelines.Embedder)
    new = kt.load(path, pipeline="classification", labels=["a", "b"])
    assert len(new(["a good film"])) == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("albert_config.json", "ALBERT but no albert_config.json, which"),
        (
            "30k-clean.model",
            "SentencePiece model, such as .*none",
        ),
    ],
)
def test_a_missing_file_is_named(name, message, pipelines, tmp_path):
    for file in (pipelines / "fill_mask").iterdir():
        if file.name != name:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(FileNotFoundError, match=message):
        kt.load(tmp_path)


def test_another_albert_is_refused(pipelines, tmp_path):
    folder = write(tmp_path / "google", pipelines / "fill_mask_hf", num_hidden_groups=2)
    with pytest.raises(ValueError, match=r"albert_config\.json: num_hidden_groups=2; only 1"):
        kt.load(folder)
