"""Attention from a recurrent decoder to the encoder's outputs (Bahdanau 2014, Luong 2015)."""

from typing import Any, Literal

import keras
from keras import ops

from keras_transformers.layers.composite import CompositeLayer
from keras_transformers.layers.dense import PACKAGE, RowDense, at_least_float32, softmax
from keras_transformers.layers.masks import MASKED_SCORE
from keras_transformers.layers.tensors import Shape, Tensor

__all__ = ["RnnAttention"]

AttentionKind = Literal["dot", "general", "additive", "location"]
_KINDS = ("dot", "general", "additive", "location")


@keras.saving.register_keras_serializable(PACKAGE)
class RnnAttention(CompositeLayer):
    """Single-head attention whose query is the state of a recurrent network.

    For a state s and a source vector h, the score is

    - "dot": `s . h`;
    - "general": `s . W h` (Luong et al. 2015, section 3.1);
    - "additive": `v . tanh(W s + U h)` (Bahdanau et al. 2014, appendix A.1.2; Luong's "concat");
    - "location": the element of `W s` at h's position; h itself is not used (Luong et al. 2015,
      equation 9).

    As in the papers, no matrix has a bias. `keys` computes what depends only on the source, once
    for all steps.

    Args:
        kind: "dot", "general", "additive" or "location".
        attention_dim: inner width of "additive"; by default the query's width.
        max_sequence_length: number of source positions for "location".

    Raises:
        ValueError: the kind is unknown.
    """

    def __init__(
        self,
        kind: AttentionKind,
        *,
        attention_dim: int | None = None,
        max_sequence_length: int = 1024,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if kind not in _KINDS:
            raise ValueError(f"attention={kind!r} is unknown: use {', '.join(_KINDS)} or None")
        self.kind = kind
        self.attention_dim = attention_dim
        self.max_sequence_length = max_sequence_length

    def build(self, query_shape: Shape, memory_shape: Shape) -> None:
        """Creates the weights.

        Raises:
            ValueError: "dot" attention with a decoder and an encoder of different widths.
        """
        query_dim, memory_dim = query_shape[-1], memory_shape[-1]
        if self.kind == "dot" and query_dim != memory_dim:
            raise ValueError(
                f"attention='dot' needs equal widths, but the decoder has {query_dim} and the "
                f"encoder {memory_dim}: use 'general', which maps one to the other"
            )
        width = self.attention_dim or query_dim
        if self.kind == "general":
            self.key = self._projection(query_dim, "key", memory_shape)
        elif self.kind == "additive":
            self.query = self._projection(width, "query", query_shape)
            self.key = self._projection(width, "key", memory_shape)
            self.score = self._projection(1, "score", (None, width))
        elif self.kind == "location":
            self.score = self._projection(self.max_sequence_length, "score", query_shape)

    def _projection(self, units: int, name: str, input_shape: Shape) -> RowDense:
        layer = RowDense(units, use_bias=False, dtype=self.dtype_policy, name=name)
        layer.build(input_shape)
        return layer

    def keys(self, memory: Tensor) -> Tensor:
        """Maps the source (batch, source, features) to keys (batch, source, width)."""
        return self.key(memory) if self.kind in ("general", "additive") else memory

    def call(
        self,
        query: Tensor,
        memory: Tensor,
        keys: Tensor | None = None,
        padding_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attends to the source.

        Args:
            query: (batch, queries, features): steps, or the beams of one step.
            memory: (batch, source, features), the encoder's outputs.
            keys: `keys(memory)`, if already computed.
            padding_mask: bool (batch, source), True at real tokens.

        Returns:
            Contexts (batch, queries, features), and probabilities (batch, queries, source) in
            float32 or wider.

        Raises:
            ValueError: "location" with a source longer than `max_sequence_length`.
        """
        scores = self._scores(query, self.keys(memory) if keys is None else keys)
        scores = ops.cast(scores, self.scores_dtype)
        if padding_mask is not None:
            scores = ops.where(padding_mask[:, None], scores, MASKED_SCORE)
        probabilities = softmax(scores)
        return ops.matmul(ops.cast(probabilities, memory.dtype), memory), probabilities

    def of_rows(
        self,
        query: Tensor,
        memory: Tensor,
        keys: Tensor,
        padding_mask: Tensor,
        *,
        num_queries: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Maps queries (batch * num_queries, features), a sentence's side by side.

        Returns:
            Contexts (batch * num_queries, features), and probabilities in the same form.
        """
        if isinstance(num_queries, int) and num_queries == 1:
            context, probabilities = self(query[:, None], memory, keys, padding_mask)
            return context[:, 0], probabilities[:, 0]
        batch = ops.shape(memory)[0]
        query = ops.reshape(query, (batch, num_queries, query.shape[-1]))
        looked = self(query, memory, keys, padding_mask)
        shapes = ((batch * num_queries, *ops.shape(x)[2:]) for x in looked)
        context, probabilities = (
            ops.reshape(x, shape) for x, shape in zip(looked, shapes, strict=True)
        )
        return context, probabilities

    @property
    def scores_dtype(self) -> str:
        """The dtype of the attention probabilities."""
        return at_least_float32(self.compute_dtype)

    def _scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """Returns scores (batch, queries, source)."""
        if self.kind in ("dot", "general"):
            return ops.matmul(query, ops.transpose(keys, (0, 2, 1)))
        if self.kind == "additive":
            sums = ops.expand_dims(self.query(query), 2) + ops.expand_dims(keys, 1)
            return ops.squeeze(self.score(ops.tanh(sums)), -1)
        length = keys.shape[1]
        if isinstance(length, int) and length > self.max_sequence_length:
            raise ValueError(
                f"source length {length} is beyond the {self.max_sequence_length} positions of "
                "attention='location': build the model with a larger max_sequence_length"
            )
        return self.score(query)[:, :, : ops.shape(keys)[1]]

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {
            "kind": self.kind,
            "attention_dim": self.attention_dim,
            "max_sequence_length": self.max_sequence_length,
        }


def repeat_rows(vectors: Tensor, num_queries: Tensor) -> Tensor:
    """Repeats (batch, dim) to (batch * num_queries, dim), a sentence's rows side by side."""
    if isinstance(num_queries, int) and num_queries == 1:
        return vectors
    batch, dim = ops.shape(vectors)
    rows = vectors[:, None] + ops.zeros((num_queries, 1), dtype=vectors.dtype)
    return ops.reshape(rows, (batch * num_queries, dim))
