"""Recomputed activations: the same gradients, the same dropout, and less memory."""

import functools
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformers import heads
from keras_transformers.dependencies.private_api import seed_generators
from keras_transformers.families.bert.model import bert
from keras_transformers.families.fasttext.model import fasttext
from keras_transformers.families.t5.model import t5
from keras_transformers.runs.resume.callback import Resume
from keras_transformers.training.distributed import prepare
from keras_transformers.training.losses import TokenCrossentropy
from keras_transformers.training.optimizers import adamw
from keras_transformers.training.recomputation import recompute_layers

ROWS, LENGTH, VOCABULARY = 4, 7, 20
RANDOM = np.random.default_rng(0)
TOKENS = RANDOM.integers(1, VOCABULARY, (ROWS, LENGTH)).astype("int32")
MASK = np.arange(LENGTH) < np.array([7, 4, 1, 6])[:, None]


@functools.cache
def encoder():
    keras.utils.set_random_seed(0)
    return bert(
        vocabulary_size=VOCABULARY, num_layers=2, num_heads=2, hidden_dim=8, initializer_range=0.3
    )


@functools.cache
def encoder_decoder():
    """Its relative positions are trained, and reach the layers as a bias of the scores."""
    keras.utils.set_random_seed(0)
    return t5(
        vocabulary_size=VOCABULARY,
        num_encoder_layers=1,
        num_decoder_layers=1,
        num_heads=2,
        head_dim=4,
        hidden_dim=8,
        intermediate_dim=16,
        dropout=0.3,
    )


INPUTS = {
    encoder: {"token_ids": TOKENS, "segment_ids": TOKENS % 2, "padding_mask": MASK},
    encoder_decoder: {"source_token_ids": TOKENS * MASK, "target_token_ids": TOKENS[:, :5]},
}


def gradients(model, inputs, *, recompute):
    """Returns loss, gradients and the generators' states of a compiled pass from one state."""
    generators = seed_generators(model)
    for index, generator in enumerate(generators):
        generator.state.assign([index, 0])
    recompute_layers(model, recompute)

    @tf.function(autograph=False)
    def compute(inputs):
        with tf.GradientTape() as tape:
            output = tf.nest.flatten(model(inputs, training=True))[-1]
            loss = tf.reduce_sum(tf.square(output))
        return loss, tape.gradient(loss, [v.value for v in model.trainable_variables])

    loss, found = compute(tf.nest.map_structure(tf.constant, inputs))
    found = [None if g is None else tf.convert_to_tensor(g).numpy() for g in found]
    return float(loss), found, [generator.state.numpy() for generator in generators]


@pytest.mark.parametrize("make", [encoder_decoder, pytest.param(encoder, marks=pytest.mark.slow)])
def test_loss_gradients_and_generators_are_those_of_plain_training(make):
    model = make()
    loss, expected, states = gradients(model, INPUTS[make], recompute=False)
    same_loss, found, same_states = gradients(model, INPUTS[make], recompute=True)
    assert same_loss == pytest.approx(loss, rel=1e-6)
    assert [g is None for g in found] == [g is None for g in expected]
    largest = max(np.abs(g).max() for g in expected if g is not None)
    for variable, a, b in zip(model.trainable_variables, expected, found, strict=True):
        if a is not None:
            np.testing.assert_allclose(b, a, atol=1e-6 * largest, err_msg=variable.path)
    np.testing.assert_array_equal(same_states, states)
    assert any(state[1] == 1 for state in states)  # and dropout was drawn, once


def classifier():
    """Returns a compiled model with dropout, always from the same seed."""
    keras.utils.set_random_seed(0)
    body = bert(vocabulary_size=VOCABULARY, num_layers=2, num_heads=2, hidden_dim=8)
    model = heads.classifier(body, 2, dropout=0.1)
    model.compile(adamw(1e-2), loss={"logits": TokenCrossentropy()}, jit_compile=False)
    return model


def train(model, batches, **options):
    model.fit(batches, steps_per_epoch=3, epochs=2, verbose=0, **options)
    return model.get_weights()


def batches():
    batch = INPUTS[encoder], {"logits": TOKENS[:, 0] % 2}
    return tf.data.Dataset.from_tensors(batch).repeat()


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [1, 2])
def test_fit_trains_as_before(accumulate):
    weights = []
    for recompute in (False, True):
        model = classifier()
        prepare(model, accumulate=accumulate, recompute=recompute)
        weights.append(train(model, batches()))
    for a, b in zip(*weights, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.slow
def test_a_stopped_training_resumes_bit_for_bit(tmp_path):
    weights = []
    for stop in (None, 2):
        model = classifier()
        prepare(model, recompute=True)
        resume = Resume(tmp_path / f"{stop}", every=1)
        resume.restore(model, [resume])
        if stop:
            with pytest.raises(KeyboardInterrupt):
                train(model, batches(), callbacks=[Stop(stop), resume])
            model = classifier()
            prepare(model, recompute=True)
            resume = Resume(tmp_path / f"{stop}", every=1)
            assert resume.restore(model, [resume]).step == stop
        weights.append(train(model, batches(), callbacks=[resume]))
    for a, b in zip(*weights, strict=True):
        np.testing.assert_array_equal(a, b)


class Stop(keras.callbacks.Callback):
    """Ends `fit` as a crash would, before the batch after a number of updates."""

    def __init__(self, step):
        super().__init__()
        self.step = step

    def on_train_batch_begin(self, batch, logs=None):
        if batch == self.step:
            raise KeyboardInterrupt


def test_a_model_without_such_layers_is_refused():
    model = fasttext(vocabulary_size=10, embedding_dim=4)
    with pytest.raises(ValueError, match="no encoder or decoder"):
        recompute_layers(model)


ON_TWO_REPLICAS = f"""
import sys
import numpy as np
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_recomputation import batches, classifier, prepare, train
weights = []
for recompute in (False, True):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        model = classifier()
    prepare(model, recompute=recompute)
    weights.append(train(model, batches()))
for a, b in zip(*weights, strict=True):
    np.testing.assert_allclose(a, b, atol=1e-5)
"""


@pytest.mark.slow
def test_on_two_replicas():
    command = [sys.executable, "-c", ON_TWO_REPLICAS]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]


@pytest.mark.slow
def test_on_jax(on_jax):
    on_jax("""
import jax, keras, numpy as np
from keras_transformers.families.bert.model import bert
from keras_transformers.training.recomputation import recompute_layers
random = np.random.default_rng(0)
tokens = random.integers(1, 20, (4, 7)).astype("int32")
inputs = {"token_ids": tokens, "segment_ids": tokens % 2, "padding_mask": tokens > 5}
model = bert(vocabulary_size=20, num_layers=2, num_heads=2, hidden_dim=8, initializer_range=0.3)
trainable, other = ([v.value for v in group]
                    for group in (model.trainable_variables, model.non_trainable_variables))
def loss(trainable):
    outputs, states = model.stateless_call(trainable, other, inputs, training=True)
    return keras.ops.mean(outputs["pooled_output"] ** 2), states
found = []
for recompute in (False, True):
    recompute_layers(model, recompute)
    step = jax.jit(jax.value_and_grad(lambda weights: loss(weights), has_aux=True))
    found.append(jax.tree.leaves(step(trainable)))
for a, b in zip(*found, strict=True):
    np.testing.assert_allclose(a, b, atol=1e-6)
text = jax.make_jaxpr(jax.grad(lambda w: loss(w)[0]))(trainable)
assert "remat" in str(text) or "checkpoint" in str(text)
""")


@pytest.mark.slow
def test_a_step_takes_less_than_half_of_the_memory():
    script = Path(__file__).parents[2] / "benchmarks" / "training" / "memory.py"
    arguments = ["--models", "bert_l12_h128", "--shapes", "16x128", "--rounds", "1"]
    command = [sys.executable, str(script), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    plain, recomputed = map(float, result.stdout.splitlines()[-1].split()[3:5])
    assert 0 < recomputed < plain / 2
