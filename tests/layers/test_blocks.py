import keras
import numpy as np
import pytest
from checks import round_trip, same_outputs
from scipy.special import erf

from keras_transformers import layers
from keras_transformers.layers import FeedForward, MultiHeadAttention, TransformerBlock, recurrent
from keras_transformers.layers.attention import empty_cache
from keras_transformers.layers.recurrent.cells import make_cell

RANDOM = np.random.default_rng(1)
HIDDEN = RANDOM.normal(size=(2, 5, 8)).astype("float32")
SOURCE = RANDOM.normal(size=(2, 4, 8)).astype("float32")


def block(*, crosses=False, causal=False, activation="relu", use_bias=True, dtype=None, **options):
    """A block of width 8 with two heads."""
    attention = {"use_bias": use_bias, "dtype": dtype}
    return TransformerBlock(
        MultiHeadAttention(2, 8, use_causal_mask=causal or crosses, **attention),
        FeedForward(16, 8, activation=activation, dtype=dtype),
        cross_attention=MultiHeadAttention(2, 8, **attention) if crosses else None,
        dtype=dtype,
        **options,
    )


def randomize(layer):
    for weight in layer.weights:
        weight.assign(RANDOM.normal(size=weight.shape) * 0.5)
    return layer


def norm(layer, x):
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + layer.epsilon)
    return x * np.asarray(layer.gamma) + np.asarray(layer.beta)


def test_row_dense_is_dense():
    dense = keras.layers.Dense(6, activation="relu")
    rows = layers.RowDense(6, activation="relu")
    dense.build((None, None, 8))
    rows.build((None, None, 8))
    rows.set_weights(dense.get_weights())
    np.testing.assert_allclose(rows(HIDDEN), dense(HIDDEN), atol=1e-6)
    np.testing.assert_allclose(rows(HIDDEN[:, 0]), dense(HIDDEN[:, 0]), atol=1e-6)


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_approximate"])
def test_feed_forward_equals_the_formula(activation):
    layer = layers.FeedForward(16, 8, activation=activation)
    layer.build((None, None, 8))
    randomize(layer)
    w1, b1, w2, b2 = (np.asarray(w, "float64") for w in layer.weights)
    inner = HIDDEN.astype("float64") @ w1 + b1
    inner = {
        "relu": np.maximum(inner, 0),
        "gelu": inner * 0.5 * (1 + erf(inner / np.sqrt(2))),
        "gelu_approximate": inner
        * 0.5
        * (1 + np.tanh(np.sqrt(2 / np.pi) * (inner + 0.044715 * inner**3))),
    }[activation]
    np.testing.assert_allclose(layer(HIDDEN), inner @ w2 + b2, atol=1e-5)


def test_a_gated_feed_forward_without_biases_equals_the_formula():
    layer = layers.FeedForward(16, 8, activation="relu", gated=True, use_bias=False)
    layer.build((None, None, 8))
    w1, v, w2 = (np.asarray(w, "float64") for w in randomize(layer).weights)
    inner = np.maximum(HIDDEN @ w1, 0) * (HIDDEN @ v)
    np.testing.assert_allclose(layer(HIDDEN), inner @ w2, atol=1e-4)


def test_a_block_with_root_mean_square_norms():
    layer = block(norm="rms", norm_position="pre", norm_epsilon=0.1)
    layer.build((None, None, 8))
    randomize(layer)

    def rms(norm, x):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 0.1) * np.asarray(norm.scale)

    x = HIDDEN + layer.self_attention(rms(layer.self_attention_norm, HIDDEN)).numpy()
    expected = x + layer.feed_forward(rms(layer.feed_forward_norm, x)).numpy()
    np.testing.assert_allclose(layer(HIDDEN), expected, atol=2e-5)
    with pytest.raises(ValueError, match="norm='batch'.*use 'layer'.*'rms'"):
        block(norm="batch")


def test_an_unknown_activation_is_refused():
    with pytest.raises(ValueError, match="activation='gelu_new'.*use"):
        layers.FeedForward(16, 8, activation="gelu_new")


@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_a_block_is_its_sublayers_with_residuals(norm_position):
    layer = block(norm_position=norm_position)
    layer.build((None, None, 8))
    randomize(layer)
    one, two = layer.self_attention_norm, layer.feed_forward_norm
    attention, feed_forward = layer.self_attention, layer.feed_forward
    if norm_position == "pre":
        x = HIDDEN + attention(norm(one, HIDDEN)).numpy()
        expected = x + feed_forward(norm(two, x)).numpy()
    else:
        x = norm(one, HIDDEN + attention(HIDDEN).numpy())
        expected = norm(two, x + feed_forward(x).numpy())
    np.testing.assert_allclose(layer(HIDDEN), expected, atol=2e-5)


def test_a_block_with_a_causal_mask_never_sees_the_future():
    layer = block(causal=True)
    changed = HIDDEN.copy()
    changed[:, 3] += 1
    mask = np.array([[True] * 5, [True, False, True, True, True]])
    before, after = (layer(x, attention_mask=mask).numpy() for x in (HIDDEN, changed))
    np.testing.assert_array_equal(before[:, :3], after[:, :3])
    assert not np.array_equal(before[:, 3:], after[:, 3:])


def test_a_block_returns_its_scores():
    layer = block()
    output, scores = layer(HIDDEN, return_attention_scores=True)
    assert output.shape == (2, 5, 8)
    np.testing.assert_allclose(np.sum(scores, -1), np.ones((2, 2, 5)), atol=1e-6)


@pytest.mark.parametrize("fixed_length", [False, True], ids=["growing", "fixed"])
@pytest.mark.parametrize("norm_position", ["pre", "post"])
@pytest.mark.parametrize("num_beams", [1, 3])
def test_decoder_steps_equal_the_whole_sequence(norm_position, fixed_length, num_beams):
    layer = block(crosses=True, norm_position=norm_position)
    targets = RANDOM.normal(size=(2 * num_beams, 5, 8)).astype("float32")
    source_mask = np.array([[True, True, True, False], [True] * 4])
    whole = layer(
        targets,
        np.repeat(SOURCE, num_beams, 0),
        cross_attention_mask=np.repeat(source_mask, num_beams, 0),
    ).numpy()
    cross = layer.cross_attention.keys_values(keras.ops.convert_to_tensor(SOURCE))
    cache = empty_cache(2 * num_beams, layer.self_attention, 5 if fixed_length else 0)
    for index in range(5):
        output, cache = layer.step(
            targets[:, index].reshape(2, num_beams, 8),
            cache=cache,
            cross_keys_values=cross,
            cross_attention_mask=source_mask,
            index=index if fixed_length else None,
        )
        np.testing.assert_allclose(
            np.reshape(output, (-1, 8)), whole[:, index], atol=1e-5, err_msg=f"position {index}"
        )


def test_a_block_with_cross_attention_never_sees_the_future():
    layer = block(crosses=True)
    changed = HIDDEN.copy()
    changed[:, 2] += 1
    before, after = (layer(x, SOURCE).numpy() for x in (HIDDEN, changed))
    np.testing.assert_array_equal(before[:, :2], after[:, :2])
    assert not np.array_equal(before[:, 2:], after[:, 2:])


def called(layer, *args, **kwargs):
    """Returns the shapes and dtypes of a call's results, in the same structure."""
    return keras.tree.map_structure(
        lambda tensor: (tuple(tensor.shape), keras.backend.standardize_dtype(tensor.dtype)),
        layer(*args, **kwargs),
    )


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("scores", [False, True])
def test_what_a_call_gives_is_known_without_calling(scores, dtype):
    inputs, source = (keras.KerasTensor(x.shape) for x in (HIDDEN, SOURCE))
    kwargs = {"return_attention_scores": scores}
    encoder = block(dtype=dtype)
    decoder = block(crosses=True, dtype=dtype)
    assert called(encoder, HIDDEN, **kwargs) == called(
        encoder.compute_output_spec, inputs, **kwargs
    )
    expected = called(decoder, HIDDEN, SOURCE, **kwargs)
    assert expected == called(decoder.compute_output_spec, inputs, source, **kwargs)


@pytest.mark.one_case
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("join_states", [False, True])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_what_a_recurrent_call_gives_is_known_without_calling(cell, join_states, dtype):
    inputs, source = (keras.KerasTensor(x.shape) for x in (HIDDEN, SOURCE))
    encoder = recurrent.RecurrentEncoder(
        cell, 3, num_layers=2, bidirectional=True, join_states=join_states, dtype=dtype
    )
    assert called(encoder, SOURCE) == called(encoder.compute_output_spec, source)
    encoded, spec = encoder(SOURCE), encoder.compute_output_spec(source)
    attention = None if join_states else recurrent.RnnAttention("general", dtype=dtype)
    decoder = recurrent.RecurrentDecoder(
        [make_cell(cell, 4, dtype=dtype)],
        attention=attention,
        readout=recurrent.Readout(5),
        dtype=dtype,
    )
    kwargs = {"return_attention_scores": not join_states}
    expected = called(decoder, HIDDEN, encoded, **kwargs)
    assert expected == called(decoder.compute_output_spec, inputs, spec, **kwargs)
    one = recurrent.Recurrent(cell, 3, dtype=dtype, reverse=True)
    assert called(one, SOURCE) == called(one.compute_output_spec, source)


def test_norm_position_is_checked():
    with pytest.raises(ValueError, match="norm_position='sandwich' is unknown"):
        block(norm_position="sandwich")


@pytest.mark.slow
def test_every_layer_survives_saving_without_custom_objects(tmp_path):
    ids = keras.Input((None,), dtype="int32")
    mask = layers.PaddingMask(1)(ids)
    embedding = layers.TokenEmbedding(10, 8, scale=2.0)
    hidden = layers.PositionEmbedding(7)(layers.SinusoidalPositionEmbedding(7)(embedding(ids)))
    hidden = block(activation="gelu_approximate", norm_position="pre", use_bias=False)(
        hidden, attention_mask=mask
    )
    hidden = block(crosses=True, activation="gelu")(hidden, hidden, cross_attention_mask=mask)
    picked = layers.GatherPositions()(hidden, ids)
    outputs = {
        "pooled": layers.FirstTokenPooler(3, activation="tanh")(hidden),
        "logits": layers.AddBias()(embedding(picked, reverse=True)),
    }
    model = keras.Model(ids, outputs)
    inputs = np.array([[0, 2, 3, 1], [3, 2, 1, 1]])
    loaded = round_trip(model, tmp_path)
    same_outputs(model.predict(inputs, verbose=0), loaded.predict(inputs, verbose=0))


def test_a_block_without_biases_and_without_the_first_norm():
    layer = block(norm="layer_without_bias", norm_position="pre", attention_norm=False)
    layer(HIDDEN)
    assert not layer.self_attention_norm.weights
    (scale,) = layer.feed_forward_norm.weights
    x = HIDDEN + layer.self_attention(HIDDEN).numpy()
    normed = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
    expected = x + layer.feed_forward(normed * np.asarray(scale)).numpy()
    np.testing.assert_allclose(layer(HIDDEN), expected, atol=1e-5)
    again = type(layer).from_config(layer.get_config())
    assert (again.norm, again.attention_norm) == ("layer_without_bias", False)
