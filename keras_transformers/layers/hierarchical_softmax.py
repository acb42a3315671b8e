"""Classes as the leaves of a binary tree: a probability is the product of the turns on its way."""

import heapq
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformers.layers.dense import PACKAGE


def huffman_paths(counts: Sequence[int]) -> list[list[tuple[int, bool]]]:
    """The way from the root to each class in the Huffman tree of these counts.

    Frequent classes stand near the root: the mean length of the ways is the least that there can
    be (Huffman 1952). Ties are broken as fastText does.

    Args:
        counts: how often each class occurs; two classes or more.

    Returns:
        For each class its turns: (inner node, whether to its right). The inner nodes are numbered
        from 0 to classes - 2, the root last.

    Raises:
        ValueError: fewer than two classes, or a count below 0.

    Example:
        >>> huffman_paths([5, 1, 2])
        [[(1, True)], [(1, False), (0, False)], [(1, False), (0, True)]]
    """
    if len(counts) < 2 or min(counts) < 0:
        raise ValueError(f"class counts {list(counts)}: give 2 or more, none below 0")
    num_classes = len(counts)
    # (count, is a leaf, order, node): of equal counts inner nodes come first, the oldest first, and
    # of leaves the one that comes last when classes are sorted from frequent to rare.
    frequent_first = sorted(range(num_classes), key=lambda node: -counts[node])
    heap = [(counts[node], True, -rank, node) for rank, node in enumerate(frequent_first)]
    heapq.heapify(heap)
    turns: dict[int, tuple[int, bool]] = {}  # node -> (inner node above it, whether to its right)
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
    """Log-probabilities of classes by a Huffman tree (Joulin et al. 2016, section 2.1).

    Each inner node has a vector v: from a text's vector h its way goes right with probability
    sigmoid(v . h). The outputs are log-probabilities, which softmax leaves as they are: losses and
    exports take them for logits. There are classes - 1 vectors and no biases, all 0 at the start,
    where a class has probability 1 / 2^(length of its way).

    fastText goes down one way in each step of training, and spares the others. Here a step scores
    all the nodes in one matrix product, like a flat softmax, and takes about as long: what the tree
    gives is the model, not the time.

    Args:
        class_counts: how often each class occurs in training, in the order of the outputs.

    Raises:
        ValueError: fewer than two classes, or a count below 0.
    """

    def __init__(self, class_counts: Sequence[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.class_counts = [int(count) for count in class_counts]
        paths = huffman_paths(self.class_counts)
        self.num_nodes = len(paths) - 1
        # Of each class the turns, to the left at 0 to nodes - 1, to the right from `nodes` on; ways
        # that are shorter than the longest end with the last number, which stands for no turn.
        longest = max(len(path) for path in paths)
        self._turns = np.full((len(paths), longest), 2 * self.num_nodes, "int32")
        for turns, path in zip(self._turns, paths, strict=True):
            turns[: len(path)] = [node + self.num_nodes * is_right for node, is_right in path]

    def build(self, input_shape: Any) -> None:
        """Makes a vector for each inner node."""
        self.kernel = self.add_weight(
            name="kernel", shape=(input_shape[-1], self.num_nodes), initializer="zeros"
        )

    def call(self, vectors: Any) -> Any:
        """Maps (batch, width) to log-probabilities (batch, classes)."""
        scores = ops.matmul(vectors, self.kernel)  # (batch, nodes)
        left, right = ops.log_sigmoid(-scores), ops.log_sigmoid(scores)
        turns = ops.concatenate([left, right, ops.zeros_like(scores[:, :1])], axis=-1)
        return ops.sum(ops.take(turns, self._turns, axis=-1), axis=-1)  # (batch, classes, turns)

    def compute_output_spec(self, vectors: Any) -> Any:
        """Shape and dtype of `call`'s result."""
        shape = (*vectors.shape[:-1], len(self.class_counts))
        return keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return super().get_config() | {"class_counts": self.class_counts}
