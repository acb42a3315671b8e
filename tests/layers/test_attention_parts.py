"""Fewer key heads, rotary positions, windows and norms of heads: the formula, caches and rows."""

import keras
import numpy as np
import pytest
from checks import in_float64, same_but_for_rounding

from keras_transformers.layers import (
    FeedForward,
    MultiHeadAttention,
    RotaryPositions,
    Rows,
    TransformerBlock,
)
from keras_transformers.layers.attention import empty_cache

pytestmark = pytest.mark.kernels

RANDOM = np.random.default_rng(2)
BATCH, LENGTH, WIDTH, HEADS, HEAD_DIM = 2, 7, 12, 4, 6
HIDDEN = RANDOM.normal(size=(BATCH, LENGTH, WIDTH)).astype("float32")
PARTS = {
    "grouped": {"num_key_value_heads": 2},
    "one key head": {"num_key_value_heads": 1},
    "rotary": {"positions": 100.0},
    "window": {"window": 2},
    "norms": {"query_key_norm_epsilon": 1e-5},
    "all": {
        "num_key_value_heads": 2,
        "positions": 100.0,
        "window": 3,
        "query_key_norm_epsilon": 1e-5,
        "use_bias": False,
    },
}


def unbuilt(*, use_causal_mask=True, positions=None, **options):
    return MultiHeadAttention(
        HEADS,
        WIDTH,
        head_dim=HEAD_DIM,
        use_causal_mask=use_causal_mask,
        positions=None if positions is None else RotaryPositions(positions),
        **options,
    )


def lively(layer):
    layer.build((None, None, WIDTH))
    for weight in layer.weights:
        if "seed" not in weight.path:
            weight.assign(np.random.default_rng(3).normal(size=weight.shape) * 0.5)
    return layer


def made(**options):
    return lively(unbuilt(**options))


def expected(layer, hidden):
    """The formula, position by position and head by head, in float64."""
    hidden = hidden.astype("float64")

    def heads(dense, norm=None):
        rows = hidden @ np.asarray(dense.kernel, "float64")
        if dense.use_bias:
            rows += np.asarray(dense.bias)
        rows = rows.reshape(BATCH, LENGTH, -1, HEAD_DIM)
        if norm is not None:
            size = np.sqrt((rows**2).mean(-1, keepdims=True) + layer.query_key_norm_epsilon)
            rows = rows / size * np.asarray(norm.scale)
        return rows

    query, key = heads(layer.query, layer.query_norm), heads(layer.key, layer.key_norm)
    value = heads(layer.value)
    if layer.positions:
        query, key = (turned(x, layer.positions.base) for x in (query, key))
    context = np.zeros((BATCH, LENGTH, HEADS, HEAD_DIM))
    for head in range(HEADS):
        of = head // (HEADS // layer.num_key_value_heads)
        for i in range(LENGTH):
            first = 0 if layer.window is None else max(0, i - layer.window)
            seen = slice(first, i + 1)
            scores = np.einsum("bd,bkd->bk", query[:, i, head], key[:, seen, of])
            weights = np.exp(scores / np.sqrt(HEAD_DIM))
            weights /= weights.sum(-1, keepdims=True)
            context[:, i, head] = np.einsum("bk,bkd->bd", weights, value[:, seen, of])
    output = context.reshape(BATCH, LENGTH, -1) @ np.asarray(layer.output_projection.kernel)
    return output + (np.asarray(layer.output_projection.bias) if layer.use_bias else 0)


def turned(heads, base):
    """Turns the points (first half, second half) of a plane, as complex numbers."""
    half = HEAD_DIM // 2
    rates = base ** (-np.arange(half) / half)
    angles = np.arange(heads.shape[1])[:, None, None] * rates
    points = (heads[..., :half] + 1j * heads[..., half:]) * np.exp(1j * angles)
    return np.concatenate([points.real, points.imag], -1)


@pytest.mark.parametrize("name", PARTS)
def test_attention_equals_the_formula(name):
    layer = made(**PARTS[name])
    np.testing.assert_allclose(layer(HIDDEN), expected(layer, HIDDEN), atol=2e-5)


@pytest.mark.parametrize("fixed_length", [False, True], ids=["growing", "fixed"])
@pytest.mark.parametrize("name", PARTS)
def test_steps_with_a_cache_equal_the_whole_sequence(name, fixed_length):
    """The first three positions come in one step where the cache grows, the others one by one."""
    layer = made(**PARTS[name])
    outputs = []
    cache = empty_cache(BATCH, layer, LENGTH if fixed_length else 0)
    assert cache[0].shape[1] == layer.num_key_value_heads
    starts = range(LENGTH) if fixed_length else (0, 3, 4, 5, 6)
    for start in starts:
        end = 3 if start == 0 and not fixed_length else start + 1
        index = start if fixed_length else None
        output, cache = layer.step(
            keras.ops.convert_to_tensor(HIDDEN[:, start:end]), cache=cache, index=index
        )
        outputs.append(output)
    whole, exact = layer(HIDDEN), in_float64(layer)(HIDDEN)
    same_but_for_rounding(np.concatenate(outputs, axis=1), whole, exact)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", PARTS)
def test_real_tokens_alone_give_the_same(name, causal):
    attention = unbuilt(use_causal_mask=causal, **PARTS[name])
    block = lively(TransformerBlock(attention, FeedForward(16, WIDTH)))
    mask = keras.ops.convert_to_tensor(np.arange(LENGTH) < np.array([[LENGTH], [4]]))
    layout = Rows(mask)
    rows = block(layout.tokens(keras.ops.convert_to_tensor(HIDDEN)), layout=layout)
    assert rows.shape == (LENGTH + 4, WIDTH)
    padded, exact = (
        layout.tokens(each(HIDDEN, attention_mask=mask)) for each in (block, in_float64(block))
    )
    same_but_for_rounding(rows, padded, exact)


@pytest.mark.parametrize("name", PARTS)
def test_all_parts_come_back_from_the_configuration(name):
    layer = made(**PARTS[name])
    again = MultiHeadAttention.from_config(layer.get_config())
    again.build((None, None, WIDTH))
    again.set_weights(layer.get_weights())
    np.testing.assert_array_equal(again(HIDDEN), layer(HIDDEN))


def test_scores_depend_on_distances_alone():
    layer = made(positions=100.0)
    moved = np.arange(LENGTH)[None] + 1000
    np.testing.assert_allclose(layer(HIDDEN, positions=moved), layer(HIDDEN), atol=1e-4)


def test_a_window_alone_sees_both_sides():
    layer = made(use_causal_mask=False, window=1)
    _, scores = layer(HIDDEN, return_attention_scores=True)
    near = np.abs(np.arange(LENGTH)[:, None] - np.arange(LENGTH)) <= 1
    np.testing.assert_array_equal(np.asarray(scores)[0, 0] > 0, near)


def test_wrong_numbers_are_refused():
    with pytest.raises(ValueError, match=r"num_heads=4.*num_key_value_heads=3"):
        MultiHeadAttention(4, 8, num_key_value_heads=3)
    with pytest.raises(ValueError, match=r"base=0"):
        RotaryPositions(0)


def test_a_block_takes_new_layers():
    with pytest.raises(ValueError, match="already has weights"):
        TransformerBlock(made(), FeedForward(16, WIDTH))


def test_rows_have_their_own_mask():
    layout = Rows(keras.ops.ones((1, 2), "bool"))
    with pytest.raises(ValueError, match="attention_mask"):
        made()(keras.ops.ones((2, WIDTH)), layout=layout, attention_mask=layout.padding_mask)
