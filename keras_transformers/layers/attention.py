"""Multi-head attention ("Attention Is All You Need", section 3.2) and its key-value cache."""

from collections.abc import Callable
from typing import Any, Literal

import keras
from keras import ops

from keras_transformers.layers.attend import attend
from keras_transformers.layers.composite import CompositeLayer, part_config
from keras_transformers.layers.dense import PACKAGE, RowDense, at_least_float32
from keras_transformers.layers.layouts import PADDED, Padded
from keras_transformers.layers.masks import EVERYWHERE, Reach, four_axes
from keras_transformers.layers.scopes import WATCHERS, Attended
from keras_transformers.layers.tensors import Initializer, Shape, Tensor

__all__ = ["MultiHeadAttention"]

KeysValues = tuple[Tensor, Tensor]


@keras.saving.register_keras_serializable(PACKAGE)
class MultiHeadAttention(CompositeLayer):
    """Computes self- or cross-attention: `softmax(Q K^T / sqrt(head_dim)) V` in `num_heads` heads.

    It projects, applies positions, attends and projects back. One argument takes every kind of
    mask, distinguished by rank. Masked keys do not affect the output. A query that sees no key gets
    a context of zeros, not NaN. Scores and softmax are computed in float32 or wider, in the way
    that `attend.attend` chooses.

    Args:
        num_heads: number of heads, the paper's h (Hugging Face: num_attention_heads).
        hidden_dim: width of the output, the paper's d_model.
        num_key_value_heads: number of key and value heads, each shared by num_heads /
            num_key_value_heads adjacent query heads; `num_heads` by default. Ainslie et al. 2023,
            arXiv:2305.13245.
        head_dim: width of a head; hidden_dim / num_heads by default (Hugging Face's T5: d_kv).
        positions: rotates queries and keys by their positions, before the keys are cached, such as
            `RotaryPositions`; None leaves positions to the embeddings.
        use_causal_mask: whether position i sees only positions 0 to i, in self-attention.
        window: how many positions to each side a query sees, in self-attention; all by default. See
            `masks.Reach`.
        query_key_norm_epsilon: the epsilon of an RMS norm over each head's queries and keys, as in
            Qwen3; None for no norm.
        query_key_norm_over: "head" for that norm; "width" for one over all heads' numbers together,
            as in OLMo 2.
        scale_scores: whether the scores are divided by sqrt(head_dim); T5's are not.
        scale_dim: the number to divide by the root of, instead of head_dim (Gemma 3's largest
            model; Hugging Face: query_pre_attn_scalar).
        attention_dropout: dropout rate on the attention probabilities.
        use_bias: whether the four projections have biases (tensor2tensor's do not).
        use_output_bias: the same for the output projection, if that differs (Qwen 2's has none).
        kernel_initializer: initializer of the four projections' matrices.

    Raises:
        ValueError: `num_heads` is below 1, or not a multiple of `num_key_value_heads`; or, without
            a `head_dim`, `hidden_dim` is not a multiple of it.

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
        num_key_value_heads: int | None = None,
        head_dim: int | None = None,
        positions: keras.layers.Layer | None = None,
        use_causal_mask: bool = False,
        window: int | None = None,
        query_key_norm_epsilon: float | None = None,
        query_key_norm_over: Literal["head", "width"] = "head",
        scale_scores: bool = True,
        scale_dim: float | None = None,
        attention_dropout: float = 0.0,
        use_bias: bool = True,
        use_output_bias: bool | None = None,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if num_heads < 1 or (head_dim is None and hidden_dim % num_heads):
            raise ValueError(
                f"hidden_dim={hidden_dim} must be a multiple of num_heads={num_heads}: "
                "each head takes an equal share of the width"
            )
        if num_key_value_heads is None:
            num_key_value_heads = num_heads
        if num_key_value_heads < 1 or num_heads % num_key_value_heads:
            raise ValueError(
                f"num_heads={num_heads} must be a multiple of "
                f"num_key_value_heads={num_key_value_heads}: each serves equally many heads"
            )
        self.num_heads = num_heads
        self.num_key_value_heads = num_key_value_heads
        self.hidden_dim = hidden_dim
        self.head_dim = hidden_dim // num_heads if head_dim is None else head_dim
        self.positions = positions
        self.use_causal_mask = use_causal_mask
        self.window = window
        self.query_key_norm_epsilon = query_key_norm_epsilon
        self.query_key_norm_over = query_key_norm_over
        self.scale_scores = scale_scores
        self.scale_dim = self.head_dim if scale_dim is None else scale_dim
        self.attention_dropout = attention_dropout
        self.use_bias = use_bias
        self.use_output_bias = use_bias if use_output_bias is None else use_output_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.reach = Reach(use_causal_mask, window)
        self._heads_dim = num_heads * self.head_dim
        self.query = self._projection("query", self._heads_dim)
        self.key = self._projection("key", num_key_value_heads * self.head_dim)
        self.value = self._projection("value", num_key_value_heads * self.head_dim)
        self.output_projection = self._projection("output", hidden_dim, self.use_output_bias)
        self.query_norm, self.key_norm = (
            None
            if query_key_norm_epsilon is None
            else keras.layers.RMSNormalization(
                epsilon=query_key_norm_epsilon, dtype=self.dtype_policy, name=name
            )
            for name in ("query_norm", "key_norm")
        )
        self.dropout = keras.layers.Dropout(attention_dropout, dtype=self.dtype_policy)

    def _projection(self, name: str, width: int, use_bias: bool | None = None) -> RowDense:
        return RowDense(
            width,
            use_bias=self.use_bias if use_bias is None else use_bias,
            # Each clone draws new numbers; a shared initializer would repeat them.
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, query_shape: Shape, value_shape: Shape | None = None) -> None:
        """Builds the projections; `value_shape` defaults to `query_shape`."""
        value_shape = value_shape or query_shape
        self.query.build(query_shape)
        self.key.build(value_shape)
        self.value.build(value_shape)
        self.output_projection.build((*query_shape[:-1], self._heads_dim))
        for norm, heads in (
            (self.query_norm, self.num_heads),
            (self.key_norm, self.num_key_value_heads),
        ):
            if norm is not None:
                together = heads if self.query_key_norm_over == "width" else 1
                norm.build((*query_shape[:-1], together * self.head_dim))
        self.dropout.build((query_shape[0], self.num_heads, query_shape[1], value_shape[1]))
        if not self.scale_scores:  # instead, the queries start smaller, as in T5
            self.query.kernel.assign(self.query.kernel * self.head_dim**-0.5)

    def compute_output_shape(self, query_shape: Shape, value_shape: Shape | None = None) -> Shape:
        """Returns (batch, query, hidden_dim)."""
        return (*query_shape[:-1], self.hidden_dim)

    def _placed(self, heads: Tensor, norm: keras.layers.Layer | None, positions: Tensor) -> Tensor:
        """Normalizes and rotates queries or keys (batch, heads, length, head_dim), if set up so."""
        if norm is not None and self.query_key_norm_over == "width":
            heads = PADDED.split(norm(PADDED.merge(heads)), heads.shape[1])
        elif norm is not None:
            heads = norm(heads)
        if self.positions is None:
            return heads
        if positions is None:
            positions = ops.arange(ops.shape(heads)[2])[None]
        return self.positions(heads, positions)

    def keys_values(self, value: Tensor, *, positions: Tensor | None = None) -> KeysValues:
        """Projects `value` (batch, key, features) to keys and values for a cache.

        Args:
            value: (batch, key, features).
            positions: see `call`.

        Returns:
            Keys and values, each (batch, key heads, key, head_dim); `call` takes them as
            `keys_values`.
        """
        keys = PADDED.split(self.key(value), self.num_key_value_heads)
        values = PADDED.split(self.value(value), self.num_key_value_heads)
        return self._placed(keys, self.key_norm, positions), values

    def call(
        self,
        query: Tensor,
        value: Tensor | None = None,
        *,
        layout: Padded = PADDED,
        attention_mask: Tensor | None = None,
        attention_bias: Tensor | None = None,
        positions: Tensor | None = None,
        distance_vectors: Tensor | None = None,
        keys_values: KeysValues | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Tensor:
        """Attends from each query position to the visible key positions.

        Args:
            query: (batch, query, features), or in the form of `layout`.
            value: (batch, key, features), the vectors to attend to; by default the query itself.
            layout: how the queries lie in memory; see `layouts`.
            attention_mask: True where a query may attend. A padding mask (batch, key) is the same
                for every query; (batch, query, key) varies by query, like a causal mask;
                (batch, heads, query, key) also varies by head. Axes of size 1 broadcast.
            attention_bias: added to the scores before the softmax, as relative positions do:
                (batch, heads, query, key), where axes of size 1 broadcast.
            positions: the positions of the queries, and of the keys in self-attention, for rotary
            positions: integers (batch or 1, query); 0, 1, 2 and so on by default.
            distance_vectors: for `DisentangledAttention`, see `scores_bias` there.
            keys_values: the result of the method `keys_values`, used instead of `value`. Only the
                masks then hide keys; see `step`.
            return_attention_scores: also return the probabilities before dropout.
            training: whether to apply dropout.

        Returns:
            (batch, query, hidden_dim); with `return_attention_scores`, also the probabilities
            (batch, heads, query, key) in float32 or wider.

        Raises:
            ValueError: the mask's rank is not 2, 3 or 4.
        """
        if keys_values is None:
            reach = self.reach
            queries, keys, values = layout.project(self, query, query if value is None else value)
            keys = self._placed(keys, self.key_norm, positions)
        else:
            reach = EVERYWHERE
            queries = layout.split(self.query(query), self.num_heads)
            keys, values = keys_values
        queries = self._placed(queries, self.query_norm, layout.query_positions(positions))
        # Scaling the query costs less than scaling (query, key) scores.
        masks = layout.masks(attention_mask, attention_bias)
        bias = self.scores_bias(
            masks.bias,
            queries=queries,
            keys=keys,
            distance_vectors=distance_vectors,
            training=training,
        )
        watch = WATCHERS.of(self)
        context, probabilities = attend(
            queries * self.scale if self.scale_scores else queries,
            keys,
            values,
            mask=masks.mask,
            reach=reach,
            bias=bias,
            any_visible=masks.any_visible,
            scores_dtype=self.scores_dtype,
            dropout=self.dropout,
            watch=watch
            and _telling(watch, query=queries, key=keys, value=values, scale=self.scale, bias=bias),
            return_probabilities=return_attention_scores,
            training=training,
        )
        output = self.output_projection(layout.merge(context))
        return (output, probabilities) if return_attention_scores else output

    def step(
        self,
        query: Tensor,
        *,
        cache: KeysValues,
        index: Tensor | None = None,
        attention_mask: Tensor | None = None,
        attention_bias: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> tuple[Tensor, KeysValues]:
        """Attends from new positions to themselves and to those in a cache, in inference.

        Args:
            query: vectors of the new positions (rows, new, features).
            cache: keys and values of the earlier positions, each (rows, key heads, length,
                head_dim); see `empty_cache`.
            index: the position to write to in a cache of fixed length, for one new position; None
                if the cache grows.
            attention_mask: see `call`, over the earlier and the new keys; by default all keys so
                far. Causality and the window are applied in addition.
            attention_bias: see `call`.
            positions: see `call`; by default those that follow the cache's.

        Returns:
            (rows, new, hidden_dim), and the cache with the new positions.
        """
        # A single new position is the last one, so causality hides nothing from it.
        reach = Reach(self.use_causal_mask and query.shape[1] != 1, self.window)
        queries: Tensor = None  # the numbers of the new positions
        if self.positions is not None or reach != EVERYWHERE:
            first = ops.shape(cache[0])[2] if index is None else index
            queries = ops.arange(ops.shape(query)[1]) + first
        if positions is None and self.positions is not None:
            positions = queries[None]
        cache, filled = extend_cache(cache, self.keys_values(query, positions=positions), index)
        mask = filled if attention_mask is None else attention_mask
        if reach != EVERYWHERE:
            within = reach.mask(queries, ops.arange(ops.shape(cache[0])[2]))[None, None]
            mask = within if mask is None else ops.logical_and(within, four_axes(mask))
        output = self(
            query,
            keys_values=cache,
            attention_mask=mask,
            attention_bias=attention_bias,
            positions=positions,
        )
        return output, cache

    def scores_bias(
        self,
        bias: Tensor | None,
        *,
        queries: Tensor,
        keys: Tensor,
        distance_vectors: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor | None:
        """Returns what is added to the scores before the softmax: the bias of the call."""
        return bias

    def joined_weights(self) -> tuple[Tensor, Tensor]:
        """Returns the projections to queries, keys and values as one.

        Returns:
            Its matrix (features, (num_heads + 2 * num_key_value_heads) * head_dim), and its bias,
            or None.
        """
        parts = (self.query, self.key, self.value)
        kernel = ops.concatenate([part.kernel for part in parts], axis=1)
        return kernel, ops.concatenate([part.bias for part in parts]) if self.use_bias else None

    def scores_spec(self, query: Tensor, value: Tensor) -> Tensor:
        """Returns the shape and dtype of the attention probabilities (batch, heads, query, key)."""
        shape = (query.shape[0], self.num_heads, query.shape[1], value.shape[1])
        return keras.KerasTensor(shape, dtype=self.scores_dtype)

    @property
    def scale(self) -> float:
        """The factor on the products of queries and keys."""
        scale: float = self.scale_dim**-0.5 if self.scale_scores else 1.0
        return scale

    @property
    def scores_dtype(self) -> str:
        """The dtype of scores and softmax."""
        return at_least_float32(self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {
            "num_heads": self.num_heads,
            "hidden_dim": self.hidden_dim,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "positions": part_config(self.positions),
            "use_causal_mask": self.use_causal_mask,
            "window": self.window,
            "query_key_norm_epsilon": self.query_key_norm_epsilon,
            "query_key_norm_over": self.query_key_norm_over,
            "scale_scores": self.scale_scores,
            "scale_dim": self.scale_dim,
            "attention_dropout": self.attention_dropout,
            "use_bias": self.use_bias,
            "use_output_bias": self.use_output_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "MultiHeadAttention":
        """Makes a layer from the result of `get_config`."""
        positions = keras.saving.deserialize_keras_object(config.get("positions"))
        return super().from_config({**config, "positions": positions})


def _telling(watch: Callable[[Attended], None], **projected: Any) -> Callable[..., None]:
    """Returns a function that adds what `attend` computed, and tells the watcher."""
    return lambda **computed: watch(Attended(**projected, **computed))


def empty_cache(rows: Tensor, attention: MultiHeadAttention, length: int) -> KeysValues:
    """Makes a cache of zeros: keys and values, each (rows, key heads, length, head_dim).

    A cache of length 0 grows by the new positions of each step (`extend_cache` without an index),
    which is less work on a CPU. With a fixed length every shape is static, as XLA requires.
    """
    shape = (rows, attention.num_key_value_heads, length, attention.head_dim)
    keys, values = (ops.zeros(shape, dtype=attention.compute_dtype) for _ in range(2))
    return keys, values


def extend_cache(
    cache: KeysValues, new: KeysValues, index: Tensor | None = None
) -> tuple[KeysValues, Tensor]:
    """Adds new positions' keys and values to a cache, so that later steps can reuse them.

    Args:
        cache: keys and values, each (rows, heads, length, head_dim).
        new: keys and values of the new positions, each (rows, heads, new, head_dim).
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
