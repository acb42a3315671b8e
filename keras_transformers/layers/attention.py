"""Multi-head attention ("Attention Is All You Need", section 3.2) and its key-value cache."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_transformers.layers.composite import CompositeLayer
from keras_transformers.layers.dense import PACKAGE, RowDense
from keras_transformers.layers.masks import MASKED_SCORE, RowLayout, with_causal_mask
from keras_transformers.layers.memory.blocks import attention_in_blocks, goes_in_blocks

__all__ = ["MultiHeadAttention"]

KeysValues = tuple[Any, Any]


@keras.saving.register_keras_serializable(PACKAGE)
class MultiHeadAttention(CompositeLayer):
    """Self- and cross-attention: `softmax(Q K^T / sqrt(head_dim)) V` in `num_heads` heads.

    One argument takes every kind of mask and tells them apart by rank. Masked keys do not affect
    the output. A query that sees no key gets a context of zeros, not NaN. Scores and softmax are
    computed in float32 or wider.

    On JAX, unless the scores are asked for or dropped out, `keras.ops.dot_product_attention`
    computes the same: on a GPU, in 16 bits, with the flash kernel, which never stores the scores.
    On TensorFlow, unless the scores are asked for, lengths that are known and above 1,024 go in
    blocks of queries, whose memory grows linearly with the length.

    Args:
        num_heads: number of heads, the paper's h (Hugging Face: num_attention_heads).
        hidden_dim: width of the output, the paper's d_model.
        head_dim: width of a head; hidden_dim / num_heads by default (Hugging Face's T5: d_kv).
        scale_scores: whether the scores are divided by sqrt(head_dim); T5's are not.
        attention_dropout: dropout rate on the attention probabilities.
        use_bias: whether the four projections have biases (tensor2tensor's do not).
        kernel_initializer: initializer of the four projections' matrices.

    Raises:
        ValueError: `num_heads` is below 1; or, without a `head_dim`, `hidden_dim` is not a multiple
            of it.

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
        head_dim: int | None = None,
        scale_scores: bool = True,
        attention_dropout: float = 0.0,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if num_heads < 1 or (head_dim is None and hidden_dim % num_heads):
            raise ValueError(
                f"hidden_dim={hidden_dim} must be a multiple of num_heads={num_heads}: "
                "each head takes an equal share of the width"
            )
        self.num_heads = num_heads
        self.hidden_dim = hidden_dim
        self.head_dim = hidden_dim // num_heads if head_dim is None else head_dim
        self.scale_scores = scale_scores
        self.attention_dropout = attention_dropout
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self._heads_dim = num_heads * self.head_dim
        self.query = self._projection("query", self._heads_dim)
        self.key = self._projection("key", self._heads_dim)
        self.value = self._projection("value", self._heads_dim)
        self.output_projection = self._projection("output", hidden_dim)
        self.dropout = keras.layers.Dropout(attention_dropout, dtype=self.dtype_policy)

    def _projection(self, name: str, width: int) -> RowDense:
        return RowDense(
            width,
            use_bias=self.use_bias,
            # Each clone draws new numbers; a shared initializer would repeat the same ones.
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, query_shape: Any, value_shape: Any = None) -> None:
        """Builds the projections; `value_shape` defaults to `query_shape`."""
        value_shape = value_shape or query_shape
        self.query.build(query_shape)
        self.key.build(value_shape)
        self.value.build(value_shape)
        self.output_projection.build((*query_shape[:-1], self._heads_dim))
        self.dropout.build((query_shape[0], self.num_heads, query_shape[1], value_shape[1]))
        if not self.scale_scores:  # the queries start smaller instead, as in T5
            self.query.kernel.assign(self.query.kernel * self.head_dim**-0.5)

    def compute_output_shape(self, query_shape: Any, value_shape: Any = None) -> tuple[Any, ...]:
        """Returns (batch, query, hidden_dim)."""
        return (*query_shape[:-1], self.hidden_dim)

    def _split_heads(self, x: Any) -> Any:
        batch, length = ops.shape(x)[:2]
        x = ops.reshape(x, (batch, length, self.num_heads, self.head_dim))
        return ops.transpose(x, (0, 2, 1, 3))  # (batch, heads, length, head_dim)

    def keys_values(self, value: Any) -> KeysValues:
        """Projects `value` (batch, key, features) to keys and values for a cache.

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
        use_causal_mask: bool = False,
        attention_bias: Any = None,
        keys_values: KeysValues | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        """Attends from each query position to the visible key positions.

        Args:
            query: (batch, query, features).
            value: (batch, key, features), the vectors to attend to; by default the query itself.
            attention_mask: True where a query may attend. A padding mask (batch, key) is the same
                for every query; (batch, query, key) varies by query, like a causal mask;
                (batch, heads, query, key) also varies by head. Axes of size 1 broadcast.
            use_causal_mask: whether position i also sees only positions 0 to i, in self-attention.
            attention_bias: added to the scores before the softmax, as relative positions do:
                (batch, heads, query, key), where axes of size 1 broadcast.
            keys_values: the result of the method `keys_values`, used instead of `value`.
            return_attention_scores: also return the probabilities before dropout.
            training: whether to apply dropout.

        Returns:
            (batch, query, hidden_dim); with `return_attention_scores`, also the probabilities
            (batch, heads, query, key) in float32 or wider.

        Raises:
            ValueError: the mask's rank is not 2, 3 or 4.
        """
        query_heads = self._split_heads(self.query(query))
        if self.scale_scores:  # scaling the query costs less than scaling (query, key) scores
            query_heads = query_heads * self.head_dim**-0.5
        key_heads, value_heads = keys_values or self.keys_values(query if value is None else value)
        mask = None if attention_mask is None else _four_axes(attention_mask)
        drops_scores = bool(training and self.attention_dropout)
        shows_scores = return_attention_scores or self.on_probabilities is not None
        in_blocks = not shows_scores and goes_in_blocks(query_heads, key_heads)
        visible = None if in_blocks else mask  # blocks apply the masks themselves
        if use_causal_mask and not in_blocks:
            visible = _four_axes(with_causal_mask(attention_mask, ops.shape(query)[1]))
        if in_blocks:
            context = attention_in_blocks(
                query_heads,
                key_heads,
                value_heads,
                mask=mask,
                use_causal_mask=use_causal_mask,
                bias=attention_bias,
                scores_dtype=self.scores_dtype,
                dropout=self.attention_dropout if drops_scores else 0.0,
                seed=self.dropout.seed_generator.next() if drops_scores else None,
            )
        elif _calls_one_kernel() and not (shows_scores or drops_scores):
            context = _kernel_attention(
                query_heads, key_heads, value_heads, mask, use_causal_mask, attention_bias
            )
        else:
            scores = ops.matmul(query_heads, ops.transpose(key_heads, (0, 1, 3, 2)))
            scores = ops.cast(scores, self.scores_dtype)
            if attention_bias is not None:
                scores = scores + ops.cast(attention_bias, self.scores_dtype)
            if visible is not None:
                # `where`, not an added mask: TensorFlow fuses the addition into a slow kernel.
                scores = ops.where(visible, scores, MASKED_SCORE)
            probabilities = ops.softmax(scores, axis=-1)  # (batch, heads, query, key)
            if self.on_probabilities is not None:
                self.on_probabilities(probabilities)
            weights = self.dropout(ops.cast(probabilities, self.compute_dtype), training=training)
            context = ops.matmul(weights, value_heads)  # (batch, heads, query, head_dim)
        if visible is not None:
            any_visible = ops.any(visible, axis=-1, keepdims=True)
            context = context * ops.cast(any_visible, context.dtype)
        context = ops.transpose(context, (0, 2, 1, 3))  # (batch, query, heads, head_dim)
        batch, length = ops.shape(context)[:2]
        output = self.output_projection(ops.reshape(context, (batch, length, self._heads_dim)))
        return (output, probabilities) if return_attention_scores else output

    def joined_weights(self) -> tuple[Any, Any]:
        """Returns the projections to query, key and value as one.

        Returns:
            Its matrix (features, 3 * num_heads * head_dim), and its bias, or None.
        """
        parts = (self.query, self.key, self.value)
        kernel = ops.concatenate([part.kernel for part in parts], axis=1)
        return kernel, ops.concatenate([part.bias for part in parts]) if self.use_bias else None

    def attend_rows(
        self,
        tokens: Any,
        layout: RowLayout,
        project: Callable[[Any], Any],
        attention_bias: Any = None,
    ) -> Any:
        """Computes self-attention as `call` does in inference, from real tokens alone.

        One product makes queries, keys and values, and padding is in the scores only.

        Args:
            tokens: (tokens, features), the real tokens.
            layout: where they stand.
            project: maps the tokens by what `joined_weights` returns.
            attention_bias: See `call`.

        Returns:
            (tokens, hidden_dim).
        """
        joined = layout.padded(project(tokens))
        shape = (layout.batch, layout.length, 3, self.num_heads, self.head_dim)
        joined = ops.transpose(ops.reshape(joined, shape), (2, 0, 3, 1, 4))
        query, key, value = joined[0], joined[1], joined[2]  # (batch, heads, length, head_dim)
        if self.scale_scores:
            query = query * self.head_dim**-0.5
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        scores_bias = layout.scores_bias(attention_bias)
        if scores_bias is not None:
            scores = scores + scores_bias
        context = ops.matmul(ops.softmax(scores, axis=-1), value)
        if layout.any_visible is not None:
            context = context * layout.any_visible
        context = ops.transpose(context, (0, 2, 1, 3))  # (batch, query, heads, head_dim)
        context = ops.reshape(context, (layout.batch, layout.length, self._heads_dim))
        return self.output_projection(layout.tokens(context))

    def scores_spec(self, query: Any, value: Any) -> Any:
        """Returns the shape and dtype of the attention probabilities (batch, heads, query, key)."""
        shape = (query.shape[0], self.num_heads, query.shape[1], value.shape[1])
        return keras.KerasTensor(shape, dtype=self.scores_dtype)

    @property
    def scores_dtype(self) -> str:
        """The dtype of scores and softmax: -1e9 overflows float16, and bfloat16 sums drift."""
        return "float32" if self.compute_dtype in ("float16", "bfloat16") else self.compute_dtype

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {
            "num_heads": self.num_heads,
            "hidden_dim": self.hidden_dim,
            "head_dim": self.head_dim,
            "scale_scores": self.scale_scores,
            "attention_dropout": self.attention_dropout,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


def empty_cache(rows: Any, num_heads: int, length: int, head_dim: int, dtype: str) -> KeysValues:
    """Makes a cache of zeros: keys and values, each (rows, heads, length, head_dim).

    A cache of length 0 grows by one position per step (`extend_cache` without an index), which is
    less work on a CPU. With a fixed length every shape is static, as XLA requires.
    """
    shape = (rows, num_heads, length, head_dim)
    return ops.zeros(shape, dtype=dtype), ops.zeros(shape, dtype=dtype)


def extend_cache(cache: KeysValues, new: KeysValues, index: Any = None) -> tuple[KeysValues, Any]:
    """Adds one position's keys and values to a cache, so that later steps can reuse them.

    Args:
        cache: keys and values, each (rows, heads, length, head_dim).
        new: keys and values of the new position, each (rows, heads, 1, head_dim).
        index: the position to write to in a cache of fixed length; None appends.

    Returns:
        The new cache, and a mask (1, length) of its filled positions, or None if all are filled.
    """
    if index is None:
        keys, values = (ops.concatenate(pair, axis=2) for pair in zip(cache, new, strict=True))
        return (keys, values), None
    positions = ops.arange(cache[0].shape[2])  # (length,)
    # `where` costs one pass over the cache, as reordering beams does, but runs everywhere. On
    # TensorFlow, slice_update is an XLA op.
    here = ops.reshape(positions == index, (1, 1, -1, 1))
    keys, values = (ops.where(here, n, c) for c, n in zip(cache, new, strict=True))
    return (keys, values), (positions <= index)[None]


def _calls_one_kernel() -> bool:
    """Returns whether the backend computes attention in one kernel where it can: JAX's does."""
    return keras.backend.backend() == "jax"


def _kernel_attention(
    query: Any, key: Any, value: Any, mask: Any, use_causal_mask: bool, bias: Any
) -> Any:
    """Computes `softmax(Q K^T + bias) V` in one operation.

    Args:
        query: scaled, (batch, heads, query, head_dim).
        key: (batch, heads, key, head_dim).
        value: (batch, heads, key, head_dim).
        mask: (batch or 1, heads or 1, query or 1, key or 1), or None.
        use_causal_mask: whether to combine the mask with a causal one.
        bias: (batch or 1, heads or 1, query, key), or None.

    Returns:
        (batch, heads, query, head_dim); any numbers where a query sees no key.
    """
    if mask is not None:  # cuDNN refuses masks without an axis for the queries
        mask = ops.broadcast_to(mask, (*mask.shape[:2], query.shape[2], key.shape[2]))
    # XLA removes the transpositions: they undo those of `_split_heads`.
    query, key, value = (ops.transpose(x, (0, 2, 1, 3)) for x in (query, key, value))
    context = ops.dot_product_attention(
        query,
        key,
        value,
        bias=bias,
        mask=mask,
        scale=1.0,
        is_causal=use_causal_mask,
        # On a TPU, Keras 3.15 takes the first row's mask for all rows.
        flash_attention=None if _has_gpu() else False,
    )
    return ops.transpose(context, (0, 2, 1, 3))


def _has_gpu() -> bool:
    return any(device.startswith("gpu") for device in keras.distribution.list_devices())


def _four_axes(mask: Any) -> Any:
    """Expands a mask of rank 2, 3 or 4 to (batch, heads or 1, query or 1, key)."""
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
