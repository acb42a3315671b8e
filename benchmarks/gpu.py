"""Measures how fast one GPU trains BERT, GPT-2, SmolLM2 and the Transformer with JAX.

    python benchmarks/gpu.py > gpu.txt
    python benchmarks/gpu.py --toy          # tiny models: a test that runs on a CPU in seconds

Needs only JAX (`pip install "jax[cuda12]"`), Keras, NumPy and this package. It fails if anything
imports TensorFlow. `model.fit` trains in bfloat16, with float32 weights, on random tokens of one
shape: one round to compile, one to measure and one to profile. BERT has both pretraining heads and
predicts 15 % of its tokens. Dropout is the papers' 0.1, except on the attention probabilities,
where it is 0 because the flash kernel has none.

- tokens/s: for pairs, only target tokens count; sources have the same length.
- 6ND: the share of --peak that 6 x parameters x tokens + 12 x attentions x length x width x tokens
  operations make (Chowdhery et al. 2022, "PaLM", appendix B). This is the usual figure. It counts
  the token embeddings as if every position were projected to the vocabulary, which is right for
  GPT-2 and the Transformer; BERT projects only the tokens it predicts.
- products: the share of --peak by the matrix products that the model actually has; see
  `keras_transformers.inspection.training_flops`.
- below each row: the kernels that took the most time in jax.profiler's trace, summed over names
  without their numbers.
"""

import argparse
import collections
import dataclasses
import math
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
import numpy as np

import keras_transformers as kt
from keras_transformers.inspection import training_flops
from keras_transformers.models.anatomy import anatomy
from keras_transformers.training.losses import TokenCrossentropy
from keras_transformers.training.optimizers import adam, adamw
from keras_transformers.training.schedules import WarmupLinearDecay, noam

PEAK = 790.0  # TFLOP/s, bfloat16
PRECISION = "mixed_bfloat16"
NUM_KERNELS = 3
MASKED_SHARE = 0.15  # of BERT's tokens
TOY: dict[str, Any] = {
    "vocabulary_size": 50,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 32,
    "max_sequence_length": 16,
}
Batch = tuple[dict[str, np.ndarray], dict[str, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model and how it is trained.

    Attributes:
        lengths: tokens per row.
        tokens: tokens per batch.
        optimizer: makes the optimizer for a width.
        toy: arguments that make the model tiny.
    """

    lengths: tuple[int, ...]
    tokens: int
    optimizer: Callable[[int], keras.optimizers.Optimizer]
    toy: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Job:
    """A model, the shape of its batches and how to train it."""

    name: str
    length: int
    batch_size: int
    subject: Subject


@dataclasses.dataclass(frozen=True)
class Measured:
    """The result of a job.

    Attributes:
        parameters: number of trainable parameters.
        seconds: of an update.
        usual_flops: operations of an update, by 6ND and attention.
        product_flops: operations of an update, by the model's matrix products.
        kernels: names and shares of the kernels' time, the largest first.
    """

    parameters: int
    seconds: float
    usual_flops: float
    product_flops: float
    kernels: list[tuple[str, float]]


def _adamw(_: int) -> keras.optimizers.Optimizer:
    return adamw(WarmupLinearDecay(1e-4, warmup_steps=100, total_steps=10_000))


def _adam(hidden_dim: int) -> keras.optimizers.Optimizer:
    return adam(noam(hidden_dim=hidden_dim))


_STACK = TOY | {"num_layers": 1}
_PAIR = TOY | {"num_encoder_layers": 1, "num_decoder_layers": 1}
SUBJECTS = {
    "bert_base": Subject((128, 512), 65536, _adamw, _STACK),
    "bert_large": Subject((128, 512), 32768, _adamw, _STACK),
    "gpt2_small": Subject((1024,), 32768, _adamw, _STACK),
    "smollm2_135m": Subject((1024,), 32768, _adamw, _STACK | {"num_key_value_heads": 1}),
    "transformer_big": Subject((128,), 32768, _adam, _PAIR),
}


def jobs(
    models: Sequence[str], lengths: Sequence[int] | None, batch_size: int | None, toy: bool
) -> Iterator[Job]:
    """Yields each model with each length; None stands for the model's own lengths or tokens."""
    for name in models:
        subject = SUBJECTS[name]
        for length in lengths or ((TOY["max_sequence_length"],) if toy else subject.lengths):
            rows = batch_size or (2 if toy else max(1, subject.tokens // length))
            yield Job(name, length, rows, subject)


def make_model(job: Job, *, toy: bool) -> keras.Model:
    """Returns the compiled model, for BERT with both pretraining heads."""
    model = kt.create_model(job.name, attention_dropout=0.0, **(job.subject.toy if toy else {}))
    width = anatomy(model).token_embedding.hidden_dim
    if "pooled_output" in model.output:
        model = kt.heads.pretrainer(model)
    loss = {name: TokenCrossentropy() for name in model.output}
    model.compile(job.subject.optimizer(width), loss=loss)
    return model


def random_batch(model: keras.Model, job: Job) -> Batch:
    """Returns inputs and targets: random ids, all of them real tokens."""
    random = np.random.default_rng(0)
    rows, length = job.batch_size, job.length
    masked = math.ceil(MASKED_SHARE * length)

    def ids(*shape: int, size: int) -> np.ndarray:
        return random.integers(1, size, shape, dtype="int32")

    vocabulary_size = anatomy(model).token_embedding.vocabulary_size
    positions = np.argsort(random.random((rows, length)), axis=1)[:, :masked]
    special = {
        "padding_mask": np.ones((rows, length), bool),
        "segment_ids": np.repeat(np.arange(length)[None] * 2 // length, rows, 0).astype("int32"),
        "mask_positions": np.sort(positions, axis=1).astype("int32"),
        "mask_logits": ids(rows, masked, size=vocabulary_size),
        "next_sentence_logits": random.integers(0, 2, rows, dtype="int32"),
    }
    inputs, targets = (
        {n: special[n] if n in special else ids(rows, length, size=vocabulary_size) for n in names}
        for names in (model.input, model.output)
    )
    return inputs, targets


def usual_flops(model: keras.Model, job: Job) -> float:
    """Returns the operations of an update by the papers' formula; see this file's docstring.

    A pair of a source and a target token passes through all parameters once, like a token of the
    other models.
    """
    parts = anatomy(model)
    blocks = [*parts.blocks, *(parts.encoder.blocks if parts.encoder else ())]
    attentions = sum(1 if block.cross_attention is None else 2 for block in blocks)
    width = parts.token_embedding.hidden_dim
    per_token = 6 * model.count_params() + 12 * attentions * job.length * width
    return float(per_token * job.batch_size * job.length)


class Rounds(keras.callbacks.Callback):
    """Measures the second epoch and profiles the third; the first one compiles."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder
        self.seconds = math.nan

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Starts the clock or the profiler."""
        if epoch == 2:
            jax.profiler.start_trace(self.folder)
        self._start = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Waits for the last update, and stops the clock or the profiler."""
        jax.block_until_ready([variable.value for variable in self.model.variables])
        if epoch == 1:
            self.seconds = time.perf_counter() - self._start
        if epoch == 2:
            jax.profiler.stop_trace()


def measure(job: Job, *, steps: int, toy: bool) -> Measured:
    """Trains a model and returns its cost."""
    keras.utils.clear_session()
    keras.config.set_dtype_policy(PRECISION)  # the line before has reset it
    model = make_model(job, toy=toy)
    inputs, targets = random_batch(model, job)

    def batches() -> Iterator[Batch]:
        while True:
            yield inputs, targets

    with tempfile.TemporaryDirectory() as folder:
        rounds = Rounds(folder)
        fit: dict[str, Any] = {"steps_per_epoch": steps, "epochs": 3, "shuffle": False}
        history = model.fit(batches(), callbacks=[rounds], verbose=0, **fit).history
        kernels = largest_kernels(Path(folder))
    if not np.isfinite(history["loss"]).all():
        raise SystemExit(f"{job.name}: the loss is {history['loss']}")
    shapes = {name: array.shape for name, array in inputs.items()}
    return Measured(
        parameters=model.count_params(),
        seconds=rounds.seconds / steps,
        usual_flops=usual_flops(model, job),
        product_flops=training_flops(model, shapes),
        kernels=kernels,
    )


def largest_kernels(folder: Path) -> list[tuple[str, float]]:
    """Reads jax.profiler's trace; returns names without numbers, and their share of the time."""
    seconds: collections.Counter[str] = collections.Counter()
    for file in folder.rglob("*.xplane.pb"):
        for plane in jax.profiler.ProfileData.from_file(str(file)).planes:
            lines = list(plane.lines)
            # A GPU's streams list its kernels; other lines show the same time differently.
            streams = [line for line in lines if line.name.startswith("Stream")]
            for line in streams or lines:
                for event in line.events:
                    if streams or any(key == "hlo_op" for key, _ in event.stats):
                        seconds[re.sub(r"([._]\d+)+$", "", event.name)] += event.duration_ns
    total = seconds.total()
    return [(name, part / total) for name, part in seconds.most_common(NUM_KERNELS)]


def rows(job: Job, found: Measured, peak: float) -> str:
    """Returns a job's lines of the table."""
    tokens = job.batch_size * job.length / found.seconds
    shares = (f / found.seconds / (peak * 1e12) for f in (found.usual_flops, found.product_flops))
    figures = [
        f"{job.name:16}{job.batch_size:6} x {job.length:<5}{found.parameters:13,}",
        f"{1e3 * found.seconds:10.1f}{tokens:13,.0f}",
        *(f"{100 * share:10.2f} %" for share in shares),
    ]
    kernels = (f"    {100 * share:5.1f} % of the time  {name}" for name, share in found.kernels)
    return "\n".join(["".join(figures), *kernels])


def check_tensorflow_is_absent() -> None:
    """Exits if anything has imported TensorFlow."""
    if "tensorflow" in sys.modules:
        raise SystemExit("TensorFlow was imported: this benchmark needs only JAX")


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=SUBJECTS, default=list(SUBJECTS))
    parser.add_argument("--lengths", nargs="+", type=int, help="tokens per row, for all models")
    parser.add_argument("--batch-size", type=int, help="rows per batch, for all models")
    parser.add_argument("--steps", type=int, default=20, help="updates in each of the three rounds")
    parser.add_argument("--peak", type=float, default=PEAK, help="TFLOP/s of the GPU in bfloat16")
    parser.add_argument("--toy", action="store_true", help="tiny models, to test that it runs")
    options = parser.parse_args(arguments)
    check_tensorflow_is_absent()
    policy = keras.config.dtype_policy()
    device = jax.devices()[0]
    print(f"{device.platform}: {device.device_kind}, peak {options.peak:g} TFLOP/s, {PRECISION}")
    print(f"jax {jax.__version__}, keras {keras.__version__}, keras_transformers {kt.__version__}")
    print(
        f"{'model':16}{'batch':>6} x {'length':5}{'parameters':>12}{'ms':>10}{'tokens/s':>13}"
        f"{'6ND':>12}{'products':>12}"
    )
    chosen = (options.models, options.lengths, options.batch_size, options.toy)
    try:
        for job in jobs(*chosen):
            found = measure(job, steps=options.steps, toy=options.toy)
            print(rows(job, found, options.peak), flush=True)
    finally:
        keras.config.set_dtype_policy(policy)
    check_tensorflow_is_absent()


if __name__ == "__main__":
    main()
