"""Relative positions: a learned bias on the attention scores for each distance between tokens."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformers.layers.dense import PACKAGE
from keras_transformers.layers.embeddings import Embedding
from keras_transformers.layers.tensors import Initializer, Tensor

__all__ = ["RelativePositionBias"]


@keras.saving.register_keras_serializable(PACKAGE)
class RelativePositionBias(Embedding):
    """Computes the bias on T5's and MPNet's attention scores: one number per distance and head.

    Distances are grouped into buckets: each small distance has its own, larger ones share wider and
    wider buckets, and all from `max_distance` on share the last. One layer serves all encoder
    layers. Raffel et al. 2020, section 2.1 (arXiv:1910.10683).

    Args:
        num_buckets: number of buckets, even, at least 4 (Hugging Face:
            relative_attention_num_buckets).
        num_heads: number of attention heads.
        max_distance: all distances from this one on share a bucket.
        bidirectional: whether keys after the query have their own buckets, half of the total;
            otherwise they share the bucket of distance 0, and a causal mask hides them.
        embeddings_initializer: initializer of the (num_buckets, num_heads) matrix.

    Raises:
        ValueError: `num_buckets` is odd or below 4, or `max_distance` is not larger than the number
            of distances with their own buckets.

    Example:
        >>> layer = RelativePositionBias(num_buckets=32, num_heads=2)
        >>> layer(keras.ops.ones((5, 3, 8))).shape
        TensorShape([1, 2, 3, 3])
    """

    def __init__(
        self,
        num_buckets: int,
        num_heads: int,
        *,
        max_distance: int = 128,
        bidirectional: bool = True,
        embeddings_initializer: Initializer = "uniform",
        **kwargs: Any,
    ) -> None:
        if num_buckets < 4 or num_buckets % 2:
            raise ValueError(f"num_buckets={num_buckets}: expected an even number, at least 4")
        if max_distance <= num_buckets // (4 if bidirectional else 2):
            raise ValueError(
                f"max_distance={max_distance} is too small for num_buckets={num_buckets}: small "
                "distances already have their own buckets"
            )
        super().__init__(
            num_buckets, num_heads, embeddings_initializer=embeddings_initializer, **kwargs
        )
        self.num_buckets = num_buckets
        self.num_heads = num_heads
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        # Looked up, not computed in the graph: a logarithm whose last bit differs between devices
        # would move a distance into the next bucket.
        self._buckets = buckets(
            np.arange(-max_distance, max_distance + 1),
            num_buckets=num_buckets,
            max_distance=max_distance,
            bidirectional=bidirectional,
        )

    def call(self, query: Tensor, key: Tensor | None = None, *, start_index: Tensor = 0) -> Tensor:
        """Computes the biases for the lengths of these tensors; their values do not matter.

        Args:
            query: (batch, query, ...).
            key: (batch, key, ...); by default the query itself.
            start_index: position of the first query among the keys, for step-by-step decoding.

        Returns:
            (1, heads, query, key), as `MultiHeadAttention` takes it for `attention_bias`.
        """
        by_distance = ops.take(ops.convert_to_tensor(self.embeddings), self._buckets, axis=0)
        queries = ops.arange(ops.shape(query)[1]) + start_index
        keys = ops.arange(ops.shape(query if key is None else key)[1])
        distance = keys[None, :] - queries[:, None]  # (query, key)
        distance = ops.clip(distance, -self.max_distance, self.max_distance) + self.max_distance
        biases = ops.take(by_distance, distance, axis=0)  # (query, key, heads)
        return ops.cast(ops.transpose(biases, (2, 0, 1))[None], self.compute_dtype)

    def compute_output_spec(
        self, query: Tensor, key: Tensor | None = None, *, start_index: Tensor = 0
    ) -> Tensor:
        """Returns the shape and dtype of `call`'s result."""
        key = query if key is None else key
        shape = (1, self.num_heads, query.shape[1], key.shape[1])
        return keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        config = super().get_config()
        del config["input_dim"], config["output_dim"]
        return config | {
            "num_buckets": self.num_buckets,
            "num_heads": self.num_heads,
            "max_distance": self.max_distance,
            "bidirectional": self.bidirectional,
        }


def buckets(
    distances: Tensor, *, num_buckets: int, max_distance: int, bidirectional: bool
) -> np.ndarray:
    """Returns the bucket of each distance, the key's position minus the query's.

    The logarithm is computed in float32, as in the models' own code, which decides the few
    distances where it falls on the border of a bucket.

    Args:
        distances: integers (...).
        num_buckets: see `RelativePositionBias`.
        max_distance: see `RelativePositionBias`.
        bidirectional: see `RelativePositionBias`.

    Returns:
        int32 (...).

    Example:
        >>> buckets([-3, 0, 2, 50], num_buckets=8, max_distance=16, bidirectional=True).tolist()
        [2, 0, 6, 7]
    """
    distances = np.asarray(distances, np.int64)
    if bidirectional:
        num_buckets //= 2
        offsets, lengths = np.where(distances > 0, num_buckets, 0), np.abs(distances)
    else:
        offsets, lengths = np.zeros_like(distances), np.maximum(-distances, 0)
    num_exact = num_buckets // 2
    ratio = np.maximum(lengths, num_exact).astype(np.float32) / np.float32(num_exact)
    scale = np.float32(np.log(max_distance / num_exact))
    wide = num_exact + (np.log(ratio) / scale * np.float32(num_buckets - num_exact)).astype(int)
    numbers = np.where(lengths < num_exact, lengths, np.minimum(wide, num_buckets - 1))
    return (offsets + numbers).astype(np.int32)
