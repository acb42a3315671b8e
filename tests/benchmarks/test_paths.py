"""benchmarks/against_theory/paths.py: chains of operations and paths, where they are known."""

import importlib.util
from pathlib import Path

import pytest
import tensorflow as tf

FILE = Path(__file__).parents[2] / "benchmarks/against_theory/paths.py"
spec = importlib.util.spec_from_file_location("paths", FILE)
paths = importlib.util.module_from_spec(spec)
spec.loader.exec_module(paths)


def test_a_chain_is_as_long_as_the_operations_that_wait_for_each_other():
    def chain(inputs):
        for _ in range(5):
            inputs = tf.nn.relu(inputs)
        return inputs, tf.nn.relu(inputs[:, :1])

    def side_by_side(inputs):
        return [tf.nn.relu(inputs) for _ in range(5)]

    assert paths.steps(chain, 8) - paths.steps(side_by_side, 8) >= 4


def test_a_loop_counts_as_often_as_it_runs():
    short, long = (paths.steps(paths.recurrent(length, 0), length) for length in (16, 32))
    assert 1.8 < long / short < 2.1
    assert len({paths.steps(paths.attention(length, 0), length) for length in (16, 32)}) == 1


@pytest.mark.parametrize(
    ("make", "expected"),
    [(paths.attention, 1), (paths.restricted, 3), (paths.convolution, 10), (paths.recurrent, 20)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_path_is_as_many_layers_as_a_change_needs(make, expected):
    assert paths.path(make, 20) == expected  # 19 positions further: 8 or 2 a layer


@pytest.mark.parametrize(("length", "layers"), [(27, 3), (81, 4), (243, 5)])
def test_dilated_convolutions_reach_three_times_as_far_with_each_layer(length, layers):
    """Dilations 1, 3, 9, ...: log_k(n) layers; one position further takes one more."""
    assert paths.path(paths.dilated, length) == layers
    assert paths.path(paths.dilated, length + 1) == layers + 1
