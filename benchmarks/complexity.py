"""Measures how the cost of attention, recurrence and convolution grows with length and width.

    python benchmarks/complexity.py --plot complexity.png

"Attention Is All You Need", table 1: self-attention O(n^2 d), recurrent O(n d^2), convolutional
O(k n d^2) with kernels of k positions, for length n and width d. Measures a training step of one
layer, forward and backward, 4 sequences, float32, one thread. Each line of the output is a sweep
over one of n, d and k; its exponent is the slope of a line through the logarithms. The theory next
to it is the slope of the layer's number of operations, or of floats kept for the backward pass,
over the same sizes.

- self-attention: scores, softmax and weighted sum in heads of 64, as the table counts it;
- attention layer: the same with its four projections, n^2 d + n d^2: `layers.MultiHeadAttention`;
- attention in blocks: that layer with more than 1,024 tokens, whose scores exist for
  `layers.memory.blocks.BLOCK` queries at a time;
- attention in a window: the layer with a window of 64 tokens to each side, as in ModernBERT's
  local layers, O(n w d + n d^2): `layers.memory.bands`;
- recurrent: a GRU, `layers.recurrent.Recurrent`;
- convolution: `keras.layers.Conv1D`.

Time is CPU time, the median of rounds that visit all sizes in turn. Memory is how much a step
raises the peak of resident memory, in a new process without oneDNN (Linux, glibc).
"""

import argparse
import ctypes
import dataclasses
import functools
import math
import multiprocessing
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal
from unittest import mock

for variable in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from keras_transformers.layers import MultiHeadAttention  # noqa: E402
from keras_transformers.layers.memory.blocks import BLOCK  # noqa: E402
from keras_transformers.layers.recurrent.cells import Recurrent  # noqa: E402

BATCH, HEAD_DIM, WINDOW = 4, 64, 64
_M_MMAP_THRESHOLD = -3  # of <malloc.h>
Axis = Literal["n", "d", "k"]
Figure = Literal["time", "memory"]


@dataclasses.dataclass(frozen=True)
class Point:
    """The sizes of one measurement: length, width, positions under a kernel."""

    n: int
    d: int
    k: int = 3


@dataclasses.dataclass(frozen=True)
class Subject:
    """A layer, and what theory says about it, up to a constant factor.

    Attributes:
        make: returns the layer for a point, a function of (batch, n, d).
        operations: multiplications and additions of a forward pass.
        floats: floats that the forward pass keeps for the backward pass.
    """

    make: Callable[[Point], Callable[[Any], Any]]
    operations: Callable[[Point], float]
    floats: Callable[[Point], float]


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Measurements over one size, with the others fixed."""

    subject: str
    figure: Figure
    axis: Axis
    points: tuple[Point, ...]

    @property
    def sizes(self) -> list[int]:
        """The values of the axis."""
        return [getattr(point, self.axis) for point in self.points]

    @property
    def theory(self) -> float:
        """The exponent fitted to the subject's count."""
        subject = SUBJECTS[self.subject]
        count = subject.operations if self.figure == "time" else subject.floats
        return fitted_exponent(self.sizes, [count(point) for point in self.points])


def self_attention(point: Point) -> Callable[[Any], Any]:
    heads = max(1, point.d // HEAD_DIM)

    def attend(inputs: Any) -> Any:
        x = tf.reshape(inputs, (BATCH, point.n, heads, -1))
        x = tf.transpose(x, (0, 2, 1, 3))  # (batch, heads, n, head_dim)
        scores = tf.matmul(x, x, transpose_b=True) * HEAD_DIM**-0.5  # (batch, heads, n, n)
        return tf.matmul(tf.nn.softmax(scores), x)

    return attend


def attention_layer(point: Point) -> Callable[[Any], Any]:
    return MultiHeadAttention(max(1, point.d // HEAD_DIM), point.d)


def attention_in_a_window(point: Point) -> Callable[[Any], Any]:
    return MultiHeadAttention(max(1, point.d // HEAD_DIM), point.d, window=WINDOW)


def recurrent(point: Point) -> Callable[[Any], Any]:
    layer = Recurrent("gru", point.d)
    return lambda inputs: layer(inputs)[0]


def convolution(point: Point) -> Callable[[Any], Any]:
    return keras.layers.Conv1D(point.d, point.k, padding="same")


SUBJECTS = {
    "self-attention": Subject(
        self_attention,
        operations=lambda p: 4 * p.n**2 * p.d,
        floats=lambda p: p.n**2 * p.d / HEAD_DIM,
    ),
    "attention layer": Subject(
        attention_layer,
        operations=lambda p: 4 * p.n**2 * p.d + 8 * p.n * p.d**2,
        floats=lambda p: p.n**2 * p.d / HEAD_DIM + 4 * p.n * p.d,
    ),
    "attention in blocks": Subject(
        attention_layer,
        operations=lambda p: 4 * p.n**2 * p.d + 8 * p.n * p.d**2,
        floats=lambda p: p.n * BLOCK * p.d / HEAD_DIM + 4 * p.n * p.d,
    ),
    "attention in a window": Subject(
        attention_in_a_window,
        operations=lambda p: 12 * p.n * WINDOW * p.d + 8 * p.n * p.d**2,
        floats=lambda p: 3 * p.n * WINDOW * p.d / HEAD_DIM + 4 * p.n * p.d,
    ),
    "recurrent": Subject(
        recurrent, operations=lambda p: 12 * p.n * p.d**2, floats=lambda p: p.n * p.d
    ),
    "convolution": Subject(
        convolution, operations=lambda p: 2 * p.k * p.n * p.d**2, floats=lambda p: p.n * p.d
    ),
}


def sweeps() -> list[Sweep]:
    """Returns all sweeps, at sizes where the work outweighs a call's or loop step's overhead."""
    found = []

    def add(subject: str, figure: Figure, axis: Axis, sizes: Sequence[int], **fixed: int) -> None:
        points = tuple(Point(**{axis: size}, **fixed) for size in sizes)
        found.append(Sweep(subject, figure, axis, points))

    for name, longest in (("self-attention", 1536), ("attention layer", 1024)):
        add(name, "time", "n", (256, 512, 768, longest), d=256)
        add(name, "time", "d", (128, 256, 512, 1024), n=512)
        add(name, "memory", "n", (512, 640, 768, 1024), d=256)
        add(name, "memory", "d", (128, 256, 512, 768), n=768)
    add("self-attention", "memory", "n", (1536, 2048, 3072, 4096), d=256)
    for figure in ("time", "memory"):
        add("attention in blocks", figure, "n", (1536, 2048, 3072, 4096), d=256)
        add("attention in a window", figure, "n", (1024, 2048, 4096, 8192), d=256)
    add("recurrent", "time", "n", (16, 32, 64, 128), d=512)
    add("recurrent", "time", "d", (512, 768, 1024, 1536), n=16)
    add("convolution", "time", "n", (128, 256, 512, 1024), d=256)
    add("convolution", "time", "d", (128, 256, 512, 1024), n=256)
    add("convolution", "time", "k", (1, 3, 5, 9), n=256, d=256)
    for name in ("recurrent", "convolution"):
        add(name, "memory", "n", (1024, 2048, 3072, 4096), d=256)
        add(name, "memory", "d", (128, 256, 384, 512), n=3072)
    return found


def fitted_exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Returns b of values = a * sizes^b, by least squares on the logarithms."""
    slope, _ = np.polyfit(np.log(sizes), np.log(values), 1)
    return float(slope)


def training_step(subject: str, point: Point) -> Callable[[], Any]:
    """Returns a compiled step of a layer: gradients of a sum of squares by inputs and weights."""
    inputs = tf.random.stateless_normal((BATCH, point.n, point.d), (0, 1))
    layer = SUBJECTS[subject].make(point)
    layer(inputs)  # makes the weights

    @tf.function(autograph=False)
    def step(inputs: Any) -> list[Any]:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss = tf.reduce_sum(layer(inputs) ** 2)
        return tape.gradient(loss, [inputs, *tape.watched_variables()])

    return functools.partial(step, inputs)


def seconds(measured: Sequence[tuple[str, Point]], rounds: int) -> dict[tuple[str, Point], float]:
    """Returns each step's CPU time, the median of `rounds` that visit all in random order."""
    steps = {key: training_step(*key) for key in measured}
    times: dict[tuple[str, Point], list[float]] = {key: [] for key in steps}
    order = list(steps)
    shuffle = random.Random(0).shuffle
    for number in range(rounds + 1):
        shuffle(order)
        for key in order:
            start = time.process_time()
            steps[key]()
            if number:  # the first round compiles
                times[key].append(time.process_time() - start)
    return {key: statistics.median(values) for key, values in times.items()}


def memory(subject: str, point: Point) -> float:
    """Returns the bytes by which a step raises the resident memory of the process."""
    # Always get large blocks from the system and return them to it (mallopt(3)).
    ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 64 * 1024)
    step = training_step(subject, point)
    step()  # makes the allocations of the first step
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # resets the peak (proc(5))
    before = resident("VmRSS")
    step()
    return max(resident("VmHWM") - before, 1.0)


def memories(measured: Sequence[tuple[str, Point]]) -> list[float]:
    """Returns `memory` of each point, in new processes without oneDNN, whose pool hides memory."""
    spawn, without_pool = multiprocessing.get_context("spawn"), {"TF_ENABLE_ONEDNN_OPTS": "0"}
    with mock.patch.dict(os.environ, without_pool), spawn.Pool(1, maxtasksperchild=1) as pool:
        return pool.starmap(memory, measured, chunksize=1)


def resident(figure: Literal["VmRSS", "VmHWM"]) -> float:
    """Returns the bytes of this process's memory, now or at its peak."""
    with open("/proc/self/status", encoding="ascii") as file:
        (line,) = (line for line in file if line.startswith(figure))
    return int(line.split()[1]) * 1024.0


def table(found: Sequence[tuple[Sweep, list[float]]]) -> str:
    """Returns a table with one line per sweep."""
    lines = [f"{'layer':22}{'figure':8}{'over':6}{'fitted':>7}{'theory':>8}  measured"]
    for sweep, values in found:
        unit, factor = ("ms", 1e3) if sweep.figure == "time" else ("MB", 1e-6)
        cells = ", ".join(
            f"{size}: {value * factor:.1f}" for size, value in zip(sweep.sizes, values, strict=True)
        )
        first = dataclasses.asdict(sweep.points[0])
        names = [name for name in ("n", "d", "k") if name != sweep.axis]
        fixed = ", ".join(
            f"{name} = {first[name]}"
            for name in names
            if name != "k" or sweep.subject == "convolution"
        )
        lines.append(
            f"{sweep.subject:22}{sweep.figure:8}{sweep.axis:6}"
            f"{fitted_exponent(sweep.sizes, values):7.2f}{sweep.theory:8.2f}  "
            f"{cells} {unit} ({fixed})"
        )
    return "\n".join(lines)


def plot(found: Sequence[tuple[Sweep, list[float]]], path: str) -> None:
    """Plots time and memory over n and d on logarithmic axes, with theory as dashed lines."""
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(10, 8), layout="constrained")
    for place, (figure, axis) in enumerate(
        (figure, axis) for figure in ("time", "memory") for axis in ("n", "d")
    ):
        axes = canvas.add_subplot(2, 2, place + 1)
        for sweep, values in found:
            if (sweep.figure, sweep.axis) != (figure, axis):
                continue
            sizes = np.array(sweep.sizes, "float64")
            label = f"{sweep.subject}: {fitted_exponent(sweep.sizes, values):.2f}"
            (line,) = axes.loglog(sizes, values, "o-", label=label)
            middle = math.exp(np.mean(np.log(values)) - sweep.theory * np.mean(np.log(sizes)))
            axes.loglog(sizes, middle * sizes**sweep.theory, "--", color=line.get_color())
        axes.set_xlabel({"n": "length n", "d": "width d"}[axis])
        axes.set_ylabel({"time": "CPU time of a step (s)", "memory": "memory (bytes)"}[figure])
        if axes.lines:
            axes.legend(title="fitted exponents")
    canvas.savefig(path)


def run(chosen: Sequence[Sweep], rounds: int) -> list[tuple[Sweep, list[float]]]:
    """Measures all sweeps."""

    def asked(figure: Figure) -> list[tuple[str, Point]]:
        return [(s.subject, point) for s in chosen if s.figure == figure for point in s.points]

    measured = list(dict.fromkeys(asked("memory")))
    figures = {
        "memory": dict(zip(measured, memories(measured), strict=True)),
        "time": seconds(asked("time"), rounds),
    }
    return [(s, [figures[s.figure][s.subject, point] for point in s.points]) for s in chosen]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="measurements per size (9)")
    parser.add_argument(
        "--only", metavar="LAYER", help="one layer, such as 'attention in a window'"
    )
    parser.add_argument("--plot", metavar="FILE", help="a picture, .png, .svg or .pdf")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: must be 1 or more")
    if options.only not in (None, *SUBJECTS):
        parser.error(f"--only {options.only}: take one of {', '.join(SUBJECTS)}")
    chosen = [each for each in sweeps() if options.only in (None, each.subject)]
    found = run(chosen, options.rounds)
    print(f"TensorFlow {tf.__version__}, one thread, {BATCH} sequences, {options.rounds} rounds")
    print(table(found))
    if options.plot:
        plot(found, options.plot)
        print(f"written: {options.plot}")


if __name__ == "__main__":
    main()
