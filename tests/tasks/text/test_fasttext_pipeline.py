"""Classification with fastText: the same signatures, with the hashing in the graph."""

import graph_checks
import numpy as np
import pytest
import tensorflow as tf
from pretrained_models import enlivened

from keras_transformers.families.fasttext.model import fasttext, hierarchical_classifier
from keras_transformers.pipelines import TextClassifier
from keras_transformers.tokenizers import NgramTokenizer

LABELS = ["negative", "positive"]
TEXTS = ["a good film", "très mauvais 😂", "", b"\xff\x00 \x80 film"]


@pytest.fixture(scope="module")
def classify(pipelines):
    return pipelines("fasttext")


def test_texts_and_tokens_get_the_models_answers(classify, run):
    tokens = classify.tokenizer(TEXTS, max_sequence_length=200)
    expected = tf.nn.softmax(classify.model(tokens)["logits"]).numpy()
    assert np.ptp(expected[:, 0]) > 0.1
    answers = classify(TEXTS)
    np.testing.assert_allclose([a.probabilities for a in answers], expected, atol=1e-5)
    assert [a.label for a in answers] == [LABELS[i] for i in expected.argmax(-1)]
    for served in (run("fasttext", text=tf.constant(TEXTS)), run("fasttext", "tokens", **tokens)):
        np.testing.assert_allclose(served["probabilities"], expected, atol=1e-5)


@pytest.mark.slow
def test_longer_texts_lose_what_is_beyond(classify):
    short = TextClassifier(classify.model, classify.tokenizer, LABELS, max_sequence_length=3)
    one, other = short(["a good", "a good film, this"])
    assert one.probabilities == pytest.approx(other.probabilities)
    assert short.metadata()["max_sequence_length"] == 3


@pytest.mark.slow
def test_core_ops_alone_and_strings_on_the_cpu(exports):
    folder = exports("fasttext")
    found = {node.op for node in graph_checks.nodes(folder)}
    assert "LookupTableFindV2" in found
    assert not {
        op for op in found if op.startswith(("Fast", "Sentencepiece")) or "Py" in op or ">" in op
    }
    strings = graph_checks.string_nodes(folder)
    assert [node.op for node in strings if "device:CPU" not in node.device] == []


def test_tokens_that_do_not_fit_are_refused(run):
    tokens = {"token_ids": tf.constant([[504]]), "padding_mask": tf.constant([[True]])}
    with pytest.raises(tf.errors.InvalidArgumentError, match="token_ids.*504 tokens"):
        run("fasttext", "tokens", **tokens)


@pytest.mark.slow
def test_a_hierarchical_one(classify):
    encoder = fasttext(vocabulary_size=classify.tokenizer.vocabulary_size, embedding_dim=6)
    model = enlivened(hierarchical_classifier(encoder, [7, 1, 2]), seed=5)
    other = TextClassifier(model, classify.tokenizer, ["a", "b", "c"], max_sequence_length=50)
    answer = other("a good film")
    logits = model(classify.tokenizer(["a good film"], max_sequence_length=50))["logits"]
    np.testing.assert_allclose(answer.probabilities, np.exp(logits[0]), atol=1e-5)


def test_what_does_not_fit(classify):
    model, tokenizer = classify.model, classify.tokenizer
    with pytest.raises(ValueError, match="max_sequence_length=None: .* takes any number of tokens"):
        TextClassifier(model, tokenizer, LABELS)
    with pytest.raises(ValueError, match="second text"):
        TextClassifier(model, tokenizer, LABELS, max_sequence_length=9, pair=True)
    other = NgramTokenizer(["</s>"], num_buckets=7, word_ngrams=2)
    with pytest.raises(ValueError, match="tokenizer has 8 tokens but model .* embeds 504"):
        TextClassifier(model, other, LABELS, max_sequence_length=9)
