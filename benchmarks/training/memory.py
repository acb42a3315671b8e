"""Measures what recomputing activations saves and costs: a training step's peak memory and time.

    python benchmarks/training/memory.py
    python benchmarks/training/memory.py --models bert_large --shapes 2x128 2x512

A step is forward, backward and AdamW on an encoder with random weights, dropout 0.1 and a mean
square as its loss, in float32 on one thread. Columns, plain and with `training.recompute_layers`:

- pass: how much a forward and backward pass raises the peak resident memory: activations, and the
  gradients of the weights, whose size is the first column;
- training: the peak of a process that trains, minus the memory of TensorFlow itself;
- time: CPU time of a step, the median of rounds in which both take turns.

Each memory figure comes from a new process, without oneDNN, whose pool hides memory (Linux, glibc).
"""

import argparse
import ctypes
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

for variable in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import keras  # noqa: E402
import tensorflow as tf  # noqa: E402

import keras_transformers as kt  # noqa: E402
from keras_transformers.training import adamw, recompute_layers  # noqa: E402

_M_MMAP_THRESHOLD = -3  # of <malloc.h>


class Steps:
    """A model and its training steps on a batch of random tokens.

    Args:
        model: name of an encoder.
        rows: number of rows in the batch.
        length: number of tokens in each row.
    """

    def __init__(self, model: str, rows: int, length: int) -> None:
        keras.utils.set_random_seed(0)
        self.model = kt.create_model(model, max_sequence_length=max(512, length))
        self.optimizer = adamw(1e-5)
        self.optimizer.build(self.model.trainable_variables)
        tokens = tf.random.stateless_uniform((rows, length), (0, 1), 1, 1000, dtype=tf.int32)
        inputs = {
            "token_ids": tokens,
            "segment_ids": tf.zeros_like(tokens),
            "padding_mask": tokens > 0,
        }
        self.batch = {name: inputs[name] for name in self.model.input}

    def pass_(self, *, recompute: bool) -> Callable[[], Any]:
        """Returns a compiled forward and backward pass, which returns the gradients."""
        return self._compiled(recompute, update=False)

    def step(self, *, recompute: bool) -> Callable[[], Any]:
        """Returns a compiled training step."""
        return self._compiled(recompute, update=True)

    def _compiled(self, recompute: bool, *, update: bool) -> Callable[[], Any]:
        weights = self.model.trainable_variables

        @tf.function(autograph=False)
        def run(batch: dict[str, Any]) -> Any:
            recompute_layers(self.model, recompute)  # while the function is traced
            with tf.GradientTape() as tape:
                hidden = self.model(batch, training=True)["sequence_output"]
                loss = tf.reduce_mean(tf.square(hidden))
            gradients = tape.gradient(loss, [weight.value for weight in weights])
            if not update:
                return [tf.convert_to_tensor(g) for g in gradients if g is not None]
            self.optimizer.apply_gradients(
                (g, w) for g, w in zip(gradients, weights, strict=True) if g is not None
            )
            return loss

        return lambda: run(self.batch)


def memories(model: str, rows: int, length: int, recompute: bool) -> tuple[float, float, float]:
    """Returns the bytes of the gradients, of a pass, and of a process that trains."""
    ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 64 * 1024)  # returns freed blocks at once
    tf.function(lambda: tf.zeros(()))()
    empty = resident("VmRSS")
    steps = Steps(model, rows, length)
    run = steps.pass_(recompute=recompute)
    gradients = sum(4.0 * tf.size(g).numpy() for g in run())  # the first pass also compiles
    in_a_pass = peak_of(run)
    step = steps.step(recompute=recompute)
    step()
    before = resident("VmRSS")
    return gradients, in_a_pass, before + peak_of(step) - empty


def peak_of(run: Callable[[], Any]) -> float:
    """Returns the bytes by which a call raises the resident memory of the process."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # resets the peak (proc(5))
    before = resident("VmRSS")
    run()
    return resident("VmHWM") - before


def resident(figure: str) -> float:
    """Returns the bytes of this process's memory: VmRSS is now, VmHWM at its peak."""
    with open("/proc/self/status", encoding="ascii") as file:
        (line,) = (line for line in file if line.startswith(figure))
    return int(line.split()[1]) * 1024.0


def in_new_process(function: Callable[..., Any], *arguments: Any, one_dnn: bool = True) -> Any:
    """Calls a function in a new process, whose memory is free afterwards."""
    environment = {"TF_ENABLE_ONEDNN_OPTS": str(int(one_dnn))}
    spawn = multiprocessing.get_context("spawn")
    with mock.patch.dict(os.environ, environment), spawn.Pool(1) as pool:
        return pool.apply(function, arguments)


def seconds(model: str, rows: int, length: int, rounds: int) -> list[float]:
    """Returns the CPU time of a step, plain and recomputed."""
    steps = Steps(model, rows, length)
    both = [steps.step(recompute=recompute) for recompute in (False, True)]
    times: list[list[float]] = [[], []]
    for number in range(rounds + 1):
        for step, found in zip(both, times, strict=True):
            start = time.process_time()
            step()
            if number:  # the first round compiles
                found.append(time.process_time() - start)
    return [statistics.median(found) for found in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["bert_base"], help="encoders")
    parser.add_argument("--shapes", nargs="+", default=["8x128", "4x512"], help="rows x tokens")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of the time (3)")
    options = parser.parse_args()
    print(f"TensorFlow {tf.__version__}, one thread, {options.rounds} rounds")
    print(
        f"{'model':14}{'shape':8}{'gradients, MB':>14}{'pass, MB':>18}{'training, MB':>18}"
        f"{'time, s':>16}{'ratio':>7}"
    )
    for model in options.models:
        for shape in options.shapes:
            rows, length = map(int, shape.split("x"))
            plain, recomputed = (
                in_new_process(memories, model, rows, length, recompute, one_dnn=False)
                for recompute in (False, True)
            )
            times = in_new_process(seconds, model, rows, length, options.rounds)
            pairs = zip(plain[1:], recomputed[1:], strict=True)
            cells = [f"{value / 1e6:9.0f}" for pair in pairs for value in pair]
            print(
                f"{model:14}{shape:8}{plain[0] / 1e6:14.0f}{''.join(cells)}"
                f"{times[0]:8.2f}{times[1]:8.2f}"
                f"{times[1] / times[0]:7.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
