"""Computes `softmax(Q K^T + bias) V` in the way that suits the backend and the length."""

from collections.abc import Callable

import keras
from keras import ops

from keras_transformers.layers.dense import softmax
from keras_transformers.layers.masks import EVERYWHERE, MASKED_SCORE, Reach
from keras_transformers.layers.memory.bands import (
    attention_in_bands,
    fits_bands,
    shortest_in_bands,
)
from keras_transformers.layers.memory.blocks import attention_in_blocks, goes_in_blocks
from keras_transformers.layers.tensors import Tensor


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    reach: Reach = EVERYWHERE,
    bias: Tensor | None = None,
    any_visible: Tensor | None = None,
    scores_dtype: str = "float32",
    dropout: keras.layers.Dropout | None = None,
    watch: Callable[..., None] | None = None,
    return_probabilities: bool = False,
    training: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """Computes `softmax(Q K^T + bias) V` for each head.

    On JAX, Keras' fused kernel computes it, unless the probabilities are returned or dropped out;
    on a GPU, in 16 bits, that is the flash kernel, which never stores the scores. On TensorFlow,
    unless the probabilities are returned, known lengths above 1,024 are processed in blocks of
    queries, whose memory grows linearly with the length. With a window, time and memory grow
    linearly on every backend, for lengths of several windows: a graph with an unknown length
    decides when it runs. That needs masks that all queries share, such as a padding mask.

    Args:
        query: scaled, (batch, heads, query, head_dim).
        key: (batch, key heads, key, head_dim); each key head serves heads / key heads adjacent
            query heads (grouped-query attention, Ainslie et al. 2023).
        value: (batch, key heads, key, head_dim).
        mask: bool (batch or 1, heads or 1, query or 1, key), True where a query may attend; None
            for everywhere.
        reach: the keys that a query may see by position, in addition to the mask; only in
            self-attention.
        bias: added to the scores, (batch or 1, heads or 1, query, key), or None.
        any_visible: (batch, 1, 1, 1), 1 where a row has a visible key and 0 where it has none, if
            `bias` hides keys; by default derived from `mask`.
        scores_dtype: dtype of scores and softmax.
        dropout: the dropout on the probabilities.
        watch: called with `scores`, `probabilities` before dropout, and `context`.
        return_probabilities: whether to return them.
        training: whether to apply dropout.

    Returns:
        The context (batch, heads, query, head_dim), zeros where a query sees no key; and the
        probabilities (batch, heads, query, key), or None.
    """
    drops = bool(training and dropout is not None and dropout.rate)
    shows = return_probabilities or watch is not None
    if not shows and fits_bands(reach, mask, bias):
        length = ops.shape(query)[2]
        if not isinstance(length, int) or length >= shortest_in_bands(reach):
            context = attention_in_bands(
                query,
                *(_repeated(x, query.shape[1]) for x in (key, value)),
                mask=mask,
                reach=reach,
                bias=bias,
                scores_dtype=scores_dtype,
                dropout=dropout,
                training=training,
            )
            return _zero_unseen(context, any_visible), None
    if not shows and goes_in_blocks(query, key):
        key, value = (_repeated(x, query.shape[1]) for x in (key, value))
        context = attention_in_blocks(
            query,
            key,
            value,
            mask=mask,
            reach=reach,
            bias=bias,
            scores_dtype=scores_dtype,
            dropout=dropout.rate if drops and dropout is not None else 0.0,
            seed=dropout.seed_generator.next() if drops and dropout is not None else None,
        )
        return _zero_unseen(context, any_visible), None
    return _whole(
        query,
        key,
        value,
        mask=mask,
        reach=reach,
        bias=bias,
        any_visible=any_visible,
        scores_dtype=scores_dtype,
        dropout=dropout,
        watch=watch,
        return_probabilities=return_probabilities,
        training=training,
    )


def _whole(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor,
    reach: Reach,
    bias: Tensor,
    any_visible: Tensor,
    scores_dtype: str,
    dropout: keras.layers.Dropout | None,
    watch: Callable[..., None] | None = None,
    return_probabilities: bool = False,
    training: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """Computes all scores at once; see `attend`."""
    drops = bool(training and dropout is not None and dropout.rate)
    shows = return_probabilities or watch is not None
    visible = mask
    if reach != EVERYWHERE:
        by_position = reach.mask(ops.arange(ops.shape(query)[2]), ops.arange(ops.shape(key)[2]))
        visible = by_position if mask is None else ops.logical_and(by_position, mask)
    if any_visible is None and visible is not None:
        any_visible = ops.any(visible, axis=-1, keepdims=True)
    if _calls_one_kernel() and not (shows or drops):
        context = _kernel_attention(query, key, value, mask, visible, reach, bias)
        return _zero_unseen(context, any_visible), None
    scores = ops.cast(_by_group(query, ops.transpose(key, (0, 1, 3, 2))), scores_dtype)
    if bias is not None:
        scores = scores + ops.cast(bias, scores_dtype)
    if visible is not None:
        # `where`, not an added mask: TensorFlow fuses the addition into a slow kernel.
        scores = ops.where(visible, scores, MASKED_SCORE)
    probabilities = softmax(scores)  # (batch, heads, query, key)
    weights = ops.cast(probabilities, value.dtype)
    if dropout is not None:
        weights = dropout(weights, training=training)
    context = _zero_unseen(_by_group(weights, value), any_visible)
    if watch is not None:
        watch(scores=scores, probabilities=probabilities, context=context)
    return context, probabilities if return_probabilities else None


def _zero_unseen(context: Tensor, any_visible: Tensor) -> Tensor:
    return context if any_visible is None else context * ops.cast(any_visible, context.dtype)


def _by_group(left: Tensor, right: Tensor) -> Tensor:
    """Multiplies (batch, heads, query, n) by the matrices (batch, key heads, n, m) of its groups.

    Returns:
        (batch, heads, query, m).
    """
    heads, key_heads = left.shape[1], right.shape[1]
    if heads == key_heads:
        return ops.matmul(left, right)
    batch, _, length, inner = ops.shape(left)
    rows = ops.reshape(left, (batch, key_heads, heads // key_heads * length, inner))
    return ops.reshape(ops.matmul(rows, right), (batch, heads, length, ops.shape(right)[-1]))


def _repeated(heads: Tensor, num_heads: int) -> Tensor:
    """Repeats key heads (batch, key heads, key, head_dim) for each head that they serve."""
    times = num_heads // heads.shape[1]
    return heads if times == 1 else ops.repeat(heads, times, axis=1)


def _calls_one_kernel() -> bool:
    """Returns whether the backend can compute attention in one kernel, as JAX does."""
    return keras.backend.backend() == "jax"


def _kernel_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    visible: Tensor,
    reach: Reach,
    bias: Tensor,
) -> Tensor:
    """Computes `softmax(Q K^T + bias) V` in one operation.

    Args:
        query: scaled, (batch, heads, query, head_dim).
        key: (batch, key heads, key, head_dim).
        value: (batch, key heads, key, head_dim).
        mask: see `attend`.
        visible: the mask combined with `reach`, or None.
        reach: see `attend`. The kernel has its own causal mask.
        bias: (batch or 1, heads or 1, query, key), or None.

    Returns:
        (batch, heads, query, head_dim); arbitrary numbers where a query sees no key.
    """
    is_causal = reach == Reach(causal=True)
    mask = mask if is_causal else visible
    if mask is not None:  # cuDNN rejects masks without an axis for the queries
        mask = ops.broadcast_to(mask, (*mask.shape[:2], query.shape[2], key.shape[2]))
    # XLA removes these transpositions, because they undo those that split the heads.
    query, key, value = (ops.transpose(x, (0, 2, 1, 3)) for x in (query, key, value))
    context = ops.dot_product_attention(
        query,
        key,
        value,
        bias=bias,
        mask=mask,
        scale=1.0,
        is_causal=is_causal,
        # On a TPU, Keras 3.15 uses the first row's mask for all rows.
        flash_attention=None if _has_gpu() else False,
    )
    return ops.transpose(context, (0, 2, 1, 3))


def _has_gpu() -> bool:
    return any(device.startswith("gpu") for device in keras.distribution.list_devices())
