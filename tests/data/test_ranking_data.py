"""Lists of documents, and their batches."""

import numpy as np
import pytest
import tiny
from pipelines_without_models import Reader

from keras_transformers.data.text import Examples, RankingBatches, document_lists

QUERIES = ["a film"] * 5 + ["good"] * 2 + ["bad"]
DOCUMENTS = ["good", "bad", "very long film", "!", "a", "film", "good good", "a long film !"]
LABELS = ["0", "1", "0", "0", "1", "0", "1", "0"]
EXAMPLES = Examples(QUERIES, DOCUMENTS, LABELS)


def reader(length=16):
    return Reader(tiny.wordpiece(), max_sequence_length=length)


def test_lists_have_a_relevant_document_and_all_others_between_them():
    assert document_lists(EXAMPLES, 8) == [[1, 0, 2, 3], [4, 0, 2, 3], [6, 5], [7]]
    assert document_lists(EXAMPLES, 3) == [[1, 0, 2], [4, 3, 0], [6, 5], [7]]
    assert document_lists(EXAMPLES, 2) == [[1, 0], [4, 2], [1, 3], [6, 5], [7]]
    assert document_lists(EXAMPLES, 1) == [[row] for row in range(8)]


def test_only_relevant_documents_and_the_scores_of_a_teacher():
    relevant = Examples(["a", "a"], ["b", "c"], ["1", "1"])
    assert document_lists(relevant, 8) == [[0], [1]]
    scored = Examples(["a"] * 5, list("bcdef"), ["0.5", "1", "0", "3", "-1"])
    assert document_lists(scored, 3) == [[0, 1, 2], [3, 4]]


def test_batches_have_the_tokens_of_pairs_and_padding():
    batches = RankingBatches(EXAMPLES, reader(), batch_size=100, shuffle=False, list_size=3)
    ((inputs, targets, weights),) = batches.dataset()
    wanted = [[1, 0, 0], [1, 0, 0], [1, 0, -1], [0, -1, -1]]
    np.testing.assert_array_equal(targets["score"], wanted)
    np.testing.assert_array_equal(weights["score"], np.array(wanted) >= 0)
    pipeline = reader()
    for number, rows in enumerate(document_lists(EXAMPLES, 3)):
        for place in range(3):
            mask = inputs["padding_mask"][number, place]
            ids = inputs["token_ids"][number, place][mask].numpy().tolist()
            if place >= len(rows):
                assert ids == []
                continue
            row = rows[place]
            expected = pipeline.encode([QUERIES[row]], [DOCUMENTS[row]])["token_ids"][0]
            assert ids == expected.numpy().tolist()


@pytest.mark.one_case
@pytest.mark.parametrize(("size", "batch", "rows"), [(3, 7, 2), (3, 2, 1), (1, 4, 4), (8, 8, 2)])
def test_the_batch_size_counts_pairs(size, batch, rows):
    batches = RankingBatches(EXAMPLES, reader(), batch_size=batch, list_size=size)
    assert batches.batch_size == rows
    inputs, *_ = next(iter(batches.dataset()))
    assert len(inputs["token_ids"]) == rows


def test_weights_are_those_of_pairs_in_training_alone():
    weighted = Examples(QUERIES, DOCUMENTS, LABELS, weights=[float(i) for i in range(8)])
    batches = RankingBatches(weighted, reader(), batch_size=100, shuffle=False, list_size=3)
    ((_, _, weights),) = batches.dataset()
    np.testing.assert_array_equal(weights["score"], [[1, 0, 2], [4, 3, 0], [6, 5, 0], [7, 0, 0]])
    ((_, _, weights),) = batches.of(weighted).dataset()
    np.testing.assert_array_equal(weights["score"].numpy().sum(), 9)


def test_scores_come_back_in_the_order_of_pairs():
    batches = RankingBatches(EXAMPLES, reader(), batch_size=4, shuffle=False, list_size=3)
    lists = document_lists(EXAMPLES, 3)
    outputs = [[[*map(float, rows), -1e9, -1e9][:3] for rows in lists[i : i + 2]] for i in (0, 2)]
    np.testing.assert_array_equal(batches.by_pair(map(np.array, outputs)), np.arange(8))


def test_static_shapes_have_full_batches():
    batches = RankingBatches(
        EXAMPLES, reader(), batch_size=9, shuffle=False, static_shapes=1, list_size=3
    )
    shapes = {tuple(inputs["token_ids"].shape) for inputs, *_ in batches.dataset()}
    assert len(shapes) == 1
    assert next(iter(shapes))[:2] == (3, 3)
    assert sum(float(w["score"].numpy().sum()) for *_, w in batches.dataset()) == 9


def test_examples_without_scores_are_refused():
    with pytest.raises(ValueError, match="no examples"):
        RankingBatches(Examples([], [], []), reader(), batch_size=2)
    with pytest.raises(ValueError, match="'x', expected a finite number"):
        RankingBatches(Examples(["a"], ["b"], ["x"]), reader(), batch_size=2, list_size=1)
