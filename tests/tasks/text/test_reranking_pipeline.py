"""Reranking: the scores are the cross-encoder's, and CrossEncoders load into it."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tiny

import keras_transformers as kt

QUERIES = ["a good film", "very bad", ""]
DOCUMENTS = [["bad film .", "good !", "a"], ["", "very long film", ""], []]


@pytest.fixture(scope="module")
def rank():
    return tiny.pipeline("reranking")


def test_scores_are_those_of_pairs(rank):
    score = kt.pipelines.TextRegressor(rank.model, rank.tokenizer, activation="sigmoid", pair=True)
    found = rank(QUERIES, DOCUMENTS)
    for query, documents, ranking in zip(QUERIES, DOCUMENTS, found, strict=True):
        pairs = [(i, document) for i, document in enumerate(documents) if document]
        expected = [score(query, document).score for _, document in pairs]
        np.testing.assert_allclose([ranking.scores[i] for i, _ in pairs], expected, atol=1e-6)
        order = [pairs[i][0] for i in np.argsort(-np.array(expected), kind="stable")]
        real = [i for i in ranking.order if i >= 0]
        assert real == order
        assert all(ranking.scores[i] == 0 for i, text in enumerate(documents) if not text
                   and i < len(ranking.scores))  # fmt: skip


def test_one_query(rank):
    found = rank("a good film", ["bad film", "good"])
    assert found == rank(["a good film"], [["bad film", "good"]])[0]
    assert sorted(found.order) == [0, 1]


def test_linear_scores(rank):
    linear = kt.pipelines.Reranker(rank.model, rank.tokenizer, activation="linear")
    one, other = (each("a film", ["good", "bad"]).scores for each in (rank, linear))
    np.testing.assert_allclose(one, 1 / (1 + np.exp(-np.array(other))), atol=1e-6)
    with pytest.raises(ValueError, match="activation='tanh': use 'linear' or 'sigmoid'"):
        kt.pipelines.Reranker(rank.model, rank.tokenizer, activation="tanh")


def test_the_export_answers_the_same():
    loaded = tf.saved_model.load(str(tiny.exported("reranking")))
    documents = tf.constant([["bad film .", "good !", ""], ["film", "", ""]])
    found = loaded.signatures["serving_default"](
        text=tf.constant(["a good film", "bad"]), documents=documents
    )
    expected = tiny.pipeline("reranking").answer(
        text=tf.constant(["a good film", "bad"]), documents=documents
    )
    assert found["num_documents"].numpy().tolist() == [2, 1]
    np.testing.assert_array_equal(found["order"], expected["order"])
    np.testing.assert_allclose(found["scores"], expected["scores"], atol=1e-5)


def test_other_formats(rank, tmp_path):
    folder = kt.save(rank, tmp_path / "saved", format="huggingface")
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["sentence_transformers"]["activation_fn"].endswith("Sigmoid")
    again = kt.load(folder)
    assert isinstance(again, kt.pipelines.Reranker)
    assert again("a film", ["good", "bad"]).order == rank("a film", ["good", "bad"]).order
    # Without our own file, it is what CrossEncoder saves: a regressor, unless asked for more.
    (folder / "keras_transformers.json").unlink()
    assert isinstance(kt.load(folder), kt.pipelines.TextRegressor)
    asked = kt.load(folder, pipeline="reranking")
    np.testing.assert_allclose(
        asked("a film", ["good", "bad"]).scores, rank("a film", ["good", "bad"]).scores, atol=1e-6
    )


@pytest.mark.reference
def test_it_ranks_as_cross_encoder(rank, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    folder = kt.save(rank, tmp_path / "saved", format="huggingface")
    theirs = sentence_transformers.CrossEncoder(str(folder))
    documents = ["bad film .", "good !", "a", "very long film"]
    expected = theirs.rank("a good film", documents)
    found = rank("a good film", documents)
    assert [each["corpus_id"] for each in expected] == list(found.order)
    np.testing.assert_allclose(
        [each["score"] for each in expected], [found.scores[i] for i in found.order], atol=1e-5
    )
