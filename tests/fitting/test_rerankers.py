"""Training of rerankers: lists of documents, and documents that BM25 finds."""

import numpy as np
import pytest
import tiny

import keras_transformers as kt
from keras_transformers.evaluation.retrieval import bm25_best, bm25_similarities
from keras_transformers.tasks.task import trainer_of

QUERIES = ["good film", "bad film", "long film", "good film"]
DOCUMENTS = ["a good film .", "a very bad film", "long !", "good good !"]


def read(data, **options):
    rank = tiny.pipeline("reranking")
    trainer = trainer_of(rank)
    (examples,) = trainer.read(rank, {"data": data}, {}, **options)
    return trainer, rank, examples


def test_bm25_finds_the_best_documents_of_others():
    own = [{DOCUMENTS[0], DOCUMENTS[3]}, {DOCUMENTS[1]}]
    found = list(bm25_best(QUERIES[:2], DOCUMENTS, own, 2))
    scores = bm25_similarities(QUERIES[:2], DOCUMENTS)
    assert found[0] == [i for i in np.argsort(-scores[0], kind="stable") if i in (1, 2)]
    assert found[1] == [i for i in np.argsort(-scores[1], kind="stable") if i != 1][:2]


def test_pairs_alone_get_documents_that_do_not_answer():
    _, _, examples = read((QUERIES, DOCUMENTS, [1, 1, 1, 1]))
    labels = np.array(examples.labels, float)
    pairs = list(zip(examples.texts, examples.texts_b, strict=True))
    right = set(zip(QUERIES, DOCUMENTS, strict=True))
    assert {pair for pair, label in zip(pairs, labels, strict=True) if label == 1} == right
    wrong = [pair for pair, label in zip(pairs, labels, strict=True) if label == 0]
    assert not set(wrong) & right
    assert len(wrong) == len(set(wrong)) == 2 + 3 + 3  # all others, of which there are few


def test_mined_documents_have_the_weight_of_their_query():
    data = {
        "text": QUERIES[:3],
        "text_b": DOCUMENTS[:3],
        "score": [1, 1, 1],
        "weight": [1.0, 2.0, 3.0],
    }
    _, _, examples = read(data, weighted=True)
    wanted = dict(zip(QUERIES, data["weight"], strict=False))
    assert len(examples) == 9
    assert [wanted[text] for text in examples.texts] == list(examples.weights)


def test_data_with_documents_that_do_not_answer_stays_as_it_is():
    _, _, examples = read((QUERIES, DOCUMENTS, [1, 1, 1, 0]))
    assert list(examples.texts_b) == DOCUMENTS


def test_lists_of_one_are_trained_by_the_binary_crossentropy_alone():
    data = (QUERIES, DOCUMENTS, [1, 0, 1, 0])
    trainer, rank, examples = read(data)
    outputs, means, labels = {}, {}, None
    for size in (1, 8):
        options = trainer.options(list_size=size, batch_size=64)
        batches = trainer.batches(examples, rank, **options.batching(), shuffle=False)
        ((inputs, targets, weights),) = batches.dataset()
        outputs[size] = trainer.model(rank, examples)(inputs)["score"]
        loss = trainer.losses(rank, examples, options)["loss"]["score"]
        labels = targets["score"] if labels is None else labels  # of lists of one
        means[size] = float(loss(targets["score"], outputs[size], weights["score"]))
    scores = np.asarray(outputs[1])[:, 0].astype(float)
    probabilities = 1 / (1 + np.exp(-scores))
    right = np.asarray(labels)[:, 0] == 1
    wanted = -np.log(np.where(right, probabilities, 1 - probabilities)).mean()
    assert means[1] == pytest.approx(wanted, rel=1e-5)
    assert means[8] > wanted  # which also compares the two documents of a query


@pytest.mark.slow
def test_pairs_alone_can_be_trained_and_measured():
    rank = tiny.pipeline("reranking")
    trained = type(rank).restore(rank.model, rank.tokenizers, **rank.config())
    before = [weight.copy() for weight in rank.model.get_weights()]
    data = (QUERIES, DOCUMENTS, [1, 1, 1, 1])
    history = kt.fit(trained, data, validation=data, epochs=1, quiet=True)
    rank.model.set_weights(before)  # which other tests read
    assert {"loss", "val_ndcg_at_10", "val_accuracy"} <= set(history.history)
