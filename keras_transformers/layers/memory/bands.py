"""Computes attention within a window, in time and memory linear in the length.

Queries are processed in blocks as long as the window, with only the keys of their own block and the
adjacent ones. Beltagy et al. 2020, "Longformer", arXiv:2004.05150, section 3.1.
"""

from keras import ops
from keras.layers import Dropout

from keras_transformers.layers.dense import softmax
from keras_transformers.layers.masks import MASKED_SCORE, Reach
from keras_transformers.layers.tensors import Tensor

# Shorter blocks take more time than the scores that they save.
_LEAST_BLOCK = 32
# From this many blocks on, bands have fewer scores than the whole matrix.
_FEWEST_BLOCKS = 4


def block_length(reach: Reach) -> int:
    """Returns the number of queries per block, so that no window reaches past the next block."""
    assert reach.window is not None
    return max(reach.window, _LEAST_BLOCK)


def fits_bands(reach: Reach, mask: Tensor, bias: Tensor) -> bool:
    """Returns whether bands are possible: with a window, and masks that all queries share.

    Args:
        reach: the keys that a query may see by position.
        mask: (batch or 1, heads or 1, query or 1, key), or None.
        bias: a bias of this shape, or None.
    """
    shared = all(hides is None or hides.shape[2] == 1 for hides in (mask, bias))
    return reach.window is not None and shared


def shortest_in_bands(reach: Reach) -> int:
    """Returns the length from which bands take less time than the whole matrix, in tokens."""
    return _FEWEST_BLOCKS * block_length(reach) + 1


def keys_met(reach: Reach, length: int) -> int:
    """Returns how many keys each query is multiplied with, for masks that fit bands."""
    if reach.window is None or length < shortest_in_bands(reach):
        return length
    return (1 + sum(_sides(reach))) * block_length(reach)


def _sides(reach: Reach) -> tuple[int, int]:
    """Returns how many blocks before and after its own a query may see."""
    return (1, 0) if reach.causal else (1, 1)


def attention_in_bands(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    reach: Reach,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    scores_dtype: str = "float32",
    dropout: Dropout | None = None,
    training: bool | None = None,
) -> Tensor:
    """Computes `softmax(Q K^T + bias) V` within a window, in self-attention.

    If the length is unknown, the graph decides when it runs whether to cut the text: a short text
    is a single block. `ops.cond` would do the same, but under XLA every training step would be
    compiled again, because the shapes of one branch's tensors, which its gradient reads, would
    depend on the values of all inputs.

    Args:
        query: scaled, (batch, heads, length, head_dim).
        key: (batch, heads, length, head_dim).
        value: (batch, heads, length, head_dim).
        reach: has a window.
        mask: bool (batch or 1, heads or 1, 1, length), True at keys that may be seen; or None.
        bias: added to the scores of each key, (batch or 1, heads or 1, 1, length), or None.
        scores_dtype: dtype of scores and softmax.
        dropout: a layer for the probabilities, or None.
        training: whether to apply dropout.

    Returns:
        (batch, heads, length, head_dim); zeros where a query sees no key.
    """
    length, size, (before, behind) = ops.shape(query)[2], block_length(reach), _sides(reach)
    if not isinstance(length, int):
        cuts = ops.cast(length >= shortest_in_bands(reach), "int32")
        size = ops.maximum(cuts * size + (1 - cuts) * length, 1)
        before, behind = cuts * before, cuts * behind
    count = (length + size - 1) // size
    width = (before + 1 + behind) * size

    def blocks(x: Tensor, before: Tensor, behind: Tensor) -> Tensor:
        """Cuts (b, h, length, n) into (b, h, before + count + behind, size, n), with zeros."""
        b, h, _, n = ops.shape(x)
        first = ops.zeros((b, h, before * size, n), x.dtype)
        last = ops.zeros((b, h, (count + behind) * size - length, n), x.dtype)
        joined = ops.concatenate([first, x, last], axis=2)
        return ops.reshape(joined, (b, h, before + count + behind, size, n))

    def bands(x: Tensor) -> Tensor:
        """Returns the keys that each block may see, (b, h, count, width, n)."""
        cut = blocks(x, before, behind)
        # A single block has no adjacent blocks.
        parts = [cut[:, :, :count, : before * size], cut[:, :, before : before + count]]
        parts.append(cut[:, :, before + behind : before + behind + count, : behind * size])
        return ops.concatenate(parts, axis=3)

    def by_key(x: Tensor) -> Tensor:
        """Turns (b, h, 1, length) into (b, h, count, 1, width)."""
        return ops.transpose(bands(ops.transpose(x, (0, 1, 3, 2))), (0, 1, 2, 4, 3))

    real = ops.ones((1, 1, 1, length), "bool") if mask is None else mask
    near = reach.mask(ops.arange(size), ops.arange(width) - before * size)  # (size, width)
    visible = ops.logical_and(by_key(real), near)  # (b, h, count, size, width)
    keys, values = bands(key), bands(value)
    scores = ops.matmul(blocks(query, 0, 0), ops.transpose(keys, (0, 1, 2, 4, 3)))
    scores = ops.cast(scores, scores_dtype)  # (batch, heads, count, size, width)
    if bias is not None:
        scores = scores + by_key(ops.cast(bias, scores_dtype))
    probabilities = softmax(ops.where(visible, scores, MASKED_SCORE))
    seen = ops.cast(ops.any(visible, axis=-1, keepdims=True), scores_dtype)
    weights = ops.cast(probabilities * seen, value.dtype)
    if dropout is not None:
        weights = dropout(weights, training=training)
    context = ops.matmul(weights, values)  # (batch, heads, count, size, head_dim)
    batch, heads, _, head_dim = ops.shape(query)
    context = ops.reshape(context, (batch, heads, count * size, head_dim))
    return context[:, :, :length]
