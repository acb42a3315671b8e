"""Tiny models, batches and optimizers that give the same numbers on every backend of Keras.

A test imports this file where Keras runs on TensorFlow, and runs it where Keras runs on JAX.
"""

from typing import Any

import keras
import numpy as np

from keras_transformers import heads
from keras_transformers.families.bert.model import bert
from keras_transformers.families.gpt.model import gpt
from keras_transformers.families.transformer.model import transformer
from keras_transformers.training.losses import TokenCrossentropy
from keras_transformers.training.optimizers import adam, adamw, lamb
from keras_transformers.training.schedules import WarmupLinearDecay, noam

ROWS, LENGTH, MASKED, VOCABULARY = 3, 6, 2, 11
SHAPE: dict[str, Any] = {"vocabulary_size": VOCABULARY, "num_heads": 2, "hidden_dim": 8}
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}
Batch = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]


def pretrainer(max_sequence_length: int = LENGTH) -> keras.Model:
    """BERT with both heads."""
    depth = {"num_layers": 1, "max_sequence_length": max_sequence_length}
    return heads.pretrainer(bert(**SHAPE, **NO_DROPOUT, **depth))


def language_model() -> keras.Model:
    """GPT-2."""
    return gpt(**SHAPE, **NO_DROPOUT, num_layers=1, max_sequence_length=LENGTH)


def translator() -> keras.Model:
    """The Transformer of the paper."""
    depth = {"num_encoder_layers": 1, "num_decoder_layers": 1, "intermediate_dim": 16}
    return transformer(**SHAPE, **NO_DROPOUT, **depth, feed_forward_dropout=0.0)


def batch(model: keras.Model) -> Batch:
    """Inputs, targets and weights of rows with 6, 4 and 1 real tokens."""
    random = np.random.default_rng(0)
    real = np.arange(LENGTH) < np.array([6, 4, 1])[:, None]  # (rows, length)
    ids = random.integers(1, VOCABULARY, (2, ROWS, LENGTH), dtype="int32") * real
    arrays: dict[str, Any] = {
        "token_ids": ids[0],
        "segment_ids": np.int32(np.arange(LENGTH) > 2) * real,
        "padding_mask": real,
        "mask_positions": np.array([[1, 5], [3, 0], [0, 0]], "int32"),
        "source_token_ids": ids[0],
        "target_token_ids": ids[1],
    }
    weights = {
        "logits": np.float32(real),
        "mask_logits": np.float32([[1, 1], [1, 0], [1, 0]]),
        "next_sentence_logits": np.ones(ROWS, "float32"),
    }
    targets = {
        "logits": np.roll(ids[1], -1, axis=1),
        "mask_logits": random.integers(1, VOCABULARY, (ROWS, MASKED), dtype="int32"),
        "next_sentence_logits": np.array([0, 1, 1], "int32"),
    }
    return (
        {name: arrays[name] for name in model.input},
        {name: targets[name] for name in model.output},
        {name: weights[name] for name in model.output},
    )


def set_weights(model: keras.Model) -> None:
    """Gives each weight numbers of its own."""
    for index, weight in enumerate(model.weights):
        weight.assign(np.random.default_rng(index).normal(0, 0.3, weight.shape))


def loss_and_gradients(model: keras.Model, *, label_smoothing: float = 0.1) -> dict[str, Any]:
    """Trains one step by plain gradient descent: the weights move by their gradients."""
    set_weights(model)
    before = {weight.path: np.asarray(weight) for weight in model.trainable_weights}
    loss = {name: TokenCrossentropy(label_smoothing=label_smoothing) for name in model.output}
    # Traced, TensorFlow would take longer. JAX computes one compiled step, as ever.
    eager = keras.backend.backend() == "tensorflow"
    model.compile(keras.optimizers.SGD(1.0), loss=loss, run_eagerly=eager, jit_compile=not eager)
    inputs, targets, weights = batch(model)
    history = model.fit(inputs, targets, sample_weight=weights, batch_size=ROWS, verbose=0).history
    after = {weight.path: np.asarray(weight) for weight in model.trainable_weights}
    return {"loss": history["loss"][0], **{path: before[path] - after[path] for path in before}}


OPTIMIZERS = {
    "adam": lambda: adam(noam(hidden_dim=8, warmup_steps=2)),
    "adamw": lambda: adamw(WarmupLinearDecay(0.1, warmup_steps=1, total_steps=3)),
    "lamb": lambda: lamb(WarmupLinearDecay(0.1, warmup_steps=1, total_steps=3)),
}


def optimized(name: str) -> dict[str, Any]:
    """Takes three steps with fixed gradients, as large as to be clipped."""
    random = np.random.default_rng(1)
    variables = [
        keras.Variable(random.normal(size=shape), name=name)
        for name, shape in {"kernel": (3, 4), "bias": (4,), "gamma": (4,)}.items()
    ]
    optimizer = OPTIMIZERS[name]()
    optimizer.build(variables)
    for _ in range(3):
        gradients = [random.normal(size=variable.shape) for variable in variables]
        optimizer.apply([keras.ops.convert_to_tensor(g, "float32") for g in gradients])
    return {variable.name: np.asarray(variable) for variable in variables}


MODELS = {"pretrainer": pretrainer, "language_model": language_model, "translator": translator}


def all_numbers() -> dict[str, Any]:
    """Returns every number to compare, by name."""
    found = {name: loss_and_gradients(make()) for name, make in MODELS.items()}
    found |= {name: optimized(name) for name in OPTIMIZERS}
    return {f"{name}/{key}": found[name][key] for name in found for key in found[name]}
