"""Defines how a batch's vectors are laid out in memory: padded, or only real tokens."""

import functools
from collections.abc import Callable
from typing import NamedTuple

from keras import ops
from keras.layers import Layer

from keras_transformers.layers.masks import MASKED_SCORE, four_axes
from keras_transformers.layers.scopes import KERNELS, Selection
from keras_transformers.layers.tensors import Tensor

__all__ = ["Padded", "Rows", "Selected"]


class Masks(NamedTuple):
    """The masks and biases that hide keys from queries; see `attend.attend`.

    Attributes:
        mask: bool (batch or 1, heads or 1, query or 1, key), or None.
        bias: float (batch or 1, heads or 1, query, key), or None.
        any_visible: float (batch, 1, 1, 1) if `bias` hides keys; None if it does not.
    """

    mask: Tensor
    bias: Tensor
    any_visible: Tensor | None = None


class Padded:
    """All positions of every row, padding included: (batch, length, features)."""

    def project(
        self, attention: Layer, query: Tensor, value: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Projects vectors to queries, keys and values.

        Args:
            attention: the `MultiHeadAttention` whose projections to use.
            query: (batch, query, features).
            value: (batch, key, features).

        Returns:
            (batch, heads, query, head_dim), and twice (batch, key heads, key, head_dim).
        """
        return (
            self.split(attention.query(query), attention.num_heads),
            self.split(attention.key(value), attention.num_key_value_heads),
            self.split(attention.value(value), attention.num_key_value_heads),
        )

    def split(self, projected: Tensor, num_heads: int) -> Tensor:
        """Splits (batch, length, heads * head_dim) into (batch, heads, length, head_dim)."""
        batch, length = ops.shape(projected)[:2]
        heads = ops.reshape(projected, (batch, length, num_heads, projected.shape[-1] // num_heads))
        return ops.transpose(heads, (0, 2, 1, 3))

    def merge(self, context: Tensor) -> Tensor:
        """Joins (batch, heads, length, head_dim) to (batch, length, heads * head_dim)."""
        width = context.shape[1] * context.shape[3]
        context = ops.transpose(context, (0, 2, 1, 3))  # (batch, length, heads, head_dim)
        batch, length = ops.shape(context)[:2]
        return ops.reshape(context, (batch, length, width))

    def masks(self, attention_mask: Tensor, attention_bias: Tensor) -> Masks:
        """Returns the masks and biases that hide keys; see `MultiHeadAttention.call`."""
        mask = None if attention_mask is None else four_axes(attention_mask)
        return Masks(mask, attention_bias)

    def query_positions(self, positions: Tensor) -> Tensor:
        """Returns the positions of the queries, from those of all positions."""
        return positions

    def residual(self, hidden: Tensor) -> Tensor:
        """Returns the vectors to which a block adds what it computes."""
        return hidden

    def at(self, hidden: Tensor, positions: Tensor) -> Tensor:
        """Returns the vectors at positions (batch, n) of each row: (batch, n, features)."""
        batch, length, width = ops.shape(hidden)
        rows = ops.reshape(hidden, (-1, width))  # (batch * length, features)
        return ops.take(rows, _numbers(positions, batch, length), axis=0)


PADDED = Padded()


def _numbers(positions: Tensor, batch: Tensor, length: Tensor) -> Tensor:
    """Returns where positions (batch, n) stand among all, which are numbered row after row."""
    return positions + (ops.arange(batch, dtype=positions.dtype) * length)[:, None]


def _take(rows: Tensor, places: Tensor) -> Tensor:
    return ops.take(rows, places, axis=0)


def joined_product(tokens: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
    """Maps tokens (tokens, features) to an attention's queries, keys and values side by side.

    Args:
        tokens: (tokens, features).
        kernel: see `MultiHeadAttention.joined_weights`.
        bias: see there.
    """
    product = ops.matmul(tokens, kernel)
    return product if bias is None else ops.add(product, bias)


class Rows(Padded):
    """Only the real tokens: (tokens, features), for inference.

    Only the scores have padding: everything else costs only as much as the real tokens. One product
    computes queries, keys and values. The mask is made once for all layers. The first position of
    each row always counts as a token, so that a row that is all padding still has a vector for a
    pooler to read.

    Args:
        padding_mask: bool (batch, length), True at real tokens.
        like: a tensor (batch, length, ...) that has the shape if there is no mask; all positions
            are then real.
        take: maps rows (rows, features) and indices to the rows there. `tf.gather` takes fewer
            steps than `ops.take`, which allows negative indices.

    Example:
        >>> layout = Rows(ops.array([[True, True, False], [True, False, False]]))
        >>> layout.tokens(ops.reshape(ops.arange(6), (2, 3, 1)))[:, 0].numpy().tolist()
        [0, 1, 3]
    """

    def __init__(
        self,
        padding_mask: Tensor | None = None,
        *,
        like: Tensor | None = None,
        take: Callable[[Tensor, Tensor], Tensor] = _take,
    ) -> None:
        self._take = take
        self.batch, self.length = ops.shape(like if padding_mask is None else padding_mask)[:2]
        self.padding_mask = padding_mask
        self._biases: list[tuple[Tensor, Tensor]] = []  # each without and with the mask

    @functools.cached_property
    def _is_kept(self) -> Tensor:
        first = ops.arange(self.length) == 0  # (length,)
        kept = ops.logical_or(self.padding_mask, first[None])
        return ops.reshape(kept, (-1,))  # (batch * length,)

    @functools.cached_property
    def _kept(self) -> Tensor:
        return ops.cast(ops.nonzero(self._is_kept)[0], "int32")  # (tokens,)

    @functools.cached_property
    def _places(self) -> Tensor:
        """The token for each position, (batch * length,); padding repeats the token before it."""
        return ops.cumsum(ops.cast(self._is_kept, "int32")) - 1

    def tokens(self, padded: Tensor) -> Tensor:
        """Maps (batch, length, features) to the real tokens' (tokens, features)."""
        rows = ops.reshape(padded, (-1, padded.shape[-1]))  # (batch * length, features)
        return rows if self.padding_mask is None else self._take(rows, self._kept)

    def padded(self, tokens: Tensor) -> Tensor:
        """Maps (tokens, features) to (batch, length, features); padding holds other tokens."""
        rows = tokens if self.padding_mask is None else self._take(tokens, self._places)
        return ops.reshape(rows, (self.batch, self.length, tokens.shape[-1]))

    def project(
        self, attention: Layer, query: Tensor, value: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Projects tokens (tokens, features) like `Padded.project`; only for self-attention."""
        kernel = KERNELS.of(attention)
        if kernel is None:
            joined = joined_product(query, *attention.joined_weights())
        else:
            joined = kernel(query)
        joined = self.padded(joined)
        heads, key_heads = attention.num_heads, attention.num_key_value_heads
        if heads == key_heads:  # all three in one transposition
            shape = (self.batch, self.length, 3, heads, attention.head_dim)
            joined = ops.transpose(ops.reshape(joined, shape), (2, 0, 3, 1, 4))
            query, key, value = ops.unstack(joined, 3)
            return query, key, value
        joined = self.split(joined, heads + 2 * key_heads)
        ends = heads, heads + key_heads
        return joined[:, : ends[0]], joined[:, ends[0] : ends[1]], joined[:, ends[1] :]

    def at(self, hidden: Tensor, positions: Tensor) -> Tensor:
        """Returns the vectors at positions (batch, n) of each row, like `Padded.at`."""
        places = _numbers(positions, self.batch, self.length)
        if self.padding_mask is not None:
            places = self._take(self._places, places)
        return self._take(hidden, places)

    def merge(self, context: Tensor) -> Tensor:
        """Joins (batch, heads, length, head_dim) to the tokens' (tokens, heads * head_dim)."""
        width = context.shape[1] * context.shape[3]
        context = ops.transpose(context, (0, 2, 1, 3))  # (batch, length, heads, head_dim)
        return self.tokens(ops.reshape(context, (self.batch, self.length, width)))

    def masks(self, attention_mask: Tensor, attention_bias: Tensor) -> Masks:
        """Returns the mask that hides padding, made once for all layers.

        Raises:
            ValueError: there is an `attention_mask` in addition to the padding mask of these rows.
        """
        if attention_mask is not None:
            raise ValueError("attention_mask: rows of real tokens have their own padding mask")
        return Masks(None, self.scores_bias(attention_bias), self.any_visible)

    @functools.cached_property
    def any_visible(self) -> Tensor:
        """Float32 (batch, 1, 1, 1): 1 where a row has real tokens; None without a mask."""
        if self.padding_mask is None:
            return None
        return ops.cast(ops.any(self.padding_mask, axis=1), "float32")[:, None, None, None]

    @functools.cached_property
    def _mask_bias(self) -> Tensor:
        scores = ops.where(self.padding_mask, 0.0, MASKED_SCORE)
        return scores[:, None, None, :]  # (batch, 1, 1, key)

    def scores_bias(self, attention_bias: Tensor | None = None) -> Tensor:
        """Returns the bias to add to the scores, or None.

        Args:
            attention_bias: (batch or 1, heads, query, key), or None.
        """
        if self.padding_mask is None:
            return attention_bias
        if attention_bias is None:
            return self._mask_bias
        for bias, masked in self._biases:  # which all blocks share
            if bias is attention_bias:
                return masked
        self._biases.append((attention_bias, attention_bias + self._mask_bias))
        return self._biases[-1][1]


class Selected(Padded):
    """Only selected positions of each row, which attend to all: (batch, selected, features).

    It is the layout of a block whose other vectors nothing reads. The block reads its inputs in
    another layout; what it returns is padded.

    Args:
        layout: that of the inputs.
        selection: which positions.

    Example:
        >>> from keras_transformers.layers.scopes import Selection
        >>> hidden = ops.reshape(ops.arange(6), (2, 3, 1))
        >>> Selected(PADDED, Selection(first=True)).residual(hidden).numpy().ravel().tolist()
        [0, 3]
    """

    def __init__(self, layout: Padded, selection: Selection) -> None:
        self._layout, self._selection = layout, selection

    def project(
        self, attention: Layer, query: Tensor, value: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Projects vectors like `Padded.project`; the queries are those of the selection."""
        if self._layout is PADDED:
            return PADDED.project(attention, self.residual(query), value)
        queries, keys, values = self._layout.project(attention, query, value)
        if self._selection.positions is None:
            return queries[:, :, :1], keys, values
        # Not `ops.take_along_axis`, which fails if no position is selected.
        selected = PADDED.at(PADDED.merge(queries), self.query_positions(None))
        return PADDED.split(selected, attention.num_heads), keys, values

    def merge(self, context: Tensor) -> Tensor:
        """Joins (batch, heads, selected, head_dim) to (batch, selected, heads * head_dim)."""
        return PADDED.merge(context)

    def masks(self, attention_mask: Tensor, attention_bias: Tensor) -> Masks:
        """Returns the masks that hide keys; with a bias that varies by query, only the first's."""
        masks = self._layout.masks(attention_mask, attention_bias)
        return masks if masks.bias is None else masks._replace(bias=masks.bias[:, :, :1])

    def query_positions(self, positions: Tensor) -> Tensor:
        """Returns the positions of the selection, (batch or 1, selected)."""
        first, others = self._selection
        if others is None:
            return ops.zeros((1, 1), "int32")
        return ops.pad(others, ((0, 0), (int(first), 0)))

    def residual(self, hidden: Tensor) -> Tensor:
        """Returns the inputs at the selection, (batch, selected, features)."""
        if self._layout is PADDED and self._selection.positions is None:
            return hidden[:, :1]
        return self._layout.at(hidden, self.query_positions(None))
