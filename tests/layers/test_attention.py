import keras
import numpy as np
import pytest
from checks import in_float64, same_but_for_rounding
from keras import ops

from keras_transformers.layers import MultiHeadAttention
from keras_transformers.layers.dense import softmax
from keras_transformers.layers.masks import MASKED_SCORE, Reach

pytestmark = pytest.mark.kernels

RANDOM = np.random.default_rng(0)
QUERY = RANDOM.normal(size=(2, 3, 8)).astype("float32")
VALUE = RANDOM.normal(size=(2, 5, 8)).astype("float32")


@pytest.fixture
def layer():
    layer = MultiHeadAttention(num_heads=2, hidden_dim=8)
    layer.build((None, None, 8))
    for weight in layer.weights:
        weight.assign(RANDOM.normal(size=weight.shape))
    return layer


def written_out(layer, query, value, mask=None):
    """Computes the paper's formula in float64, head by head."""

    def project(name, x):
        dense = getattr(layer, name)
        return x @ np.asarray(dense.kernel, "float64") + np.asarray(dense.bias, "float64")

    q, k, v = project("query", query), project("key", value), project("value", value)
    heads, all_scores = [], []
    for h in range(layer.num_heads):
        part = slice(h * layer.head_dim, (h + 1) * layer.head_dim)
        scores = q[..., part] @ k[..., part].transpose(0, 2, 1) / np.sqrt(layer.head_dim)
        if mask is not None:
            scores = np.where(mask, scores, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        all_scores.append(scores)
        heads.append(scores @ v[..., part])
    return project("output_projection", np.concatenate(heads, -1)), np.stack(all_scores, 1)


def test_cross_attention_equals_the_paper_formula(layer):
    output, scores = in_float64(layer)(QUERY, VALUE, return_attention_scores=True)
    expected, expected_scores = written_out(layer, QUERY, VALUE)
    np.testing.assert_allclose(output, expected, atol=1e-12)
    np.testing.assert_allclose(scores, expected_scores, atol=1e-12)


def test_self_attention_attends_to_the_query(layer):
    output = in_float64(layer)(QUERY)
    np.testing.assert_allclose(output, written_out(layer, QUERY, QUERY)[0], atol=1e-12)


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_masks_of_every_rank_equal_the_formula(layer, rank):
    keys = np.array([[True, True, False, True, False], [True] * 5])
    mask = {
        2: keys,
        3: np.repeat(keys[:, None], 3, 1),
        4: np.tile(keys[:, None, None], (1, 2, 3, 1)),
    }
    output = in_float64(layer)(QUERY, VALUE, attention_mask=mask[rank])
    expected = written_out(layer, QUERY, VALUE, keys[:, None])[0]
    np.testing.assert_allclose(output, expected, atol=1e-12)


def test_a_masked_key_has_no_influence_at_all(layer):
    mask = np.array([[True, True, False, True, True]] * 2)
    changed = VALUE.copy()
    changed[:, 2] = 1e6
    before, after = (layer(QUERY, v, attention_mask=mask).numpy() for v in (VALUE, changed))
    np.testing.assert_array_equal(before, after)


def test_a_query_that_sees_nothing_gets_the_output_bias_alone(layer):
    mask = np.array([[False] * 5, [True] * 5])
    output, scores = layer(QUERY, VALUE, attention_mask=mask, return_attention_scores=True)
    assert not np.isnan(scores).any()
    bias = np.broadcast_to(layer.output_projection.bias, (3, 8))
    np.testing.assert_array_equal(output[0], bias)
    changed = VALUE + np.array([1.0, 0.0], "float32")[:, None, None]
    np.testing.assert_array_equal(layer(QUERY, changed, attention_mask=mask)[0], bias)


def test_causal_mask_shows_the_past_alone(layer):
    changed = QUERY.copy()
    changed[:, 2] += 1
    mask = Reach(causal=True).mask(ops.arange(3), ops.arange(3))[None]
    before, after = (layer(q, attention_mask=mask).numpy() for q in (QUERY, changed))
    np.testing.assert_array_equal(before[:, :2], after[:, :2])
    assert not np.array_equal(before[:, 2], after[:, 2])


def test_cached_keys_and_values_give_the_same(layer):
    cached = layer(QUERY, keys_values=layer.keys_values(ops.convert_to_tensor(VALUE)))
    np.testing.assert_array_equal(cached, layer(QUERY, VALUE))


def test_dropout_acts_on_the_probabilities_in_training_alone():
    layer = MultiHeadAttention(num_heads=2, hidden_dim=8, attention_dropout=0.5)
    outputs = [layer(QUERY, training=training).numpy() for training in (False, False, True)]
    np.testing.assert_array_equal(outputs[0], outputs[1])
    assert not np.array_equal(outputs[0], outputs[2])


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision_stays_finite_and_near_float32(layer, policy):
    half = MultiHeadAttention(num_heads=2, hidden_dim=8, dtype=policy)
    half.build((None, None, 8))
    half.set_weights(layer.get_weights())
    mask = np.array([[False] * 3, [True, True, False]])
    output = ops.cast(half(QUERY, attention_mask=mask), "float32")
    full = layer(QUERY, attention_mask=mask)
    assert np.abs(output - full).max() < 0.05 * np.abs(full).max()


def test_without_biases():
    layer = MultiHeadAttention(num_heads=2, hidden_dim=8, use_bias=False)
    layer.build((None, None, 8))
    assert layer.count_params() == 4 * 8 * 8


def test_heads_of_another_width_and_scores_without_a_scale():
    usual = MultiHeadAttention(2, 8, head_dim=3)
    unscaled = MultiHeadAttention(2, 8, head_dim=3, scale_scores=False)
    for layer in (usual, unscaled):
        layer.build((None, None, 8))
    assert tuple(usual.query.kernel.shape) == (8, 6)
    assert tuple(usual.output_projection.kernel.shape) == (6, 8)
    assert np.std(unscaled.query.kernel) < 0.8 * np.std(usual.query.kernel)  # 3**-0.5 in the mean
    unscaled.set_weights(usual.get_weights())
    unscaled.query.kernel.assign(usual.query.kernel * 3**-0.5)
    same_but_for_rounding(unscaled(QUERY), usual(QUERY), in_float64(usual)(QUERY))


def test_the_four_matrices_start_different():
    layer = MultiHeadAttention(
        num_heads=2, hidden_dim=8, kernel_initializer=keras.initializers.GlorotUniform()
    )
    layer.build((None, None, 8))
    kernels = [w.numpy().tobytes() for w in layer.weights if w.path.endswith("kernel")]
    assert len(set(kernels)) == 4


def test_a_width_that_the_heads_do_not_divide_is_refused():
    with pytest.raises(ValueError, match="hidden_dim=8.*num_heads=3"):
        MultiHeadAttention(num_heads=3, hidden_dim=8)


def test_a_mask_of_another_rank_is_refused(layer):
    with pytest.raises(ValueError, match=r"attention_mask has shape \(3,\)"):
        layer(QUERY, attention_mask=np.array([True, True, False]))


def test_one_position_is_attended_without_a_warning():
    """As at the first step of a search; pytest makes Keras' warning an error."""
    scores = np.array([[[-3.5]], [[1e9]], [[MASKED_SCORE]]], "float32")
    np.testing.assert_array_equal(softmax(scores), np.ones_like(scores))
    assert np.isnan(softmax(np.full((1, 1), np.nan))).all()
    several = np.array([[0.5, -1.0, 2.0]], "float32")
    np.testing.assert_array_equal(softmax(several), keras.ops.softmax(several))
