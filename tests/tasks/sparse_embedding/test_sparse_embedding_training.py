"""Training of sparse embedders, and their figures."""

import keras
import numpy as np
import pytest
import tiny

import keras_transformers as kt
from keras_transformers import heads
from keras_transformers.tasks.sparse_embedding.answer import SparseEmbedding
from keras_transformers.tasks.sparse_embedding.searching import search_scores, searched

WORDS = ("good", "bad", "long", "very")
PAIRS = [(f"a {word} film", f"{word} !") for word in WORDS] * 6
OPTIONS = {"learning_rate": 2e-2, "batch_size": 8, "quiet": True}


def fresh(**options):
    keras.utils.set_random_seed(1)
    model = heads.sparse_embedder(tiny.encoder())
    return kt.pipelines.SparseEmbedder(model, tiny.wordpiece(), **options)


def test_the_regularizer_makes_weights_few():
    counts = []
    for factor in (0.0, 1.0):
        pipeline = fresh()
        options = {"query_regularizer": factor, "document_regularizer": factor}
        kt.fit(pipeline, PAIRS, epochs=4, **options, **OPTIONS)
        found = kt.evaluate(pipeline, PAIRS)
        counts.append(found["active_dims_of_documents"])
        names = {"recall_at_1", "mrr_at_10", "ndcg_at_10", "flops", "active_dims_of_queries"}
        assert names <= set(found)
    assert counts[1] < counts[0]


def test_a_teachers_scores():
    rows = [(*pair, ["film"], [3.0, 1.0]) for pair in PAIRS]
    history = kt.fit(fresh(), rows, epochs=5, query_regularizer=0.0, **OPTIONS).history
    assert history["loss"][-1] < history["loss"][0] / 2


@pytest.mark.parametrize(
    ("rows", "parts"),
    [
        ([("a film", "good", ["film"], [3.0])], ["row 0", "1 teacher's scores for 2 documents"]),
        ([("a film", "good", ["film"], ["high"])], ["row 0", "'high'", "teacher's scores"]),
        ([("a film", "good", [3])], ["row 0", "[3]", "does not answer"]),
        (
            {"text": ["a film"], "text_b": ["good"], "score": [[1.0]]},
            ["row 0", "1 teacher's scores for 1 documents", "at least one negative"],
        ),
    ],
)
def test_bad_rows(rows, parts):
    with pytest.raises(ValueError, match=".") as caught:
        kt.fit(tiny.pipeline("sparse_embedding"), rows, **OPTIONS)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.slow
def test_a_table_is_what_queries_weigh_in_training():
    pipeline = fresh(
        query_weights={"good": 3.0, "bad": 3.0, "long": 3.0, "film": 0.1, "[CLS]": 9.0}
    )
    grouped = heads.grouped_sparse_embedder(pipeline.model, query_table=pipeline.query_table)
    inputs = {
        "token_ids": np.array([[[2, 7, 7, 6, 3], [2, 5, 3, 0, 0]]]),  # good good film; a
        "segment_ids": np.zeros((1, 2, 5), "int32"),
        "padding_mask": np.array([[[True] * 5, [True] * 3 + [False] * 2]]),
    }
    found = grouped(inputs)["sparse_embedding"].numpy()[0]
    wanted = np.zeros(14)
    wanted[[7, 6]] = 3.0, 0.1
    np.testing.assert_allclose(found[0], wanted)
    alone = {name: x[:, 1] for name, x in inputs.items()}
    document = pipeline.model(alone)["sparse_embedding"][0]
    np.testing.assert_allclose(found[1], document, atol=1e-6)
    words = [pair for pair in PAIRS if "very" not in pair[0]]
    kt.fit(pipeline, words, epochs=6, **OPTIONS)
    assert kt.evaluate(pipeline, words)["recall_at_1"] == 1


def test_products_of_an_inverted_index():
    pairs = kt.data.text.TextPairs(["q", "r"], ["d", "e"])
    vectors = {
        "q": SparseEmbedding([1, 4], [1.0, 2.0], ["a", "b"]),
        "r": SparseEmbedding([3], [5.0], ["c"]),
        "d": SparseEmbedding([4, 1], [3.0, 1.0], ["b", "a"]),
        "e": SparseEmbedding([], [], []),
    }
    found = searched(lambda texts, side: [vectors[text] for text in texts], pairs)
    assert found["similarities"].tolist() == [[7.0, 0.0], [0.0, 0.0]]
    scores = search_scores(found, pairs)
    assert scores["flops"] == 2 / 4
    assert scores["active_dims_of_queries"] == 1.5
    assert scores["active_dims_of_documents"] == 1.0
    assert scores["recall_at_1"] == 0.5


def test_an_export_is_measured(tmp_path):
    pipeline = tiny.pipeline("sparse_embedding")
    report = kt.saved_model.evaluate_export(tiny.exported("sparse_embedding"), PAIRS)
    wanted = kt.evaluate(pipeline, PAIRS)
    assert report.figures["ndcg_at_10"] == pytest.approx(wanted["ndcg_at_10"])
