"""Computes attention in memory linear in the length, one block of queries at a time.

Rabe and Staats 2021, "Self-attention Does Not Need O(n^2) Memory"; Dao et al. 2022,
"FlashAttention". The backward pass recomputes each block's scores and dropout.
"""

from collections.abc import Callable, Sequence

import keras

from keras_transformers.layers.masks import EVERYWHERE, MASKED_SCORE, Reach
from keras_transformers.layers.tensors import Tensor

# Use blocks only if a head has more scores than this. Plain attention takes a little less time.
MOST_SCORES = 1024 * 1024
# Queries whose scores exist at the same time. Smaller blocks take more time.
BLOCK = 256


def goes_in_blocks(query: Tensor, key: Tensor) -> bool:
    """Returns whether to compute attention in blocks: on TensorFlow, for many scores.

    A length that is unknown when a graph is made counts as short, so the choice costs nothing.

    Args:
        query: (batch, heads, query, head_dim).
        key: (batch, heads, key, head_dim).
    """
    if keras.backend.backend() != "tensorflow" or None in (query.shape[2], key.shape[2]):
        return False
    return query.shape[2] * key.shape[2] > MOST_SCORES


def attention_in_blocks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    reach: Reach = EVERYWHERE,
    bias: Tensor | None = None,
    scores_dtype: str = "float32",
    dropout: float = 0.0,
    seed: Tensor | None = None,
) -> Tensor:
    """Computes `softmax(Q K^T + bias) V`, block by block.

    Args:
        query: scaled, (batch, heads, query, head_dim).
        key: (batch, heads, key, head_dim).
        value: (batch, heads, key, head_dim).
        mask: bool (batch or 1, heads or 1, query or 1, key), or None.
        reach: the keys that a query may see by position, in addition to the mask.
        bias: (batch or 1, heads or 1, query, key), or None.
        scores_dtype: dtype of scores and softmax.
        dropout: rate on the probabilities.
        seed: int64 (2,), for the dropout.

    Returns:
        (batch, heads, query, head_dim); zeros where a query sees no key.
    """
    import tensorflow as tf

    length, keys = query.shape[2], key.shape[2]
    masks = _Rows(mask, length)

    def probabilities(index: Tensor, query: Tensor, key: Tensor, biases: "_Rows") -> Tensor:
        """Returns a block's (batch, heads, block, key): zeros where a query sees no key."""
        scores = tf.cast(tf.matmul(query, key, transpose_b=True), scores_dtype)
        if biases.blocks is not None:
            scores += tf.cast(biases[index], scores_dtype)
        visible = masks[index]
        if reach != EVERYWHERE:
            places = index * BLOCK + tf.range(BLOCK)
            within = reach.mask(places, tf.range(keys))[None, None]  # (1, 1, block, key)
            visible = within if visible is None else tf.logical_and(visible, within)
        if visible is None:
            return tf.nn.softmax(scores)
        shares = tf.nn.softmax(tf.where(visible, scores, tf.cast(MASKED_SCORE, scores_dtype)))
        return shares * tf.cast(tf.reduce_any(visible, axis=-1, keepdims=True), scores_dtype)

    def dropped(index: Tensor, values: Tensor) -> Tensor:
        """Applies the dropout of a block, the same at every call."""
        if not dropout:
            return values
        block_seed = tf.random.experimental.stateless_fold_in(seed, index)
        kept = tf.random.stateless_uniform(tf.shape(values), block_seed) >= dropout
        return tf.where(kept, values / (1.0 - dropout), tf.zeros_like(values))

    @tf.custom_gradient
    def attend(*tensors: Tensor) -> Tensor:
        query, key, value, *biased = tensors
        bias = biased[0] if biased else None
        queries, biases = _Rows(query, length), _Rows(bias, length)

        def context(index: Tensor) -> list[Tensor]:
            weights = dropped(index, probabilities(index, queries[index], key, biases))
            return [tf.matmul(tf.cast(weights, value.dtype), value)]

        def gradient(upstream: Tensor) -> list[Tensor]:
            upstreams = _Rows(upstream, length)

            def block_gradients(index: Tensor, d_key: Tensor, d_value: Tensor) -> list[Tensor]:
                block, d_context = queries[index], upstreams[index]
                shares = probabilities(index, block, key, biases)
                weights = tf.cast(dropped(index, shares), value.dtype)
                d_value += tf.matmul(weights, d_context, transpose_a=True)
                d_shares = tf.cast(tf.matmul(d_context, value, transpose_b=True), scores_dtype)
                d_shares = dropped(index, d_shares)
                d_scores = shares * (
                    d_shares - tf.reduce_sum(d_shares * shares, axis=-1, keepdims=True)
                )
                d_bias = [] if bias is None else [biases.summed(d_scores)]
                d_scores = tf.cast(d_scores, key.dtype)
                d_key += tf.matmul(d_scores, block, transpose_a=True)
                return [tf.matmul(d_scores, key), *d_bias, d_key, d_value]

            (d_query, *d_bias), sums = _in_turn(
                block_gradients, queries.count, [tf.zeros_like(key), tf.zeros_like(value)]
            )
            return [queries.joined(d_query), *sums, *map(biases.joined, d_bias)]

        (contexts,), _ = _in_turn(context, queries.count)
        return queries.joined(contexts), gradient

    return attend(query, key, value, *([] if bias is None else [bias]))


class _Rows:
    """A tensor's rows, cut into blocks.

    Args:
        tensor: (batch, heads, length, columns), or with a length of 1, the same for all rows.
        length: number of rows.

    Attributes:
        blocks: (blocks, batch, heads, block, columns), padded with zeros; None without a tensor.
        count: number of blocks.
    """

    def __init__(self, tensor: Tensor, length: int) -> None:
        import tensorflow as tf

        self.length, self.count = length, -(-length // BLOCK)
        self.tensor = self.blocks = tensor
        self.is_same = tensor is not None and tensor.shape[2] == 1
        if tensor is not None and not self.is_same:
            missing = self.count * BLOCK - length
            padded = tf.pad(tensor, [[0, 0], [0, 0], [0, missing], [0, 0]])
            batch, heads, _, columns = tf.unstack(tf.shape(padded))
            padded = tf.reshape(padded, (batch, heads, self.count, BLOCK, columns))
            self.blocks = tf.transpose(padded, (2, 0, 1, 3, 4))

    def __getitem__(self, index: Tensor) -> Tensor:
        return self.blocks if self.blocks is None or self.is_same else self.blocks[index]

    def summed(self, values: Tensor) -> Tensor:
        """Sums (batch, heads, block, columns) over the axes that broadcast, for a gradient."""
        import tensorflow as tf

        axes = [axis for axis, size in enumerate(self.tensor.shape) if size == 1]
        return tf.cast(tf.reduce_sum(values, axes, keepdims=True), self.tensor.dtype)

    def joined(self, blocks: Tensor) -> Tensor:
        """Turns blocks back into a tensor."""
        import tensorflow as tf

        if self.is_same:
            return tf.reduce_sum(blocks, axis=0)
        batch, heads, _, columns = tf.unstack(tf.shape(blocks)[1:])
        rows = tf.reshape(
            tf.transpose(blocks, (1, 2, 0, 3, 4)), (batch, heads, self.count * BLOCK, columns)
        )
        return tf.ensure_shape(
            rows[:, :, : self.length], (*self.tensor.shape[:3], blocks.shape[-1])
        )


def _in_turn(
    compute: Callable[..., list[Tensor]], count: int, sums: Sequence[Tensor] = ()
) -> tuple[list[Tensor], list[Tensor]]:
    """Calls `compute(index, *sums)` for one block after another, never for two at once.

    Returns:
        Its results for all blocks, stacked, and the final sums, which are its last results.
    """
    import tensorflow as tf

    first = compute(tf.constant(0), *sums)
    num_stacked = len(first) - len(sums)
    lists = [
        tf.TensorArray(result.dtype, size=count, element_shape=result.shape).write(0, result)
        for result in first[:num_stacked]
    ]

    def step(index: Tensor, lists: Tensor, sums: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        results = compute(index, *sums)
        lists = [array.write(index, new) for array, new in zip(lists, results, strict=False)]
        return index + 1, lists, results[num_stacked:]

    _, lists, last = tf.while_loop(
        lambda index, *_: index < count,
        step,
        (tf.constant(1), lists, first[num_stacked:]),
        parallel_iterations=1,
    )
    return [array.stack() for array in lists], last
