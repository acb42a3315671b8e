"""Compares training steps of ours and keras_hub on TensorFlow, and each with its forward pass.

    pip install -e '.[benchmark]'
    python benchmarks/suite/training.py

Both sides have the same shapes, with random weights, one thread, dropout 0.1, AdamW with clipped
gradients, and `train_on_batch` on full batches of random tokens; in float32, and in bfloat16 with
weights in float32. The forward pass is inference with the same model in a `tf.function`. MiniLM
classifies 32 texts of 30 tokens; BERT-small predicts 20 masked words in each of 8 rows of 128.

"Products" multiplies by each matrix of our model as a step does, once forward and twice backward,
and does nothing else: no step in float32 with these kernels can be faster.
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


def products(size: dict[str, int], rows: int, read: int, *, words: int = 0) -> Callable[[], Any]:
    """Returns the products of a step.

    Args:
        size: of the encoder.
        rows: tokens of the batch.
        read: those whose vectors the head reads, which alone the last block computes.
        words: those of them that are compared with all tokens of the vocabulary.
    """
    hidden, layers = size["hidden_dim"], size["num_layers"]
    shapes = [(rows, hidden, units) for units in (3 * hidden, hidden, 4 * hidden)] * (layers - 1)
    shapes += [(rows, 4 * hidden, hidden)] * (layers - 1)
    shapes += [(rows, hidden, 2 * hidden), (read, hidden, hidden), (read, hidden, hidden)]
    shapes += [(read, hidden, 4 * hidden), (read, 4 * hidden, hidden)]
    shapes += [(words, hidden, hidden), (words, hidden, VOCABULARY_SIZE)] if words else []

    def numbers(*shape: int) -> Any:
        return tf.constant(np.random.default_rng(0).normal(size=shape), tf.float32)

    @tf.function(autograph=False)
    def one(inputs: Any, matrix: Any, upstream: Any) -> Any:
        made = (
            tf.matmul(inputs, matrix),
            tf.matmul(upstream, matrix, transpose_b=True),
            tf.matmul(inputs, upstream, transpose_a=True),
        )
        return [product[0, 0] for product in made]  # no time goes into copying results

    operands = {
        shape: (numbers(shape[0], shape[1]), numbers(*shape[1:]), numbers(shape[0], shape[2]))
        for shape in set(shapes)
    }
    return lambda: [one(*operands[shape]) for shape in shapes]


def fine_tuning(*, jit_compile: bool = False) -> Jobs:
    """Classifies with MiniLM's shape, 32 x 30."""
    ids, labels = random_ids(32, 30), random_ids(32, below=2)
    mask, segments = np.ones_like(ids, bool), np.zeros_like(ids)
    encoder = kt.families.bert.bert(vocabulary_size=VOCABULARY_SIZE, **MINILM)
    ours = kt.heads.classifier(encoder, 2)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    ours.compile(adamw(1e-5), loss={"logits": loss}, jit_compile=jit_compile)
    inputs = {"token_ids": ids, "segment_ids": segments, "padding_mask": mask}
    hub = keras_hub.models.BertTextClassifier(hub_backbone(MINILM), num_classes=2)
    hub_compile(hub)
    assert hub.count_params() == ours.count_params()
    return jobs("ours", ours, inputs, {"logits": labels}) | jobs("keras_hub", hub, inputs, labels)


def masked_words(*, jit_compile: bool = False) -> Jobs:
    """Predicts masked words with BERT-small, 8 x 128."""
    ids, targets = random_ids(8, 128), random_ids(8, MASKED)
    mask, segments = np.ones_like(ids, bool), np.zeros_like(ids)
    positions = np.tile(np.arange(0, 6 * MASKED, 6, dtype=np.int32), (8, 1))
    encoder = kt.families.bert.bert(vocabulary_size=VOCABULARY_SIZE, **SMALL)
    ours = kt.heads.masked_lm(encoder)
    loss = {"mask_logits": kt.training.TokenCrossentropy()}
    ours.compile(adamw(1e-5), loss=loss, jit_compile=jit_compile)
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


def contestants(make: Callable[..., Jobs], bound: Callable[[], Any]) -> Jobs:
    """Returns what takes turns: each side in both precisions, ours with XLA, and the products."""
    found = make()
    found["ours, XLA"] = make(jit_compile=True)["ours"]
    keras.config.set_dtype_policy("mixed_bfloat16")
    found |= {f"{name}, bfloat16": step for name, step in make().items() if "forward" not in name}
    keras.config.set_dtype_policy("float32")
    return found | {"products": bound}


def rows_of(title: str, found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns a job's rows of the table."""
    return {
        f"{title}: step": {
            "ours": found["ours"],
            "ours, XLA": found["ours, XLA"],
            "ours, products alone": found["products"],
            "keras_hub": found["keras_hub"],
        },
        f"{title}: step in mixed_bfloat16": {
            name: found[f"{name}, bfloat16"] for name in ("ours", "keras_hub")
        },
        f"{title}: forward pass": {
            name: found[f"{name}, forward"] for name in ("ours", "keras_hub")
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=90.0, help="for each model (90)")
    arguments = parser.parse_args()
    rows: dict[str, Any] = {}
    for title, make, bound in (
        ("MiniLM, classifier, 32 x 30", fine_tuning, products(MINILM, 32 * 30, 32)),
        (
            "BERT-small, masked words, 8 x 128",
            masked_words,
            products(SMALL, 8 * 128, 8 * MASKED, words=8 * MASKED),
        ),
    ):
        keras.utils.set_random_seed(0)
        found = contest.take_turns(contestants(make, bound), seconds=arguments.seconds)
        made = rows_of(title, found)
        for each, times in made.items():
            print(contest.line(each, times), flush=True)
        rows |= made
    contest.write("training", "python benchmarks/suite/training.py", rows)


if __name__ == "__main__":
    main()
