"""Exports whose graphs hold nothing twice and nothing unused, and what stays as it was."""

import numpy as np
import pytest
import tensorflow as tf
from toy import export_doubling

from keras_transformers.saved_model.description import meta_graph
from keras_transformers.saved_model.graphs import rewriting, simplify


class Wasteful(tf.Module):
    """A graph with constants, shapes and sums that it writes twice, and others for nobody."""

    def __init__(self):
        super().__init__()
        self.weight = tf.Variable([2.0, 3.0])
        self.count = tf.Variable(0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)], autograph=False)
    def __call__(self, x):
        unused = tf.exp(x) + self.weight[0]
        sums = [x * self.weight[0] + tf.cast(tf.shape(x)[0], tf.float32) for _ in range(3)]
        different = x * self.weight[1] + tf.cast(tf.shape(x)[0], tf.float32)
        total, _ = tf.while_loop(
            lambda total, i: i < 3,
            lambda total, i: (total + different + tf.constant(1.0) + tf.constant(1.0), i + 1),
            (sums[0], 0),
        )
        with tf.control_dependencies([tf.debugging.assert_all_finite(x, "finite numbers only")]):
            noise = [tf.random.stateless_uniform(tf.shape(x), seed=(1, 2)) for _ in range(2)]
        drawn = [tf.random.uniform(tf.shape(x)) for _ in range(2)]
        del unused
        return {
            "sums": tf.stack([*sums, total]),
            "noise": tf.stack(noise),
            "drawn": tf.stack(drawn),
        }


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The module saved as it is, and simplified."""
    found = []
    for name in ("plain", "simplified"):
        folder = tmp_path_factory.mktemp(name)
        module = Wasteful()
        tf.saved_model.save(module, str(folder), signatures=module.__call__)
        found.append(folder)
    with rewriting(found[1]) as graph:
        simplify(graph)
    return found


def operations(folder):
    """Returns the operations of the function that computes, by name."""
    found = [f for f in meta_graph(folder).graph_def.library.function if "call" in f.signature.name]
    (largest,) = sorted(found, key=lambda function: len(function.node_def))[-1:]
    return [node.op for node in largest.node_def]


def test_what_is_computed_twice_or_never_used_goes(folders):
    plain, simplified = map(operations, folders)
    assert plain.count("Exp") == 1
    assert "Exp" not in simplified
    assert plain.count("Shape") >= 6
    assert simplified.count("Shape") == 3  # two wait for the assertion
    assert plain.count("ReadVariableOp") == 5
    assert simplified.count("ReadVariableOp") == 1
    assert plain.count("Mul") >= 4
    assert simplified.count("Mul") == 4  # two of the draws that wait for the assertion
    assert len(simplified) < len(plain) / 2


def test_what_has_effects_stays(folders):
    plain, simplified = map(operations, folders)
    assert simplified.count("RandomUniform") == plain.count("RandomUniform") == 2
    assert "CheckNumerics" in simplified


@pytest.mark.parametrize("x", [[1.5, -2.0, 0.25], []])
def test_answers_stay_the_same_bit_for_bit(folders, x):
    plain, simplified = (
        tf.saved_model.load(str(folder)).signatures["serving_default"](x=tf.constant(x, tf.float32))
        for folder in folders
    )
    for name in ("sums", "noise"):
        np.testing.assert_array_equal(plain[name], simplified[name])
    drawn = simplified["drawn"].numpy()
    assert (drawn[0] != drawn[1]).all()


def test_exports_are_simplified(tmp_path):
    def function(x):
        return {"y": 2.0 * x + tf.constant(2.0) * x + 0.0 * tf.exp(x) + 0.0 * tf.exp(x)}

    folder = export_doubling(tmp_path, function=function)
    assert operations(folder).count("Exp") == 1


def test_strings_run_on_the_cpu_without_a_scope_of_devices(tmp_path):
    names = tf.constant(["a", "b"])  # outside the graph, which then has a constant without a device

    def function(x):
        places = tf.cast(x > 0, tf.int32)
        known = tf.reduce_any(tf.gather(names, places) == "b")
        tf.debugging.Assert(known | True, ["never", x])
        return {"y": x}

    (graph,) = [meta_graph(export_doubling(tmp_path, function=function)).graph_def]
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    devices: dict[str, set[str]] = {}
    for node in nodes:
        has_strings = any(
            tf.string.as_datatype_enum in (v.type, *v.list.type) for v in node.attr.values()
        )
        devices.setdefault(f"{node.op}, {has_strings}", set()).add(node.device)
    on_cpu = {
        kind for kind, places in devices.items() if all("device:CPU" in place for place in places)
    }
    assert {"Const, True", "GatherV2, True", "Assert, True"} <= on_cpu
    assert devices["Cast, False"] == {""}


def test_gradients_are_left_out(tmp_path, caplog):
    """A custom gradient names what it reads, and that may have gone."""

    def function(x):
        def body(i, y):
            return i + 1, tf.nn.silu(y + 1.0) + tf.nn.silu(y + tf.constant(1.0))

        return {"y": tf.while_loop(lambda i, y: i < 2, body, (0, x))[1]}

    folder = export_doubling(tmp_path, function=function)
    call = tf.saved_model.load(str(folder)).signatures["serving_default"]
    expected = function(tf.constant([0.5]))["y"]
    np.testing.assert_allclose(call(x=tf.constant([0.5]))["y"], expected, rtol=1e-6)
    assert "gradient" not in caplog.text
