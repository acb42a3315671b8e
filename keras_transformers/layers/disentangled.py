"""Disentangled attention (He et al. 2021, arXiv:2006.03654): contents and distances have vectors.

A score is the sum of three products: of the contents of both tokens, of the query's content and the
distance, and of the key's content and the distance.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformers.layers.attention import MultiHeadAttention
from keras_transformers.layers.dense import PACKAGE
from keras_transformers.layers.embeddings import Embedding
from keras_transformers.layers.layouts import PADDED
from keras_transformers.layers.tensors import Initializer, Shape, Tensor

__all__ = ["DisentangledAttention", "DistanceEmbedding"]


@keras.saving.register_keras_serializable(PACKAGE)
class DistanceEmbedding(Embedding):
    """Maps the distance between two tokens to a vector; DeBERTa's blocks share it.

    Args:
        max_distance: all distances from this one on share a vector, in each direction (Hugging
            Face: max_relative_positions).
        hidden_dim: width of a vector.
        num_buckets: number of vectors in each direction, even: the first half of them for one
            distance each, the others for more and more distances (Hugging Face: position_buckets).
            By default each distance below `max_distance` has its own.
        max_sequence_length: the longest text in training, in tokens (Hugging Face:
            max_position_embeddings). Longer texts are accepted.
        embeddings_initializer: initializer of the matrix, which has 2 * num_buckets rows, or
            2 * max_distance.

    Raises:
        ValueError: `max_distance` is below 1, `num_buckets` is odd or below 2, or so many distances
            have their own buckets that none is left.

    Example:
        >>> layer = DistanceEmbedding(max_distance=16, hidden_dim=8, num_buckets=4)
        >>> layer(keras.ops.ones((5, 3, 8))).shape
        TensorShape([1, 7, 8])
    """

    def __init__(
        self,
        max_distance: int,
        hidden_dim: int,
        *,
        num_buckets: int | None = None,
        max_sequence_length: int | None = None,
        embeddings_initializer: Initializer = "uniform",
        **kwargs: Any,
    ) -> None:
        if max_distance < 1:
            raise ValueError(f"max_distance={max_distance}: expected a distance, at least 1")
        if num_buckets is not None and (num_buckets < 2 or num_buckets % 2):
            raise ValueError(f"num_buckets={num_buckets}: expected an even number, at least 2")
        if num_buckets is not None and max_distance <= num_buckets // 2 + 1:
            raise ValueError(
                f"max_distance={max_distance} is too small for num_buckets={num_buckets}: half of "
                "them are small distances, and the others are for larger ones"
            )
        super().__init__(
            2 * (num_buckets or max_distance),
            hidden_dim,
            embeddings_initializer=embeddings_initializer,
            **kwargs,
        )
        self.max_distance = max_distance
        self.num_buckets = num_buckets
        self.max_sequence_length = max_sequence_length
        # Looked up, not computed in the graph: see `RelativePositionBias`.
        self._rows = rows_of(
            np.arange(-max_distance, max_distance + 1),
            max_distance=max_distance,
            num_buckets=num_buckets,
        )

    def call(self, inputs: Tensor) -> Tensor:
        """Returns the vectors of all distances in texts of this length.

        Args:
            inputs: (batch, length, ...); the values do not matter.

        Returns:
            (1, 2 * length + 1, hidden_dim), for the distances length, length - 1, ..., -length: the
            query's position minus the key's.
        """
        length = ops.shape(inputs)[1]
        distances = length - ops.arange(2 * length + 1)
        distances = ops.clip(distances, -self.max_distance, self.max_distance)
        rows = ops.take(ops.convert_to_tensor(self._rows), distances + self.max_distance, axis=0)
        vectors = ops.take(ops.convert_to_tensor(self.embeddings), rows, axis=0)
        return ops.cast(vectors[None], self.compute_dtype)

    def compute_output_spec(self, inputs: Tensor) -> Tensor:
        """Returns the shape and dtype of `call`'s result."""
        length = inputs.shape[1]
        shape = (1, None if length is None else 2 * length + 1, self.output_dim)
        return keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        config = super().get_config()
        del config["input_dim"]
        return config | {
            "hidden_dim": config.pop("output_dim"),
            "max_distance": self.max_distance,
            "num_buckets": self.num_buckets,
            "max_sequence_length": self.max_sequence_length,
        }


@keras.saving.register_keras_serializable(PACKAGE)
class DisentangledAttention(MultiHeadAttention):
    """Self-attention whose scores also compare queries and keys with vectors of their distance.

    Args:
        num_heads: number of heads.
        hidden_dim: width of the output.
        content_to_position: whether the query's content is compared with the distance (Hugging
            Face: "c2p" in pos_att_type).
        position_to_content: whether the key's content is ("p2c").
        share_projections: whether distances are projected like contents, instead of by their own
            matrices (Hugging Face: share_att_key).
        distance_dropout: dropout rate on the vectors of the distances.
        **kwargs: others of `MultiHeadAttention`.

    Raises:
        ValueError: distances are compared with neither, or see `MultiHeadAttention`.

    Example:
        >>> hidden = keras.ops.ones((1, 3, 8))
        >>> distances = DistanceEmbedding(max_distance=16, hidden_dim=8)(hidden)
        >>> DisentangledAttention(num_heads=2, hidden_dim=8)(
        ...     hidden, distance_vectors=distances
        ... ).shape
        TensorShape([1, 3, 8])
    """

    def __init__(
        self,
        num_heads: int,
        hidden_dim: int,
        *,
        content_to_position: bool = True,
        position_to_content: bool = True,
        share_projections: bool = True,
        distance_dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        if not (content_to_position or position_to_content):
            raise ValueError(
                "content_to_position=False, position_to_content=False: one of them must be True; "
                "without distances, use MultiHeadAttention"
            )
        super().__init__(num_heads, hidden_dim, **kwargs)
        self.content_to_position = content_to_position
        self.position_to_content = position_to_content
        self.share_projections = share_projections
        self.distance_dropout = distance_dropout
        self.distance_key = self.distance_query = None
        if content_to_position and not share_projections:
            self.distance_key = self._projection("distance_key", self._heads_dim)
        if position_to_content and not share_projections:
            self.distance_query = self._projection("distance_query", self._heads_dim)
        self.dropout_of_distances = keras.layers.Dropout(distance_dropout, dtype=self.dtype_policy)

    def build(self, query_shape: Shape, value_shape: Shape | None = None) -> None:
        """Builds the projections."""
        super().build(query_shape, value_shape)
        vectors_shape = (1, None, query_shape[-1])
        for dense in (self.distance_key, self.distance_query):
            if dense is not None:
                dense.build(vectors_shape)
        self.dropout_of_distances.build(vectors_shape)

    @property
    def num_terms(self) -> int:
        """How many products with vectors of distances a score has, 1 or 2."""
        return self.content_to_position + self.position_to_content

    @property
    def scale(self) -> float:
        """The factor on the products: 1 / sqrt(head_dim * the number of products)."""
        return super().scale * (1 + self.num_terms) ** -0.5

    def scores_bias(
        self,
        bias: Tensor | None,
        *,
        queries: Tensor,
        keys: Tensor,
        distance_vectors: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        """Adds the products with the vectors of distances to a bias on the scores.

        Args:
            bias: (batch or 1, heads or 1, query or 1, key), or None.
            queries: (batch, heads, query, head_dim), the first positions of the text, or all.
            keys: (batch, heads, key, head_dim).
            distance_vectors: (1, 2 * key + 1, features), the result of a `DistanceEmbedding`.
            training: whether to apply dropout.

        Returns:
            (batch, heads, query, key).

        Raises:
            ValueError: there are no `distance_vectors`.
        """
        if distance_vectors is None:
            raise ValueError(
                f"layer {self.name!r} needs distance_vectors: pass the result of a "
                "DistanceEmbedding"
            )
        vectors = self.dropout_of_distances(distance_vectors, training=training)
        rows, columns = ops.shape(queries)[2], ops.shape(keys)[2]
        if self.content_to_position:
            # Vectors of the distances rows - 1, ..., -columns.
            used = self._distances(self.distance_key or self.key, vectors)[
                :, :, columns - rows + 1 :
            ]
            products = ops.matmul(queries, ops.transpose(used, (0, 1, 3, 2)))
            term = _diagonals(products, columns)  # (batch, heads, query, key)
            bias = term if bias is None else bias + term
        if self.position_to_content:
            # Vectors of the distances 1 - columns, ..., rows.
            used = self._distances(self.distance_query or self.query, vectors)
            used = ops.flip(used[:, :, columns - rows : 2 * columns], axis=2)
            products = ops.matmul(keys, ops.transpose(used, (0, 1, 3, 2)))
            term = ops.transpose(_diagonals(products, rows), (0, 1, 3, 2))
            bias = term if bias is None else bias + term
        return bias

    def _distances(self, dense: keras.layers.Layer, vectors: Tensor) -> Tensor:
        """Projects vectors of distances: (1, heads, distances, head_dim), scaled."""
        return PADDED.split(dense(vectors), self.num_heads) * self.scale

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {
            "content_to_position": self.content_to_position,
            "position_to_content": self.position_to_content,
            "share_projections": self.share_projections,
            "distance_dropout": self.distance_dropout,
        }


def _diagonals(products: Tensor, columns: Tensor) -> Tensor:
    """Moves each row one place further to the left than the next one, without copying by index.

    Args:
        products: (batch, heads, rows, rows + columns), column 0 of the result's last row first.
        columns: number of columns.

    Returns:
        (batch, heads, rows, columns); the result [i, j] is `products[i, rows - 1 - i + j]`.
    """
    batch, heads, rows, width = ops.shape(products)
    flat = ops.reshape(products, (batch, heads, rows * width))
    # A row that is shorter by one place starts one place earlier in each row.
    flat = flat[:, :, rows - 1 : rows - 1 + rows * (width - 1)]
    return ops.reshape(flat, (batch, heads, rows, width - 1))[..., :columns]


def rows_of(distances: Tensor, *, max_distance: int, num_buckets: int | None) -> np.ndarray:
    """Returns the row of each distance, the query's position minus the key's.

    The logarithm is computed in float32, as in transformers, which decides the few distances where
    it falls on the border of a bucket.

    Args:
        distances: integers (...).
        max_distance: see `DistanceEmbedding`.
        num_buckets: see `DistanceEmbedding`.

    Returns:
        int32 (...).

    Example:
        >>> rows_of([-99, -1, 0, 1, 5, 99], max_distance=16, num_buckets=4).tolist()
        [0, 3, 4, 5, 7, 7]
    """
    distances = np.asarray(distances, np.int64)
    size = num_buckets or max_distance
    if num_buckets is not None:
        middle = num_buckets // 2
        lengths = np.maximum(np.abs(distances), middle).astype(np.float32)
        scale = np.log(np.float32((max_distance - 1) / middle))
        wide = np.log(lengths / np.float32(middle)) / scale * np.float32(middle - 1)
        wide = np.ceil(wide).astype(np.int64) + middle
        distances = np.where(np.abs(distances) <= middle, distances, np.sign(distances) * wide)
    return np.clip(distances + size, 0, 2 * size - 1).astype(np.int32)
