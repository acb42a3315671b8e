"""Measures two columns of table 1 of "Attention Is All You Need": sequential steps and paths.

    python benchmarks/against_theory/paths.py

- steps: the longest chain of operations that each wait for the previous one, in the graph that
  TensorFlow runs for one layer; a loop counts as often as it runs. The exponent is the slope of a
  line through the logarithms of lengths and steps: 0 is O(1), 1 is O(n).
- path: the number of computations between the first position and the last one. To measure it, the
  first input is changed, and layers are added until the last output changes. Within a recurrent
  layer the change passes from step to step, so there each position counts.

Self-attention restricted to r neighbours is attention under a band mask. A convolution's kernel
covers a position and the k - 1 before it; with dilation, layer i = 0, 1, ... leaves k^i - 1 out
between two of them. Lengths are powers of k = 3. Width 16, 1 sequence, float32.
"""

import os
from collections.abc import Callable, Iterable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.layers import MultiHeadAttention
from keras_transformers.layers.recurrent.cells import Recurrent

LENGTHS, WIDTH, NEIGHBOURS, KERNEL = (27, 81, 243), 16, 16, 3
Layer = Callable[[Any], Any]
Make = Callable[[int, int], Layer]  # from the length and the number of layers below
_LOOPS = ("While", "StatelessWhile")
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")


def attention(length: int, below: int) -> Layer:
    """Self-attention over all positions."""
    layer = MultiHeadAttention(1, WIDTH)
    return lambda inputs: layer(inputs)


def restricted(length: int, below: int) -> Layer:
    """Self-attention over NEIGHBOURS positions, half of them on each side."""
    layer = MultiHeadAttention(1, WIDTH)
    places = np.arange(length)
    band = np.abs(places[:, None] - places[None]) <= NEIGHBOURS // 2
    return lambda inputs: layer(inputs, attention_mask=band[None])


def convolution(length: int, below: int) -> Layer:
    """A convolution over KERNEL positions in a row."""
    return keras.layers.Conv1D(WIDTH, KERNEL, padding="causal")


def dilated(length: int, below: int) -> Layer:
    """A convolution over KERNEL positions, each layer's further apart than those of the last."""
    return keras.layers.Conv1D(WIDTH, KERNEL, padding="causal", dilation_rate=KERNEL**below)


def recurrent(length: int, below: int) -> Layer:
    """A GRU."""
    layer = Recurrent("gru", WIDTH)
    return lambda inputs: layer(inputs)[0]


# Name -> the layer, and the paper's steps and path.
SUBJECTS: dict[str, tuple[Make, str, str]] = {
    "self-attention": (attention, "1", "1"),
    f"self-attention, {NEIGHBOURS} neighbours": (restricted, "1", "n / r"),
    "recurrent": (recurrent, "n", "n"),
    f"convolution, {KERNEL} positions": (convolution, "1", "n / k"),
    f"convolution, {KERNEL} positions, dilated": (dilated, "1", "log_k(n)"),
}


def steps(layer: Layer, length: int) -> int:
    """Returns the longest chain of operations in the layer's graph."""
    run = tf.function(layer, autograph=False)
    graph = run.get_concrete_function(tf.TensorSpec((1, length, WIDTH))).graph
    definition = graph.as_graph_def()
    library = {each.signature.name: each.node_def for each in definition.library.function}
    return _longest(definition.node, library, length)


def _longest(nodes: Iterable[Any], library: dict[str, Any], length: int) -> int:
    by_name = {node.name: node for node in nodes}
    found: dict[str, int] = {}

    def cost(node: Any) -> int:
        if node.op in _LOOPS:
            return length * _longest(library[node.attr["body"].func.name], library, length)
        if node.op in _CALLS:
            return _longest(library[node.attr["f"].func.name], library, length)
        return 1

    for name in _in_order(by_name):
        before = [found[source] for source in _sources(by_name[name]) if source in found]
        found[name] = cost(by_name[name]) + max(before, default=0)
    return max(found.values(), default=0)


def _sources(node: Any) -> list[str]:
    return [source.lstrip("^").partition(":")[0] for source in node.input]


def _in_order(nodes: dict[str, Any]) -> list[str]:
    """Returns the nodes' names so that each comes after its sources."""
    done: dict[str, None] = {}
    waiting = [(name, False) for name in nodes]
    while waiting:
        name, is_ready = waiting.pop()
        if name in done or name not in nodes:
            continue
        if is_ready:
            done[name] = None
        else:
            waiting.append((name, True))
            waiting += [(source, False) for source in _sources(nodes[name])]
    return list(done)


def path(make: Make, length: int) -> int:
    """Returns how many computations lie between the first input and the last output."""
    keras.utils.set_random_seed(0)
    inputs = np.random.default_rng(0).normal(size=(1, length, WIDTH)).astype("float32")
    changed = inputs.copy()
    changed[0, 0] += 1
    one, other = tf.constant(inputs), tf.constant(changed)
    for number in range(1, length + 1):
        layer = make(length, number - 1)
        one, other = layer(one), layer(other)
        # Which outputs the change has reached; each change is then made large again, so that it
        # does not vanish in float32: only its presence matters, not its size.
        knows = np.abs((one - other).numpy()).max(axis=-1)[0] > 0
        if knows[-1]:
            return length if make is recurrent else number
        one = tf.constant(inputs)
        other = one + tf.cast(knows[None, :, None], tf.float32)
    raise AssertionError("the change never arrives")


def exponent(counts: list[int]) -> float:
    """Returns the slope of a line through the logarithms of lengths and counts."""
    return float(np.polyfit(np.log(LENGTHS), np.log(counts), 1)[0])


def main() -> None:
    columns = [f"steps, n = {length}" for length in LENGTHS] + ["exponent", "paper"]
    columns += [f"path, n = {length}" for length in LENGTHS] + ["exponent", "paper"]
    print(f"| layer | {' | '.join(columns)} |")
    print(f"|---|{'--:|' * len(columns)}")
    for name, (make, paper_steps, paper_path) in SUBJECTS.items():
        cells = []
        for counts, paper in (
            ([steps(make(length, 0), length) for length in LENGTHS], paper_steps),
            ([path(make, length) for length in LENGTHS], paper_path),
        ):
            cells += [*map(str, counts), f"{exponent(counts):.2f}", paper]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
