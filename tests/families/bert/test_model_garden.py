"""Checkpoints and a SavedModel that TensorFlow Model Garden's own code wrote, with its outputs."""

import shutil
import tarfile

import numpy as np
import pytest
import tensorflow as tf
import tiny
from left_behind import GOLDEN, difference

import keras_transformers as kt

KINDS = {
    "encoder": kt.pipelines.Embedder,
    "encoder_v2": kt.pipelines.Embedder,
    "pretrainer": kt.pipelines.MaskFiller,
    "classifier": kt.pipelines.TextClassifier,
    "regressor": kt.pipelines.TextRegressor,
    "span": kt.pipelines.QuestionAnswerer,
    "tagger": kt.pipelines.Tagger,
    "hub": kt.pipelines.Embedder,
}
WITHOUT_HEAD = ("encoder", "encoder_v2", "hub", "encoder_functional", "hub_encoder")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """One folder per kind of model, and NAME.npz with its outputs; do not change them."""
    folder = tmp_path_factory.mktemp("model_garden")
    with tarfile.open(GOLDEN / "model_garden.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def copy(folders, tmp_path):
    def of(name):
        return shutil.copytree(folders / name, tmp_path / name)

    return of


def load(folder):
    return kt.load(folder, **({"max_question_length": 5} if folder.name == "span" else {}))


def model_of(folder):
    """The model with both its outputs, if it has no head; the pipeline's otherwise."""
    if folder.name not in WITHOUT_HEAD:
        return load(folder).model
    found = kt.convert.find_weights(folder)
    model = found.build()
    assert found.fill(model, ()) == []
    return model


@pytest.mark.parametrize("name", KINDS)
def test_answers_are_those_of_model_gardens_code(name, folders):
    assert difference(model_of(folders / name), folders / f"{name}.npz") < 1e-5


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_the_variables_tell_the_task(name, kind, folders):
    assert type(load(folders / name)) is kind


def test_both_heads_of_pretraining(folders):
    judge = kt.load(folders / "pretrainer", pipeline="next_sentence")
    assert difference(judge.model, folders / "pretrainer.npz") < 1e-5


@pytest.mark.parametrize(
    "name", ["encoder", "encoder_functional", "classifier", "hub_encoder", "pretrainer"]
)
def test_other_checkpoints_of_model_garden(name, left_behind):
    folder = left_behind(f"tfm/{name}")
    file = folder.with_suffix(".npz")
    if name == "pretrainer":  # with the exact GELU in its head, whatever Model Garden's tasks do
        found = kt.convert.find_weights(folder / "ckpt-1")
        model = kt.heads.masked_lm(found.build(), activation="gelu")
        found.fill(model, found.parts)
        assert difference(model, file) < 1e-5
        return
    if name != "hub_encoder":
        shutil.copy(folder.with_name("vocab.txt"), folder)
    assert difference(model_of(folder), file) < 1e-5


def test_a_saved_model_says_whether_it_lower_cases_and_has_its_vocabulary(folders):
    embed = kt.load(folders / "hub")
    assert not embed.tokenizer.lowercase
    assert embed.tokenizer.vocabulary_size == 11
    assert kt.load(folders / "encoder").tokenizer.lowercase


def test_heads_and_rates_are_reported_by_the_shapes_or_by_a_config_beside(copy):
    folder = copy("encoder")
    attention = kt.load(folder).model.get_layer("encoder_layer_0").self_attention
    assert (attention.num_heads, attention.hidden_dim) == (2, 8)
    (folder / "bert_config.json").write_text(
        '{"vocab_size": 11, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 4, '
        '"intermediate_size": 12, "max_position_embeddings": 16, "type_vocab_size": 2}'
    )
    attention = kt.load(folder).model.get_layer("encoder_layer_0").self_attention
    assert attention.num_heads == 4


def test_the_names_of_the_first_two_versions_on_tf_hub(folders, tmp_path):
    """They are in Model Garden's tf1_bert_checkpoint_converter_lib.py."""
    renamed = {
        "bert.embeddings.position_embeddings.weight": "embedding_postprocessor/position_embeddings",
        "bert.embeddings.token_type_embeddings.weight": "embedding_postprocessor/type_embeddings",
        "bert.embeddings.word_embeddings.weight": "word_embeddings/embeddings",
    }
    modules = {
        "bert.embeddings.LayerNorm": "embedding_postprocessor/layer_norm",
        "bert.pooler.dense": "pooler_transform",
        "attention.self.": "self_attention/",
        "attention.output.dense": "self_attention_output",
        "attention.output.LayerNorm": "self_attention_layer_norm",
        "intermediate.dense": "intermediate",
        "output.dense": "output",
        "output.LayerNorm": "output_layer_norm",
        "bert.encoder.layer.": "encoder/layer_",
    }
    arrays = kt.convert.containers.open_arrays(folders / "encoder")
    module = tf.Module()
    module.variables_ = []
    for theirs, array in arrays.items():
        name = renamed.get(theirs, theirs)
        for ours, old in modules.items():
            name = name.replace(ours, old)
        is_matrix = array.ndim == 2 and theirs not in renamed
        end = "kernel" if is_matrix else "gamma" if "LayerNorm" in theirs else "bias"
        name = name.replace(".weight", f"/{end}").replace(".bias", "/bias").replace(".", "/")
        if "LayerNorm" in theirs and theirs.endswith("bias"):
            name = name.replace("/bias", "/beta")
        array = array.T if is_matrix else array
        if "self_attention/" in name:
            array = array.reshape(*array.shape[:-1], 2, 4)
        elif "self_attention_output/kernel" in name:
            array = array.reshape(2, 4, 8)
        module.variables_.append(tf.Variable(array, name=f"bert_model/{name}"))
    tf.saved_model.save(module, str(tmp_path / "hub_1"))
    assert kt.convert.containers.open_arrays(tmp_path / "hub_1").keys() == arrays.keys()
    found = kt.convert.find_weights(tmp_path / "hub_1")
    model = found.build()
    found.fill(model, ())
    assert difference(model, folders / "encoder.npz") < 1e-5


def test_what_is_missing_or_not_a_bert_is_named(copy, tmp_path):
    folder = copy("classifier")
    (folder / "vocab.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"vocab.txt.*copy"):
        kt.load(folder)
    other = tf.train.Checkpoint(step=tf.Variable(1.0, name="step"))
    other.save(str(tmp_path / "other" / "ckpt"))
    with pytest.raises(ValueError, match="ckpt-1 .* 0 variables word_emb.* step"):
        kt.load(tmp_path / "other")
    (data,) = folder.glob("*.data-*")
    data.write_bytes(data.read_bytes()[:-3000])
    with pytest.raises(ValueError, match=r"ckpt-1: not a readable checkpoint.* download ckpt-1.in"):
        kt.load(folder)


def test_an_export_of_ours_is_still_no_weights(tmp_path):
    version = tmp_path / "saved_models/embed/1"
    shutil.copytree(tiny.exported("embedding"), version)
    with pytest.raises(ValueError, match=r"saved_model\.pb\): it cannot be trained"):
        kt.load(version)


def test_what_was_loaded_goes_on_to_hugging_face(folders, tmp_path):
    first = kt.load(folders / "classifier")
    back = kt.load(kt.save(first, tmp_path / "hf", format="huggingface"))
    for found, wanted in zip(back.model.weights, first.model.weights, strict=True):
        np.testing.assert_array_equal(found, wanted, err_msg=wanted.path)
