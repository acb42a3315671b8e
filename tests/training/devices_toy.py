"""Trains toys on one device and on eight simulated ones: `devices_toy.py weights.npz`.

JAX must run with XLA_FLAGS=--xla_force_host_platform_device_count=8.
"""

import sys
from typing import Any

import keras
import numpy as np

import keras_transformers as kt
from keras_transformers.training.losses import TokenCrossentropy
from keras_transformers.training.optimizers import adamw
from keras_transformers.training.schedules import WarmupLinearDecay
from keras_transformers.training.tensor_parallel import tensor_parallel_layout

SIZE = {"vocabulary_size": 48, "num_layers": 2, "num_heads": 8, "hidden_dim": 32}
ROWS, LENGTH, STEPS = 16, 12, 5


def distributions() -> dict[str, Any]:
    devices = keras.distribution.list_devices()
    mesh = keras.distribution.DeviceMesh((2, 4), ["batch", "model"], devices)
    return {
        "one": None,
        "data": keras.distribution.DataParallel(devices=devices, auto_shard_dataset=False),
        "model": keras.distribution.ModelParallel(
            layout_map=tensor_parallel_layout(mesh),
            batch_dim_name="batch",
            auto_shard_dataset=False,
        ),
    }


def toy(name: str) -> keras.Model:
    if name == "bert":
        encoder = kt.families.bert.bert(
            **SIZE, dropout=0.0, attention_dropout=0.0, max_sequence_length=LENGTH
        )
        return kt.heads.pretrainer(encoder)
    return kt.families.llama.llama(**SIZE, num_key_value_heads=4, intermediate_dim=64)


def trained(name: str) -> dict[str, Any]:
    """Returns the weights after training, and in "split" how many are on no device as a whole."""
    keras.utils.set_random_seed(0)
    model = toy(name)
    random = np.random.default_rng(0)
    model.set_weights(
        [np.float32(w + 0.05 * random.normal(size=w.shape)) for w in model.get_weights()]
    )
    ids = random.integers(1, 48, (ROWS * STEPS, LENGTH), dtype="int32")
    given = {
        "token_ids": ids,
        "segment_ids": np.zeros_like(ids),
        "padding_mask": np.arange(LENGTH) < random.integers(4, LENGTH + 1, len(ids))[:, None],
        "mask_positions": random.integers(0, 4, (len(ids), 2), dtype="int32"),
    }
    targets = {
        "logits": np.roll(ids, -1, axis=1),
        "mask_logits": ids[:, :2],
        "next_sentence_logits": random.integers(0, 2, len(ids), dtype="int32"),
    }
    model.compile(
        adamw(WarmupLinearDecay(1e-3, warmup_steps=1, total_steps=2 * STEPS), epsilon=1e-3),
        loss={name: TokenCrossentropy() for name in model.output},
    )
    inputs = {name: given[name] for name in model.input}
    model.fit(inputs, {name: targets[name] for name in model.output}, batch_size=ROWS, verbose=0)
    split = sum(not w.value.sharding.is_fully_replicated for w in model.trainable_weights)
    weights = {weight.path: keras.ops.convert_to_numpy(weight) for weight in model.weights}
    return {"split": split, **weights}


if __name__ == "__main__":
    found = {}
    for kind, distribution in distributions().items():
        keras.distribution.set_distribution(distribution)
        for name in ("bert", "llama"):
            arrays = trained(name)
            found |= {f"{kind}/{name}/{key}": array for key, array in arrays.items()}
    np.savez(sys.argv[1], **found)
