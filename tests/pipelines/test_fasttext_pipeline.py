"""The classification export with fastText: the same signatures, the hashing in the graph."""

import json

import graph_checks
import keras
import numpy as np
import pytest
import tensorflow as tf
from keras_transformers.export import classifier, predict
from tensorflow.core.framework import types_pb2

from keras_transformers.models.fasttext import fasttext, hierarchical_classifier
from keras_transformers.models.heads import classifier as flat_classifier
from keras_transformers.saved_model.description import METADATA_FILE
from keras_transformers.tokenizers import NgramTokenizer

LABELS = ["negative", "positive"]
TEXTS = ["a good film", "très mauvais 😂", "", b"\xff\x00 \x80 film"]


@pytest.fixture(scope="module")
def tokenizer():
    return NgramTokenizer(
        ["</s>", "a", "good", "film"],
        num_buckets=500,
        word_ngrams=2,
        min_characters=2,
        max_characters=4,
    )


def lively(model):
    generator = np.random.default_rng(5)
    model.set_weights([generator.normal(size=w.shape) for w in model.get_weights()])
    return model


@pytest.fixture(scope="module")
def model(tokenizer):
    encoder = fasttext(vocabulary_size=tokenizer.vocabulary_size, embedding_dim=6)
    return lively(flat_classifier(encoder, 2, dropout=0.0))


@pytest.fixture(scope="module")
def exported(model, tokenizer, tmp_path_factory):
    """Checked in a fresh process, after both loaders, by `classifier` itself."""
    base = tmp_path_factory.mktemp("base")
    return classifier(model, tokenizer, LABELS, base, max_sequence_length=200)


def test_the_export_answers_as_the_model_does(exported, model, tokenizer):
    tokens = tokenizer(TEXTS, max_sequence_length=200)
    logits = model(tokens)["logits"]
    expected = keras.ops.softmax(logits).numpy()
    assert np.ptp(expected[:, 0]) > 0.1
    texts = [t if isinstance(t, bytes) else t.encode() for t in TEXTS]
    answers = predict(exported, {"text": texts})
    np.testing.assert_allclose([a["probabilities"] for a in answers], expected, atol=1e-5)
    assert [a["label"] for a in answers] == [LABELS[i] for i in expected.argmax(-1)]
    rows = {name: value.numpy().tolist() for name, value in tokens.items()}
    by_tokens = predict(exported, rows, signature="tokens")
    np.testing.assert_allclose([a["probabilities"] for a in by_tokens], expected, atol=1e-5)


def test_longer_texts_lose_what_is_beyond(model, tokenizer, tmp_path):
    folder = classifier(model, tokenizer, LABELS, tmp_path, max_sequence_length=3, check=False)
    one, other = predict(folder, {"text": ["a good", "a good film, this"]})
    assert one["probabilities"] == pytest.approx(other["probabilities"])
    assert json.loads((folder / METADATA_FILE).read_text())["max_sequence_length"] == 3


def test_core_ops_alone_and_strings_on_the_cpu(exported):
    found = {node.op for node in graph_checks.nodes(exported)}
    assert "LookupTableFindV2" in found
    assert not {
        op for op in found if op.startswith(("Fast", "Sentencepiece")) or "Py" in op or ">" in op
    }
    # A loader makes the dictionary's table, and fills it: no device but the CPU could.
    unpinned = [node.op for node in graph_checks.nodes(exported) if is_loose_string(node)]
    assert sorted(unpinned) == ["Const", "HashTableV2", "HashTableV2", "LookupTableImportV2"]


def is_loose_string(node):
    attributes = node.attr.values()
    types = {a.type for a in attributes} | {t for a in attributes for t in a.list.type}
    plumbing = {"Placeholder", "Identity", "StatefulPartitionedCall", "PartitionedCall"}
    return (
        types_pb2.DT_STRING in types and node.op not in plumbing and "device:CPU" not in node.device
    )


def test_tokens_that_do_not_fit_are_refused(exported):
    with pytest.raises(tf.errors.InvalidArgumentError, match="token_ids beyond the 504 tokens"):
        predict(exported, {"token_ids": [[504]], "padding_mask": [[True]]}, signature="tokens")


def test_a_hierarchical_one(tokenizer, tmp_path):
    encoder = fasttext(vocabulary_size=tokenizer.vocabulary_size, embedding_dim=6)
    model = lively(hierarchical_classifier(encoder, [7, 1, 2]))
    folder = classifier(
        model, tokenizer, ["a", "b", "c"], tmp_path, max_sequence_length=50, check=False
    )
    (answer,) = predict(folder, {"text": ["a good film"]})
    logits = model(tokenizer(["a good film"], max_sequence_length=50))["logits"]
    np.testing.assert_allclose(answer["probabilities"], np.exp(logits[0]), atol=1e-5)


def test_what_does_not_fit(model, tokenizer, tmp_path):
    with pytest.raises(ValueError, match="max_sequence_length=None: .* takes any number of tokens"):
        classifier(model, tokenizer, LABELS, tmp_path)
    with pytest.raises(ValueError, match="a bag has no second text"):
        classifier(model, tokenizer, LABELS, tmp_path, max_sequence_length=9, pair=True)
    other = NgramTokenizer(["</s>"], num_buckets=7, word_ngrams=2)
    with pytest.raises(ValueError, match="tokenizer has 8 tokens and model .* embeds 504"):
        classifier(model, other, LABELS, tmp_path, max_sequence_length=9)
