"""ELMo's word vectors: equal to the model's, from strings alone."""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from answer_checks import restored, same_answers, typed_answers
from checks import round_trip, same_outputs
from graph_checks import signatures_in_graphs

import keras_transformers as kt
from keras_transformers.families.elmo.model import elmo, features
from keras_transformers.pipelines import WordEmbedder
from keras_transformers.results import WordVectors
from keras_transformers.saved_model.checks import check
from keras_transformers.saved_model.description import METADATA_FILE
from keras_transformers.saved_model.prediction import Predictor
from keras_transformers.tokenizers.characters import CharacterTokenizer

# A stranger's program: none of our code, no tensorflow-text.
STRANGER = """
import json, sys
import tensorflow as tf
signature = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
answer = signature(text=tf.constant(["the cat", ""]))
assert not [name for name in sys.modules if name.startswith("keras_transformers")]
print(json.dumps({k: v.shape.as_list() for k, v in answer.items()}))
"""
TEXTS = [
    b"the  cat\tsat\non the mat",
    b"",
    b"\xff\xfe no UTF-8 \x00",
    "überlängliche 日本語".encode() + b" " + b"x" * 60,
    b" \n ",
]


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(3)
    model = elmo(
        lstm_dim=10,
        projection_dim=6,
        num_highways=1,
        filters=[(1, 4), (3, 5)],
        character_dim=4,
    )
    generator = np.random.default_rng(0)
    for weight in model.weights:  # so large that every word matters
        weight.assign(generator.normal(0, 0.5, weight.shape))
    return model


@pytest.fixture(scope="module")
def embed(model):
    return WordEmbedder(model)


@pytest.fixture(scope="module")
def exported(embed, tmp_path_factory):
    """The pipeline's export: read only."""
    return kt.export(embed, tmp_path_factory.mktemp("base"), check=False)


@pytest.fixture(scope="module")
def run(embed):
    """Runs a signature: its name, tensors -> arrays."""
    return signatures_in_graphs(embed)


def vectors_of(model, text):
    """Returns the model's own vectors of a text's words: (words, layers, dim)."""
    ids = CharacterTokenizer()(tf.constant([text]))
    return model(ids, training=False)["layer_outputs"][0, 1:-1].numpy()


@pytest.mark.slow
def test_vectors_are_the_models(model, run):
    answer = run(text=tf.constant(TEXTS))
    assert answer["num_tokens"].tolist() == [6, 0, 4, 3, 0]
    assert answer["tokens"].shape == (5, 6)
    assert answer["vectors"].shape == (5, 6, 3, 12)
    assert answer["vectors"].dtype == np.float32
    for row, text in enumerate(TEXTS):
        words, length = text.split(), len(text.split())
        assert answer["tokens"][row].tolist() == words + [b""] * (6 - length)
        expected = vectors_of(model, text)
        np.testing.assert_allclose(answer["vectors"][row, :length], expected, atol=1e-5)
        assert not answer["vectors"][row, length:].any()
    assert np.abs(answer["vectors"]).max() > 0.1
    # The same word in two places: equal alone, different in context.
    first, second = answer["vectors"][0, 0], answer["vectors"][0, 4]
    np.testing.assert_array_equal(first[0], second[0])
    assert np.abs(first[1:] - second[1:]).max() > 1e-3


def test_a_batch_or_one_by_one(embed):
    found = embed(TEXTS)
    assert all(isinstance(vectors, WordVectors) for vectors in found)
    assert [np.shape(vectors.vectors)[:1] for vectors in found] == [(6,), (0,), (4,), (3,), (0,)]
    same_answers([embed(text) for text in TEXTS], found)


@pytest.mark.slow
def test_the_export_answers_as_the_pipeline_does(exported, embed):
    signatures = tf.saved_model.load(str(exported)).signatures
    outputs = signatures["serving_default"](text=tf.constant(TEXTS))
    arrays = {name: value.numpy() for name, value in outputs.items()}
    same_answers(typed_answers(arrays, embed), embed(TEXTS))


def test_it_comes_back_as_it_was(embed, tmp_path):
    again = restored(embed, tmp_path / "saved", TEXTS)
    assert again.tokenizer.max_characters == embed.tokenizer.max_characters
    names = {file.name for file in (tmp_path / "saved").iterdir()}
    assert names == {"pipeline.json", "model.json", "model.safetensors"}


def test_a_batch_of_nothing_and_texts_of_nothing(run):
    answer = run(text=tf.constant([], tf.string))
    assert answer["tokens"].shape == (0, 0)
    assert answer["vectors"].shape == (0, 0, 3, 12)
    assert answer["num_tokens"].shape == (0,)
    answer = run(text=tf.constant(["", " "]))
    assert answer["vectors"].shape == (2, 0, 3, 12)
    assert answer["num_tokens"].tolist() == [0, 0]


def test_words_longer_than_48_bytes_are_read_by_their_beginning(embed):
    begin = "é" * 24
    found = embed([begin, begin + "one", begin + "other", begin[:-1]])
    vectors = [np.array(row.vectors[0]) for row in found]
    np.testing.assert_allclose(vectors[1], vectors[2], atol=1e-6)
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)
    assert np.abs(vectors[0] - vectors[3]).max() > 1e-3
    assert found[2].tokens == [begin + "other"]  # not trimmed


@pytest.mark.slow
def test_words_that_are_cut_already(model, run):
    words = [["the", "cat", ""], ["", "cat", "sat"], ["", "", ""], ["new york", "", "cat"]]
    answer = run("words", words=tf.constant(words))
    assert answer["num_tokens"].tolist() == [2, 3, 0, 3]
    for row, length in zip(range(4), (2, 3, 0, 3), strict=True):
        ids = CharacterTokenizer().encode(
            tf.ragged.constant([words[row][:length]], dtype=tf.string)
        )
        expected = model({"character_ids": ids}, training=False)["layer_outputs"][0, 1:-1]
        np.testing.assert_allclose(answer["vectors"][row, :length], expected, atol=1e-5)
        assert not answer["vectors"][row, length:].any()
    for shape in ((0, 0), (2, 0), (0, 3)):
        answer = run("words", words=tf.zeros(shape, tf.string))
        assert answer["num_tokens"].tolist() == [0] * shape[0]
        assert answer["vectors"].shape == (shape[0], 0, 3, 12)


def test_rows_do_not_see_each_other_and_chunks_change_nothing(run):
    texts = [" ".join(f"word{i * j}" for j in range(1 + 30 * i)) for i in range(12)]
    together = run(text=tf.constant(texts))
    assert len(np.unique(together["tokens"])) > 700  # more than two chunks
    for row in (0, 5, 11):
        alone = run(text=tf.constant(texts[row : row + 1]))
        length = alone["num_tokens"][0]
        np.testing.assert_allclose(
            together["vectors"][row, :length], alone["vectors"][0], atol=1e-5
        )


@pytest.mark.slow
def test_a_stranger_needs_tensorflow_alone(exported):
    result = subprocess.run(
        [sys.executable, "-c", STRANGER, str(exported)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr[-2000:]
    shapes = json.loads(result.stdout.splitlines()[-1])
    assert shapes == {"num_tokens": [2], "tokens": [2, 2], "vectors": [2, 2, 3, 12]}


def test_the_model_is_as_before(model, tmp_path):
    same_outputs(vectors_of(round_trip(model, tmp_path), b"the cat"), vectors_of(model, b"the cat"))


@pytest.mark.slow
def test_what_is_stored_with_it(model, exported):
    metadata = json.loads((exported / METADATA_FILE).read_text())
    assert metadata["task"] == "word_embedding"
    assert (metadata["num_layers"], metadata["embedding_dim"]) == (3, 12)
    assert metadata["max_characters"] == 50
    assert metadata["lengths"] == {"num_tokens": ["tokens", "vectors"]}
    assert metadata["model"]["num_parameters"] == model.count_params()
    assert list(metadata["signatures"]) == ["serving_default", "words"]
    for signature in metadata["signatures"].values():
        assert len(signature["examples"]) == 4
    assert not list(check.failures(str(exported)))


@pytest.mark.slow
def test_a_predictor_cuts_rows_to_the_words_of_their_texts(exported, embed):
    predictor = Predictor(exported)
    assert predictor.text_names == embed.text_names
    rows = predictor({"text": ["the cat", "cat"]})
    assert [row["tokens"] for row in rows] == [["the", "cat"], ["cat"]]
    assert [np.shape(row["vectors"]) for row in rows] == [(2, 3, 12), (1, 3, 12)]


def test_other_models_are_refused(model):
    stranger = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)], name="stranger")
    for wrong in (stranger, features(model)):
        with pytest.raises(ValueError, match="character_ids.*layer_outputs"):
            WordEmbedder(wrong)
    small = elmo(lstm_dim=4, projection_dim=2, num_highways=0, filters=[(1, 2)], num_characters=261)
    with pytest.raises(ValueError, match="261 characters.*262"):
        WordEmbedder(small)


def test_examples_that_are_no_texts(embed):
    with pytest.raises(ValueError, match="examples must be strings"):
        embed.signatures([3])
