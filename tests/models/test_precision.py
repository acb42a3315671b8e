"""Mixed precision: what stays in float32, and how far models drift from float32 models."""

import functools

import keras
import numpy as np
import pytest
from checks import compile_toy
from keras import ops

from keras_transformers import heads
from keras_transformers.families.bert.model import bert
from keras_transformers.families.gpt.model import gpt
from keras_transformers.families.transformer.model import transformer
from keras_transformers.layers import MeanOfWords, MultiHeadAttention, ScalarMix
from keras_transformers.layers.recurrent import RnnAttention
from keras_transformers.training import optimizers
from keras_transformers.training.losses import TokenCrossentropy

MIXED = ("mixed_bfloat16", "mixed_float16")
# One rounding: bfloat16 has 8 significant bits, float16 11.
STEP = {"mixed_bfloat16": 2.0**-8, "mixed_float16": 2.0**-11}
SIZE = {"vocabulary_size": 400, "num_heads": 2, "hidden_dim": 64, "intermediate_dim": 128}
ROWS, LENGTH = 8, 16


def make_bert():
    model = heads.pretrainer(bert(num_layers=2, dropout=0.0, attention_dropout=0.0, **SIZE))
    keras.utils.set_random_seed(1)
    for layer in (model.get_layer("masked_lm_dense"), model.get_layer("pooler")):
        layer.kernel.assign(3 * layer.kernel)  # logits as large as a trained model's
    return model


def make_gpt():
    return gpt(num_layers=2, max_sequence_length=LENGTH, dropout=0.0,
                     attention_dropout=0.0, initializer_range=0.08, **SIZE)  # fmt: skip


def make_transformer():
    return transformer(
        num_encoder_layers=1, num_decoder_layers=1, dropout=0.0, attention_dropout=0.0,
        feed_forward_dropout=0.0, **SIZE,
    )  # fmt: skip


MODELS = {"bert": make_bert, "gpt": make_gpt, "transformer": make_transformer}


def batch(model):
    """Returns inputs with padding, and targets for each output of logits."""
    random = np.random.default_rng(0)
    ids = random.integers(1, SIZE["vocabulary_size"], (ROWS, LENGTH)).astype("int32")
    mask = np.arange(LENGTH)[None] < np.linspace(5, LENGTH, ROWS)[:, None]
    every = {
        "token_ids": ids,
        "segment_ids": np.zeros_like(ids),
        "padding_mask": mask,
        "mask_positions": np.tile([1, 3, 4], (ROWS, 1)).astype("int32"),
        "source_token_ids": np.where(mask, ids, 0),
        "target_token_ids": ids[:, ::-1].copy(),
    }
    inputs = {name: every[name] for name in model.input}
    outputs = model.compute_output_spec(
        {name: keras.KerasTensor(value.shape, value.dtype) for name, value in inputs.items()}
    )
    targets = {
        name: random.integers(0, spec.shape[-1], spec.shape[:-1]) for name, spec in outputs.items()
    }
    return inputs, targets


def under(policy, make):
    """Builds a model with that policy; all policies get the same random weights."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    keras.utils.set_random_seed(0)
    try:
        return make()
    finally:
        keras.config.set_dtype_policy(before)


def loss_and_gradients(policy, name):
    """Returns the loss, gradient and outputs of one step, with a loss scale as for float16."""
    import tensorflow as tf

    model = under(policy, MODELS[name])
    assert {v.dtype for v in model.trainable_variables} == {"float32"}
    inputs, targets = batch(model)
    with tf.GradientTape() as tape:
        outputs = model(inputs, training=True)
        loss = sum(TokenCrossentropy()(targets[key], outputs[key]) for key in outputs)
        scaled = 1024.0 * loss
    gradients = tape.gradient(scaled, model.trainable_variables)
    flat = [np.asarray(tf.convert_to_tensor(g), "float64").ravel() for g in gradients]
    return float(loss), np.concatenate(flat), outputs


def losses_of_updates(policy, name, count=12):
    model = under(policy, MODELS[name])
    inputs, targets = batch(model)
    losses = {key: TokenCrossentropy() for key in targets}
    compile_toy(model, optimizers.adamw(1e-3), losses)
    is_scaled = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert is_scaled == (policy == "mixed_float16")
    history = model.fit(inputs, targets, batch_size=ROWS, epochs=count, verbose=0).history
    return np.array(history["loss"])


@functools.cache
def exact_step(name):
    return loss_and_gradients("float32", name)


@functools.cache
def exact_losses(name):
    return losses_of_updates("float32", name)


@functools.cache
def roundings(policy):
    """Returns the error of a product of matrices in errors of one rounding, at least 1.

    It is 1 where the product is rounded once; without bfloat16 units, TensorFlow can truncate: 2.
    """
    random = np.random.default_rng(0)
    dtype = policy.removeprefix("mixed_")
    rows, matrix = (ops.cast(random.normal(size=size), dtype) for size in ((8, 16, 64), (64, 400)))
    exact = np.asarray(ops.cast(rows, "float64")) @ np.asarray(ops.cast(matrix, "float64"))
    once = np.asarray(ops.cast(ops.cast(exact, dtype), "float64"))
    found = np.asarray(ops.cast(ops.einsum("abh,hv->abv", rows, matrix), "float64"))
    return max(1.0, np.std(found - exact) / np.std(once - exact))


@pytest.mark.one_case
@pytest.mark.parametrize("policy", MIXED)
@pytest.mark.parametrize("name", MODELS)
def test_drift_of_one_step(name, policy):
    """Bounds the error of logits, loss and gradient direction in rounding steps of the policy."""
    exact_loss, exact_gradient, exact_outputs = exact_step(name)
    loss, gradient, outputs = loss_and_gradients(policy, name)
    step = STEP[policy]
    for key, logits in outputs.items():
        assert keras.backend.standardize_dtype(logits.dtype) == "float32"
        error = np.abs(np.asarray(logits) - np.asarray(exact_outputs[key]))
        assert error.mean() < 5 * step * np.std(exact_outputs[key])
    step *= roundings(policy)
    assert abs(loss - exact_loss) < 0.1 * step * exact_loss
    cosine = gradient @ exact_gradient / np.linalg.norm(gradient) / np.linalg.norm(exact_gradient)
    # The angle in radians. Rounding switches the gradient of relus near 0 on or off; their share
    # grows with the rounding step, hence the square root.
    assert np.sqrt(2 - 2 * cosine) < 0.6 * step**0.5


@pytest.mark.slow  # float16 is emulated on a CPU
@pytest.mark.parametrize(
    ("name", "policy"), [*((name, MIXED[0]) for name in MODELS), ("gpt", MIXED[1])]
)
def test_drift_of_a_training(name, policy):
    """On repeated updates with one batch, the loss falls as in float32."""
    exact, mixed = exact_losses(name), losses_of_updates(policy, name)
    assert exact[-1] < 0.9 * exact[0]
    np.testing.assert_allclose(mixed, exact, rtol=STEP[policy])


@pytest.mark.parametrize("policy", MIXED)
def test_softmax_is_in_float32(policy):
    random = np.random.default_rng(0)
    hidden = ops.cast(random.normal(size=(2, 300, 16)) * 20, "float32")
    mask = np.arange(300)[None] < np.array([[300], [7]])
    attention = MultiHeadAttention(2, 16, dtype=policy)
    outputs, shares = attention(hidden, attention_mask=mask, return_attention_scores=True)
    recurrent = RnnAttention("dot", dtype=policy)
    _, recurrent_shares = recurrent(hidden[:, :1], hidden, padding_mask=ops.array(mask))
    for found in (shares, recurrent_shares):
        assert keras.backend.standardize_dtype(found.dtype) == "float32"
        np.testing.assert_allclose(ops.sum(found, -1), 1.0, atol=1e-6)  # bfloat16: 1e-2
        assert np.asarray(found)[1, ..., 7:].max() == 0.0
    assert np.isfinite(ops.convert_to_numpy(ops.cast(outputs, "float32"))).all()
    mix = ScalarMix(dtype=policy)
    mix.build((1, 3, 4))
    mix.weights_before_softmax.assign([30.1, 30.2, 30.3])  # two are equal in bfloat16
    expected = np.exp([30.1, 30.2, 30.3]) / np.exp([30.1, 30.2, 30.3]).sum()
    for layer in range(3):
        one = np.zeros((1, 1, 3, 4), "float32")
        one[:, :, layer] = 1.0
        share = float(ops.convert_to_numpy(ops.cast(mix(one), "float32"))[0, 0, 0])
        assert share == pytest.approx(expected[layer], rel=STEP[policy])


@pytest.mark.parametrize("policy", MIXED)
def test_norms_are_in_float32(policy):
    """In 16 bits, the squares of inputs far from 0 would lose all precision or overflow."""
    dtype = policy.removeprefix("mixed_")
    inputs = ops.cast(ops.cast(np.linspace(300, 304, 64)[None], dtype), "float32")
    exact = np.asarray(inputs, "float64")
    exact = (exact - exact.mean()) / exact.std()
    norm = keras.layers.LayerNormalization(epsilon=1e-12, dtype=policy)
    found = np.asarray(ops.cast(norm(ops.cast(inputs, dtype)), "float32"), "float64")
    np.testing.assert_allclose(found, exact, rtol=1.1 * STEP[policy], atol=1e-4)


@pytest.mark.parametrize("policy", MIXED)
def test_counts_are_in_float32(policy):
    """The mean is over more words than bfloat16 can count."""
    words = np.ones((1, 1000, 4), "float32")
    mean = MeanOfWords(dtype=policy)(words, np.ones((1, 1002), bool))
    np.testing.assert_allclose(ops.convert_to_numpy(ops.cast(mean, "float32")), 1.0, atol=1e-6)
