"""Breaks down the time of a fine-tuning step: MiniLM, 32 texts of 30 tokens, AdamW.

    python benchmarks/suite/training_step.py --weights all-MiniLM-L6-v2

The model is `heads.classifier` on an encoder in Hugging Face's layout, as the recipes train it:
dropout 0.1, clip norm 1, weight decay 0.01, float32, one thread. The benchmark times functions that
each add one part to the previous one, in turns; the difference of their medians is the time of that
part:

- forward: an inference pass;
- backward: the gradients of the loss, without dropout, minus the forward pass;
- dropout: the same with dropout: random numbers, and applying them in both directions;
- dense embedding gradient: the gradients of the looked-up rows, summed into the full matrix;
- optimizer: AdamW's step with given gradients of all weights;
- clip norm: the same step with clipping;
- the rest: `train_function`, which `fit` calls for each batch, minus all of these: metrics, loss,
  counters.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import contest  # first: it sets the number of threads
import keras
import numpy as np
import tensorflow as tf

import keras_transformers as kt
from keras_transformers.training import TokenCrossentropy, WarmupLinearDecay, adamw

ROWS, LENGTH = 32, 30


def classifier(weights: Path, *, dropout: float = 0.1, clip_norm: float | None = 1.0) -> Any:
    """Returns a compiled classifier."""
    keras.utils.set_random_seed(0)
    encoder, _ = kt.convert.load_encoder(weights=weights, dropout=dropout)
    model = kt.heads.classifier(encoder, 2, dropout=dropout)
    schedule = WarmupLinearDecay(5e-5, warmup_steps=100, total_steps=1000)
    model.compile(
        optimizer=adamw(schedule, weight_decay=0.01, clip_norm=clip_norm),
        loss={"logits": TokenCrossentropy()},
        metrics={"logits": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]},
        jit_compile=False,
    )
    model.optimizer.build(model.trainable_variables)
    return model


def batch() -> tuple[dict[str, Any], dict[str, Any]]:
    random = np.random.default_rng(0)
    tokens = tf.constant(random.integers(1000, 30000, (ROWS, LENGTH)), tf.int32)
    inputs = {
        "token_ids": tokens,
        "segment_ids": tf.zeros_like(tokens),
        "padding_mask": tokens > 0,
    }
    return inputs, {"logits": tf.constant(random.integers(0, 2, ROWS), tf.int32)}


def gradients(model: Any, inputs: Any, targets: Any) -> list[Any]:
    with tf.GradientTape() as tape:
        loss = model.compute_loss(inputs, targets, model(inputs, training=True))
    return tape.gradient(loss, [weight.value for weight in model.trainable_variables])


def corner(gradient: Any) -> Any:
    """Returns one number, so that a function does not have to return and copy a whole gradient."""
    values = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
    return tf.reshape(values, (-1,))[0]


def jobs(weights: Path) -> dict[str, Callable[[], Any]]:
    """Returns the functions that take turns, by name."""
    inputs, targets = batch()
    model = classifier(weights)
    found: dict[str, Callable[[], Any]] = {}

    def add(name: str, function: Callable[..., Any], *arguments: Any) -> None:
        compiled = tf.function(function, autograph=False)
        found[name] = lambda: compiled(*arguments)

    add("forward", lambda x: model(x, training=False)["logits"], inputs)
    for name, dropout in (("gradients, no dropout", 0.0), ("gradients", 0.1)):
        own = classifier(weights, dropout=dropout)
        add(name, lambda x, y, own=own: [*map(corner, gradients(own, x, y))], inputs, targets)
    given = [tf.convert_to_tensor(gradient) for gradient in gradients(model, inputs, targets)]
    place = max(range(len(given)), key=lambda index: tf.size(given[index]))
    words = tf.reshape(inputs["token_ids"], (-1,))
    rows = tf.gather(given[place], words)
    shape = tf.constant(given[place].shape)
    add("dense", lambda rows, words: corner(dense(rows, words, shape) * 1.0), rows, words)
    for name, clip_norm in (("optimizer", None), ("optimizer, clip norm", 1.0)):
        own = classifier(weights, clip_norm=clip_norm)

        def update(given: Any, own: Any = own) -> Any:
            own.optimizer.apply_gradients(zip(given, own.trainable_variables, strict=True))
            return own.optimizer.iterations.value + 0

        add(name, update, given)
    model.make_train_function()
    endless = iter(tf.data.Dataset.from_tensors((inputs, targets)).repeat())
    found["step"] = lambda: model.train_function(endless)
    return found


def dense(rows: Any, words: Any, shape: Any) -> Any:
    return tf.convert_to_tensor(tf.IndexedSlices(rows, words, shape))


def parts(medians: dict[str, float]) -> dict[str, float]:
    """Returns the milliseconds of each part of a step; they add up to the step."""
    found = {
        "forward": medians["forward"],
        "backward": medians["gradients, no dropout"] - medians["forward"],
        "dropout": medians["gradients"] - medians["gradients, no dropout"],
        "dense embedding gradient": medians["dense"],
        "optimizer": medians["optimizer"],
        "clip norm": medians["optimizer, clip norm"] - medians["optimizer"],
    }
    return found | {"the rest": medians["step"] - sum(found.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--weights", type=Path, required=True, help="folder of MiniLM")
    parser.add_argument("--seconds", type=float, default=60, help="time for all turns (60)")
    options = parser.parse_args()
    found = contest.take_turns(jobs(options.weights), seconds=options.seconds)
    medians = {name: times["median"] for name, times in found.items()}
    print(contest.machine())
    print(f"{ROWS} x {LENGTH}, {found['step']['turns']} turns")
    for name, times in found.items():
        print(
            f"{name:26}{times['median']:8.1f} ms ({times['first_quartile']:.1f} to "
            f"{times['third_quartile']:.1f})"
        )
    print("\npart                            ms   of the step")
    for name, value in parts(medians).items():
        print(f"{name:26}{value:8.1f}{value / medians['step']:10.0%}")
    print(f"step / forward: {medians['step'] / medians['forward']:.2f}")


if __name__ == "__main__":
    main()
