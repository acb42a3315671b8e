import itertools

import keras
import numpy as np
import pytest

from keras_transformers.layers.hierarchical_softmax import HierarchicalSoftmax, huffman_paths


def mean_length(counts):
    paths = huffman_paths(counts)
    return sum(count * len(path) for count, path in zip(counts, paths, strict=True))


def least_mean_length(counts):
    """Returns the cost of the best binary tree, found by trying every way to join nodes."""
    if len(counts) == 1:
        return 0
    costs = []
    for i, j in itertools.combinations(range(len(counts)), 2):
        rest = [count for k, count in enumerate(counts) if k not in (i, j)]
        joined = counts[i] + counts[j]
        costs.append(joined + least_mean_length([*rest, joined]))
    return min(costs)


@pytest.mark.parametrize(
    "counts", [[1, 1], [5, 1, 2], [1, 1, 1, 1], [8, 1, 3, 3, 2], [0, 0, 7], [13, 8, 5, 3, 2]]
)
def test_no_tree_is_better(counts):
    assert mean_length(counts) == least_mean_length(counts)


def test_ways_lead_from_the_root_to_different_leaves():
    paths = huffman_paths([3, 9, 1, 4, 4, 2, 7])
    assert len({tuple(path) for path in paths}) == 7
    assert {path[0][0] for path in paths} == {5}  # the last of the inner nodes 0 to 5
    turns = {turn for path in paths for turn in path}
    assert turns == set(itertools.product(range(6), [False, True]))


@pytest.mark.parametrize("counts", [[4, 4], [1, 2, 4, 8, 16, 32], [5] * 9, [0, 1, 1000]])
def test_probabilities_sum_to_one(counts):
    layer = HierarchicalSoftmax(counts)
    vectors = np.random.default_rng(3).normal(size=(20, 5)).astype("float32")
    layer.build(vectors.shape)
    lengths = np.array([len(path) for path in huffman_paths(counts)])
    np.testing.assert_allclose(np.exp(layer(vectors)[0]), 2.0**-lengths, rtol=1e-5)
    layer.set_weights([np.random.default_rng(4).normal(0, 3, (5, len(counts) - 1))])
    probabilities = np.exp(layer(vectors))
    np.testing.assert_allclose(probabilities.sum(-1), np.ones(20), atol=1e-5)
    assert probabilities.std() > 0.05


def test_a_probability_is_the_product_of_its_turns():
    layer = HierarchicalSoftmax([5, 1, 2])
    layer.build((None, 2))
    kernel = np.array([[0.5, -1.0], [2.0, 0.25]], "float32")  # (width, nodes)
    layer.set_weights([kernel])
    vector = np.array([[1.0, -1.0]], "float32")
    inner, root = 1 / (1 + np.exp(-(vector @ kernel)[0]))
    expected = [root, (1 - root) * (1 - inner), (1 - root) * inner]
    np.testing.assert_allclose(np.exp(layer(vector)[0]), expected, rtol=1e-5)


def test_far_from_zero_nothing_overflows():
    layer = HierarchicalSoftmax([1, 2, 3])
    layer.build((None, 1))
    layer.set_weights([np.array([[500.0, -500.0]], "float32")])
    logits = keras.ops.convert_to_numpy(layer(np.array([[1.0], [-1.0]], "float32")))
    assert np.isfinite(logits).all()
    np.testing.assert_allclose(np.exp(logits).sum(-1), [1, 1])


@pytest.mark.parametrize("counts", [[], [4], [3, -1]])
def test_counts_that_make_no_tree(counts):
    with pytest.raises(ValueError, match="class counts .*: expected at least 2, none negative"):
        HierarchicalSoftmax(counts)
