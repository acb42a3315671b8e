"""ELMo's export: words and vectors of strings, equal to the model's."""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from checks import round_trip, same_outputs
from keras_transformers.export import Predictor, word_embedder

from keras_transformers.cli.main import main as cli
from keras_transformers.models.elmo import elmo, features
from keras_transformers.saved_model import check
from keras_transformers.saved_model.description import METADATA_FILE
from keras_transformers.tokenizers.characters import CharacterTokenizer

# What a stranger would write: nothing of ours, no tensorflow-text.
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
    for weight in model.weights:  # lively, so that every word matters
        weight.assign(generator.normal(0, 0.5, weight.shape))
    return model


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    """A checked export: read only."""
    return word_embedder(model, tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def loaded(exported):
    return tf.saved_model.load(str(exported))


def run(loaded, name="serving_default", **inputs):
    outputs = loaded.signatures[name](**inputs)
    return {key: value.numpy() for key, value in outputs.items()}


def vectors_of(model, text):
    """Of one text's words, by the model itself: (words, layers, dim)."""
    ids = CharacterTokenizer()(tf.constant([text]))
    return model(ids, training=False)["layer_outputs"][0, 1:-1].numpy()


def test_vectors_are_the_models(model, loaded):
    answer = run(loaded, text=tf.constant(TEXTS))
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
    # The same word in two places: alike alone, not in context.
    first, second = answer["vectors"][0, 0], answer["vectors"][0, 4]
    np.testing.assert_array_equal(first[0], second[0])
    assert np.abs(first[1:] - second[1:]).max() > 1e-3


def test_a_batch_of_nothing_and_texts_of_nothing(loaded):
    answer = run(loaded, text=tf.constant([], tf.string))
    assert answer["tokens"].shape == (0, 0)
    assert answer["vectors"].shape == (0, 0, 3, 12)
    assert answer["num_tokens"].shape == (0,)
    answer = run(loaded, text=tf.constant(["", " "]))
    assert answer["vectors"].shape == (2, 0, 3, 12)
    assert answer["num_tokens"].tolist() == [0, 0]


def test_words_longer_than_48_bytes_are_read_by_their_beginning(model, loaded):
    begin = "é" * 24
    answer = run(loaded, text=tf.constant([begin, begin + "one", begin + "other", begin[:-1]]))
    vectors = answer["vectors"][:, 0]
    np.testing.assert_allclose(vectors[1], vectors[2], atol=1e-6)
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)
    assert np.abs(vectors[0] - vectors[3]).max() > 1e-3
    assert answer["tokens"][2, 0].decode() == begin + "other"  # returned whole


def test_words_that_are_cut_already(model, loaded):
    words = [["the", "cat", ""], ["", "cat", "sat"], ["", "", ""], ["new york", "", "cat"]]
    answer = run(loaded, "words", words=tf.constant(words))
    assert answer["num_tokens"].tolist() == [2, 3, 0, 3]
    for row, length in zip(range(4), (2, 3, 0, 3), strict=True):
        ids = CharacterTokenizer().encode(
            tf.ragged.constant([words[row][:length]], dtype=tf.string)
        )
        expected = model({"character_ids": ids}, training=False)["layer_outputs"][0, 1:-1]
        np.testing.assert_allclose(answer["vectors"][row, :length], expected, atol=1e-5)
        assert not answer["vectors"][row, length:].any()
    for shape in ((0, 0), (2, 0), (0, 3)):
        answer = run(loaded, "words", words=tf.zeros(shape, tf.string))
        assert answer["num_tokens"].tolist() == [0] * shape[0]
        assert answer["vectors"].shape == (shape[0], 0, 3, 12)


def test_rows_do_not_see_each_other_and_chunks_change_nothing(loaded):
    texts = [" ".join(f"word{i * j}" for j in range(1 + 30 * i)) for i in range(12)]
    together = run(loaded, text=tf.constant(texts))
    assert len(np.unique(together["tokens"])) > 700  # more than two chunks of spelled words
    for row in (0, 5, 11):
        alone = run(loaded, text=tf.constant(texts[row : row + 1]))
        length = alone["num_tokens"][0]
        np.testing.assert_allclose(
            together["vectors"][row, :length], alone["vectors"][0], atol=1e-5
        )


def test_a_stranger_needs_tensorflow_alone(exported):
    result = subprocess.run(
        [sys.executable, "-c", STRANGER, str(exported)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr[-2000:]
    shapes = json.loads(result.stdout.splitlines()[-1])
    assert shapes == {"num_tokens": [2], "tokens": [2, 2], "vectors": [2, 2, 3, 12]}


def test_the_model_is_as_before(model, exported, tmp_path):
    same_outputs(vectors_of(round_trip(model, tmp_path), b"the cat"), vectors_of(model, b"the cat"))


def test_what_is_stored_with_it(model, exported):
    metadata = json.loads((exported / METADATA_FILE).read_text())
    assert metadata["task"] == "word_embedding"
    assert (metadata["num_layers"], metadata["embedding_dim"]) == (3, 12)
    assert metadata["max_characters"] == 50
    assert metadata["model"]["num_parameters"] == model.count_params()
    for signature in metadata["signatures"].values():
        assert len(signature["examples"]) == 4
    assert not list(check.failures(str(exported)))


def test_the_command_prints_a_row_a_text(exported, capsys):
    assert cli.main(["predict", str(exported), "--text", "the cat", "--text", "cat"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["tokens"] for row in rows] == [["the", "cat"], ["cat"]]
    assert [np.shape(row["vectors"]) for row in rows] == [(2, 3, 12), (1, 3, 12)]
    assert Predictor(exported).text_names == ("text",)


def test_other_models_are_refused(model, tmp_path):
    stranger = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)], name="stranger")
    for wrong in (stranger, features(model)):
        with pytest.raises(ValueError, match="must take character_ids and return layer_outputs"):
            word_embedder(wrong, tmp_path)
    small = elmo(lstm_dim=4, projection_dim=2, num_highways=0, filters=[(1, 2)], num_characters=261)
    with pytest.raises(ValueError, match="embeds 261 characters and the tokenizer has 262"):
        word_embedder(small, tmp_path)
    with pytest.raises(ValueError, match="examples must be strings"):
        word_embedder(model, tmp_path, examples=[3])
    assert not list(tmp_path.iterdir())
