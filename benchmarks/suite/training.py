"""Compares training steps of ours and keras_hub on TensorFlow, and each with its forward pass.

    pip install -e '.[benchmark]'
    python benchmarks/suite/training.py

Both sides have the same shapes, with random weights, float32, one thread, dropout 0.1, AdamW with
clipped gradients, and `train_on_batch` on full batches of random tokens. The forward pass is
inference with the same model in a `tf.function`. MiniLM classifies 32 texts of 30 tokens;
BERT-small predicts 20 masked words in each of 8 rows of 128.
"""

import argparse
from collections.abc import Callable
from typing import Any

import contest  # first: it sets the number of threads
import keras
import keras_hub
import numpy as np
import tensorflow as tf

import keras_transformers as kt
from keras_transformers.training import adamw

VOCABULARY_SIZE, MASKED = 30522, 20
MINILM = {"num_layers": 6, "num_heads": 12, "hidden_dim": 384}
SMALL = {"num_layers": 4, "num_heads": 8, "hidden_dim": 512}
Jobs = dict[str, Callable[[], Any]]


def hub_backbone(size: dict[str, int]) -> Any:
    """Returns keras_hub's BERT of this size."""
    return keras_hub.models.BertBackbone(
        vocabulary_size=VOCABULARY_SIZE, intermediate_dim=4 * size["hidden_dim"], **size
    )


def hub_compile(model: Any) -> None:
    """Compiles a keras_hub model with the equivalent of our `adamw`."""
    optimizer = keras.optimizers.AdamW(1e-5, weight_decay=0.01, epsilon=1e-6, global_clipnorm=1.0)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss=loss)


def random_ids(*shape: int, below: int = VOCABULARY_SIZE) -> np.ndarray:
    return np.random.default_rng(0).integers(0, below, shape).astype(np.int32)


def jobs(name: str, model: Any, inputs: Any, targets: Any) -> Jobs:
    """Returns a model's forward pass and its training step."""
    on_device = {key: tf.constant(value) for key, value in inputs.items()}
    forward = tf.function(lambda: model(on_device, training=False))
    return {
        f"{name}, forward": lambda: keras.tree.map_structure(lambda x: x.numpy(), forward()),
        name: lambda: model.train_on_batch(inputs, targets),
    }


def fine_tuning() -> Jobs:
    """Classifies with MiniLM's shape, 32 x 30."""
    ids, labels = random_ids(32, 30), random_ids(32, below=2)
    mask, segments = np.ones_like(ids, bool), np.zeros_like(ids)
    encoder = kt.models.encoders.bert.bert(vocabulary_size=VOCABULARY_SIZE, **MINILM)
    ours = kt.heads.classifier(encoder, 2)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    ours.compile(adamw(1e-5), loss={"logits": loss})
    inputs = {"token_ids": ids, "segment_ids": segments, "padding_mask": mask}
    hub = keras_hub.models.BertTextClassifier(hub_backbone(MINILM), num_classes=2)
    hub_compile(hub)
    assert hub.count_params() == ours.count_params()
    return jobs("ours", ours, inputs, {"logits": labels}) | jobs("keras_hub", hub, inputs, labels)


def masked_words() -> Jobs:
    """Predicts masked words with BERT-small, 8 x 128."""
    ids, targets = random_ids(8, 128), random_ids(8, MASKED)
    mask, segments = np.ones_like(ids, bool), np.zeros_like(ids)
    positions = np.tile(np.arange(0, 6 * MASKED, 6, dtype=np.int32), (8, 1))
    encoder = kt.models.encoders.bert.bert(vocabulary_size=VOCABULARY_SIZE, **SMALL)
    ours = kt.heads.masked_lm(encoder)
    ours.compile(adamw(1e-5), loss={"mask_logits": kt.training.TokenCrossentropy()})
    inputs = {
        "token_ids": ids,
        "segment_ids": segments,
        "padding_mask": mask,
        "mask_positions": positions,
    }
    hub = keras_hub.models.BertMaskedLM(hub_backbone(SMALL))
    hub_compile(hub)
    return jobs("ours", ours, inputs, {"mask_logits": targets}) | jobs(
        "keras_hub", hub, inputs, targets
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="for each model")
    arguments = parser.parse_args()
    rows = {}
    for title, make in {
        "MiniLM, classifier, 32 x 30": fine_tuning,
        "BERT-small, masked words, 8 x 128": masked_words,
    }.items():
        keras.utils.set_random_seed(0)
        found = contest.take_turns(make(), seconds=arguments.seconds)
        forward = {name: times for name, times in found.items() if "forward" in name}
        steps = {name: times for name, times in found.items() if name not in forward}
        rows[f"{title}: step"] = steps
        rows[f"{title}: forward pass"] = {
            name.removesuffix(", forward"): times for name, times in forward.items()
        }
        for part in list(rows)[-2:]:
            print(contest.line(part, rows[part]), flush=True)
    contest.write("training", "python benchmarks/suite/training.py", rows)


if __name__ == "__main__":
    main()
