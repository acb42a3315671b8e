"""Pairs of labelled texts: as many as SetFit's oversampling makes, and their batches."""

import collections

import numpy as np
import pytest
import tiny

from keras_transformers.data.text import (
    Examples,
    LabelPairBatches,
    LabelSets,
    few_of_each,
    label_pairs,
)


def one_each(*counts):
    return np.repeat(np.eye(len(counts)), counts, axis=0)


@pytest.mark.parametrize(
    ("counts", "same", "different"),
    [((8, 8), 72, 64), ((16, 16), 272, 256), ((2, 9), 48, 18), ((3, 3, 3), 18, 27)],
)
def test_all_pairs_occur_and_the_rarer_kind_is_repeated(counts, same, different):
    has = one_each(*counts)
    pairs, share = label_pairs(has)
    size = max(same, different)
    assert len(pairs) == 2 * size
    assert share.sum() == size
    found = collections.Counter(map(tuple, pairs.tolist()))
    assert len(found) == same + different == len(has) * (len(has) + 1) // 2
    assert (pairs[:, 0] <= pairs[:, 1]).all()
    assert np.array_equal(share, (has[pairs[:, 0]] * has[pairs[:, 1]]).sum(axis=1))
    times = {kind: [n for (a, b), n in found.items() if (has[a] @ has[b] > 0) == kind]
             for kind in (True, False)}  # fmt: skip
    assert all(max(x) - min(x) <= 1 for x in times.values())


def test_texts_with_several_labels_are_alike_if_they_share_one():
    has = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0], [0, 0, 0], [0, 0, 0]])
    pairs, share = label_pairs(has)
    found = dict(zip(map(tuple, pairs.tolist()), share.tolist(), strict=True))
    assert found == {(0, 0): 1, (1, 1): 1, (2, 2): 1, (0, 1): 1, (0, 2): 1, (1, 2): 0,
                     (0, 3): 0, (0, 4): 0, (1, 3): 0, (1, 4): 0, (2, 3): 0, (2, 4): 0}  # fmt: skip


@pytest.mark.parametrize("count", [1, 7, 40, 1000])
def test_a_number_of_pairs(count):
    pairs, share = label_pairs(one_each(8, 8), pairs=count, seed=1)
    assert len(pairs) == count
    assert share.sum() == -(-count // 2)
    again, _ = label_pairs(one_each(8, 8), pairs=count, seed=1)
    other, _ = label_pairs(one_each(8, 8), pairs=count, seed=2)
    assert np.array_equal(pairs, again)
    assert count == 1 or not np.array_equal(pairs, other)


@pytest.mark.parametrize(
    ("has", "message"),
    [
        (np.ones((3, 1)), "all 3 texts share a label"),
        (np.zeros((3, 1)), "all 3 texts have no label"),
        (np.ones((5001, 1)), "5001 texts: few-shot training compares all pairs of at most 5000"),
    ],
)
def test_texts_without_pairs(has, message):
    with pytest.raises(ValueError, match=message):
        label_pairs(has)


TEXTS = ["a good film", "good !", "a bad film", "bad !", "a very good film", "very bad"]
LABELS = ["positive", "positive", "negative", "negative", "positive", "negative"]


def batches(**options):
    examples = Examples(TEXTS, None, LABELS)
    return LabelPairBatches(examples, tiny.pipeline("classification"), **options)


def test_a_batch_has_each_text_once_and_a_text_paired_with_itself_twice():
    made = batches(batch_size=8, seed=3)
    assert len(made) == -(-made.num_rows // 8) == 3
    seen = collections.Counter()
    for inputs, targets in made.dataset().take(len(made)):
        pairs, share = inputs["pairs"].numpy(), targets["vectors"].numpy()
        rows = inputs["token_ids"].numpy()
        tokens = [tuple(row[row > 0].tolist()) for row in rows]
        assert sorted(set(pairs.ravel().tolist())) == list(range(len(rows)))
        assert (pairs[:, 0] != pairs[:, 1]).all()
        itself = {tokens[a] for a, b in pairs if tokens[a] == tokens[b]}
        assert all(n == 1 + (t in itself) for t, n in collections.Counter(tokens).items())
        encoded = tiny.wordpiece().tokenize(TEXTS).to_list()
        labels = {(2, *ids, 3): label for ids, label in zip(encoded, LABELS, strict=True)}
        for (a, b), same in zip(pairs, share, strict=True):
            assert same == (labels[tokens[a]] == labels[tokens[b]])
            seen[tuple(sorted((tokens[a], tokens[b])))] += 1
    assert len(seen) == 21, "all pairs of six texts"


def test_batches_of_other_examples_are_in_order():
    made = batches(batch_size=8, pairs=10)
    held_out = made.of(Examples(TEXTS, None, LABELS))
    assert held_out.num_rows == 10
    assert not held_out.shuffle
    one, other = (next(iter(held_out.dataset()))[0]["pairs"] for _ in range(2))
    assert np.array_equal(one, other)


def test_texts_are_drawn_for_each_label():
    texts = [f"text {i}" for i in range(40)]
    labels = [["a", "b"], ["b"], ["a"], []] * 10
    few = few_of_each(LabelSets(texts, None, labels), ["a", "b"], 4, seed=5)
    assert len(few) == 8 == len(set(few.texts))
    assert all("a" in row for row in few.labels[:4])
    assert all("b" in row for row in few.labels[4:])
    assert few.texts != few_of_each(LabelSets(texts, None, labels), ["a", "b"], 4, seed=6).texts
    with pytest.raises(ValueError, match="memory: 10 texts to draw for the label 'a', not 11"):
        few_of_each(Examples(texts, None, list("abcd") * 10), list("abcd"), 11)


def test_sets_become_single_labels():
    single = LabelSets(["x", "y"], None, [["a"], ["b"]], "file.tsv").with_one_label()
    assert single == Examples(["x", "y"], None, ["a", "b"], "file.tsv")
    with pytest.raises(ValueError, match=r"memory, row 1: 2 labels \['a', 'b'\], expected one"):
        LabelSets(["x", "y"], None, [["a"], ["a", "b"]]).with_one_label()
