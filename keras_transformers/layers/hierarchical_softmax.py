"""Hierarchical softmax: classes are the leaves of a binary tree."""

import heapq
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformers.layers.dense import PACKAGE
from keras_transformers.layers.tensors import Shape, Tensor

__all__ = ["HierarchicalSoftmax"]


def huffman_paths(counts: Sequence[int]) -> list[list[tuple[int, bool]]]:
    """Returns the path from the root to each class in the Huffman tree of the counts.

    Frequent classes are near the root: no binary tree has shorter paths on average (Huffman 1952).
    Ties are broken as in fastText.

    Args:
        counts: how often each class occurs, for at least two classes.

    Returns:
        For each class, the turns on its path as (inner node, whether it turns right) pairs. Inner
        nodes are numbered from 0 to classes - 2; the last one is the root.

    Raises:
        ValueError: fewer than two classes, or a negative count.

    Example:
        >>> huffman_paths([5, 1, 2])
        [[(1, True)], [(1, False), (0, False)], [(1, False), (0, True)]]
    """
    if len(counts) < 2 or min(counts) < 0:
        raise ValueError(f"class counts {list(counts)}: expected at least 2, none negative")
    num_classes = len(counts)
    # (count, is a leaf, order, node). For equal counts, inner nodes come first, oldest first; then
    # leaves, in reverse of the order from frequent to rare.
    frequent_first = sorted(range(num_classes), key=lambda node: -counts[node])
    heap = [(counts[node], True, -rank, node) for rank, node in enumerate(frequent_first)]
    heapq.heapify(heap)
    turns: dict[int, tuple[int, bool]] = {}  # node -> (parent, whether it is the right child)
    for inner in range(num_classes - 1):
        (left_count, *_, left), (right_count, *_, right) = heapq.heappop(heap), heapq.heappop(heap)
        turns[left], turns[right] = (inner, False), (inner, True)
        heapq.heappush(heap, (left_count + right_count, False, inner, num_classes + inner))
    paths = []
    for node in range(num_classes):
        path = []
        while node in turns:
            path.append(turns[node])
            node = num_classes + turns[node][0]
        paths.append(path[::-1])
    return paths


@keras.saving.register_keras_serializable(PACKAGE)
class HierarchicalSoftmax(keras.layers.Layer):
    """Computes log-probabilities of classes with a Huffman tree (Joulin et al. 2016, section 2.1).

    A class's probability is the product of the probabilities of its turns. Each inner node has a
    vector v, and a text with vector h turns right there with probability sigmoid(v . h). Softmax
    does not change log-probabilities, so losses and exports can use them as logits. The classes - 1
    vectors have no biases and start at 0, which gives a class probability 1 / 2^(path length).

    In training, fastText follows one path per step and skips all other nodes. This layer scores
    every node in one matrix product, so it takes about as long as a flat softmax.

    Args:
        class_counts: how often each class occurs in training, in the order of the outputs.

    Raises:
        ValueError: fewer than two classes, or a negative count.
    """

    def __init__(self, class_counts: Sequence[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.class_counts = [int(count) for count in class_counts]
        paths = huffman_paths(self.class_counts)
        self.num_nodes = len(paths) - 1
        # Each class's turns: `node` is a left turn, `num_nodes + node` a right turn, and
        # `2 * num_nodes` pads the shorter paths.
        longest = max(len(path) for path in paths)
        self._turns = np.full((len(paths), longest), 2 * self.num_nodes, "int32")
        for turns, path in zip(self._turns, paths, strict=True):
            turns[: len(path)] = [node + self.num_nodes * is_right for node, is_right in path]

    def build(self, input_shape: Shape) -> None:
        """Creates one vector per inner node."""
        self.kernel = self.add_weight(
            name="kernel", shape=(input_shape[-1], self.num_nodes), initializer="zeros"
        )

    def call(self, vectors: Tensor) -> Tensor:
        """Maps (batch, width) to log-probabilities (batch, classes)."""
        scores = ops.matmul(vectors, self.kernel)  # (batch, nodes)
        left, right = ops.log_sigmoid(-scores), ops.log_sigmoid(scores)
        turns = ops.concatenate([left, right, ops.zeros_like(scores[:, :1])], axis=-1)
        return ops.sum(ops.take(turns, self._turns, axis=-1), axis=-1)  # (batch, classes, turns)

    def compute_output_spec(self, vectors: Tensor) -> Tensor:
        """Returns the shape and dtype of `call`'s result."""
        shape = (*vectors.shape[:-1], len(self.class_counts))
        return keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {"class_counts": self.class_counts}
