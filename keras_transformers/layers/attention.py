"""Scaled dot-product attention with several heads ("Attention Is All You Need", section 3.2)."""

from typing import Any

import keras
from keras import ops

from keras_transformers.layers.dense import PACKAGE, RowDense

__all__ = ["MultiHeadAttention"]

# Finite, so that a row without any visible key softmaxes to numbers; exp(-1e9 - max) is exactly 0.
_MASKED_SCORE = -1e9


@keras.saving.register_keras_serializable(PACKAGE)
class MultiHeadAttention(keras.layers.Layer):
    """Self- and cross-attention: `softmax(Q K^T / sqrt(head_dim)) V` in `num_heads` heads.

    One mask argument says who may see whom; its rank says which kind it is. A masked key has no
    influence on the output, and a query that may see no key at all attends to nothing: its context
    is zero, never NaN. Scores and softmax are computed in float32 at least.

    Args:
        num_heads: the paper's h (Hugging Face: num_attention_heads).
        hidden_dim: width of the output, the paper's d_model; `head_dim` is hidden_dim / num_heads.
        attention_dropout: rate on the attention probabilities.
        use_bias: whether the four projections have biases (tensor2tensor has none).
        kernel_initializer: of the four projections.

    Raises:
        ValueError: `hidden_dim` is no multiple of `num_heads`.

    Example:
        >>> layer = MultiHeadAttention(num_heads=2, hidden_dim=8)
        >>> hidden = keras.ops.ones((1, 3, 8))
        >>> padding_mask = keras.ops.convert_to_tensor([[True, True, False]])
        >>> output, scores = layer(
        ...     hidden, attention_mask=padding_mask, return_attention_scores=True
        ... )
        >>> output.shape, scores.shape
        (TensorShape([1, 3, 8]), TensorShape([1, 2, 3, 3]))
    """

    def __init__(
        self,
        num_heads: int,
        hidden_dim: int,
        *,
        attention_dropout: float = 0.0,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if num_heads < 1 or hidden_dim % num_heads:
            raise ValueError(
                f"hidden_dim={hidden_dim} must be a multiple of num_heads={num_heads}: "
                "each head takes an equal share of the width"
            )
        self.num_heads = num_heads
        self.hidden_dim = hidden_dim
        self.head_dim = hidden_dim // num_heads
        self.attention_dropout = attention_dropout
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.query = self._projection("query")
        self.key = self._projection("key")
        self.value = self._projection("value")
        self.output_projection = self._projection("output")
        self.dropout = keras.layers.Dropout(attention_dropout, dtype=self.dtype_policy)

    def _projection(self, name: str) -> RowDense:
        return RowDense(
            self.hidden_dim,
            use_bias=self.use_bias,
            # A clone draws its own numbers: one initializer object gives the same ones twice.
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, query_shape: Any, value_shape: Any = None) -> None:
        """Makes the projections; `value_shape` is the query's where there is no `value`."""
        value_shape = value_shape or query_shape
        self.query.build(query_shape)
        self.key.build(value_shape)
        self.value.build(value_shape)
        self.output_projection.build((*query_shape[:-1], self.hidden_dim))

    def _split_heads(self, x: Any) -> Any:
        batch, length = ops.shape(x)[:2]
        x = ops.reshape(x, (batch, length, self.num_heads, self.head_dim))
        return ops.transpose(x, (0, 2, 1, 3))  # (batch, heads, length, head_dim)

    def keys_values(self, value: Any) -> tuple[Any, Any]:
        """Projects what is attended to, for a cache.

        Args:
            value: (batch, key, features).

        Returns:
            Keys and values, each (batch, heads, key, head_dim); `call` takes them as `keys_values`.
        """
        return self._split_heads(self.key(value)), self._split_heads(self.value(value))

    def call(
        self,
        query: Any,
        value: Any = None,
        *,
        attention_mask: Any = None,
        keys_values: tuple[Any, Any] | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        """Attends from each query position to the visible key positions.

        Args:
            query: (batch, query, features).
            value: (batch, key, features), what is attended to; the query itself when None.
            attention_mask: True where a query may attend. (batch, key): a padding mask, alike for
                every query. (batch, query, key): each query's own, causal for one. Or
                (batch, heads, query, key). Size 1 broadcasts.
            keys_values: already projected and cached, from `keys_values`, instead of `value`.
            return_attention_scores: also return the probabilities before dropout.
            training: whether dropout acts.

        Returns:
            (batch, query, hidden_dim), and with `return_attention_scores` also
            (batch, heads, query, key) in float32 at least.

        Raises:
            ValueError: the mask has another rank than 2, 3 or 4.
        """
        # Scaling the query costs less than scaling (query, key) scores.
        query_heads = self._split_heads(self.query(query)) * self.head_dim**-0.5
        key_heads, value_heads = keys_values or self.keys_values(query if value is None else value)
        scores = ops.matmul(query_heads, ops.transpose(key_heads, (0, 1, 3, 2)))
        if keras.backend.standardize_dtype(scores.dtype) in ("float16", "bfloat16"):
            scores = ops.cast(scores, "float32")  # -1e9 overflows float16; bfloat16 sums drift
        if attention_mask is not None:
            attention_mask = _four_axes(attention_mask)
            # `where`, not an added mask: TensorFlow fuses the addition into a slow kernel.
            scores = ops.where(attention_mask, scores, _MASKED_SCORE)
        probabilities = ops.softmax(scores, axis=-1)  # (batch, heads, query, key)
        weights = self.dropout(ops.cast(probabilities, self.compute_dtype), training=training)
        context = ops.matmul(weights, value_heads)  # (batch, heads, query, head_dim)
        if attention_mask is not None:
            any_visible = ops.any(attention_mask, axis=-1, keepdims=True)
            context = context * ops.cast(any_visible, context.dtype)
        context = ops.transpose(context, (0, 2, 1, 3))  # (batch, query, heads, head_dim)
        batch, length = ops.shape(context)[:2]
        output = self.output_projection(ops.reshape(context, (batch, length, self.hidden_dim)))
        return (output, probabilities) if return_attention_scores else output

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return super().get_config() | {
            "num_heads": self.num_heads,
            "hidden_dim": self.hidden_dim,
            "attention_dropout": self.attention_dropout,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


def causal_attention_mask(length: Any) -> Any:
    """Position i may attend to positions 0 to i: (1, length, length), True where it may."""
    positions = ops.arange(length)
    return (positions[None, :] <= positions[:, None])[None]


def _four_axes(mask: Any) -> Any:
    """A mask of rank 2, 3 or 4 as (batch, heads or 1, query or 1, key)."""
    mask = ops.cast(mask, "bool")
    rank = len(mask.shape)
    if rank == 2:
        return mask[:, None, None, :]
    if rank == 3:
        return mask[:, None, :, :]
    if rank == 4:
        return mask
    raise ValueError(
        f"attention_mask has shape {tuple(mask.shape)}; it must be (batch, key), "
        "(batch, query, key) or (batch, heads, query, key)"
    )
