"""The audit dates TensorFlow's own ops and their attributes."""

import json

import pytest
import tensorflow as tf
from tensorflow.core.framework import op_def_pb2
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.client import pywrap_tf_session

from keras_transformers.dependencies import private_api
from keras_transformers.saved_model.checks import audit as audits
from keras_transformers.saved_model.checks import core_ops
from keras_transformers.saved_model.checks.audit import audit, set_attributes
from keras_transformers.saved_model.checks.core_ops import releases, releases_with, tables
from keras_transformers.saved_model.checks.make_core_ops import WHEELS


@pytest.fixture(autouse=True)
def no_trials(monkeypatch):
    monkeypatch.setattr(audits, "_trials", lambda folder, max_batch_size: [])


@pytest.fixture
def gathering(tmp_path):
    """Saves a model whose function gathers; `attributes` are set on that node."""

    def save(**attributes):
        @tf.function(input_signature=[tf.TensorSpec([None, 2], name="x")], autograph=False)
        def gather(x):
            return {"y": tf.gather_nd(x, [[0, 0]])}

        tf.saved_model.save(tf.Module(), str(tmp_path), signatures={"serving_default": gather})
        file = tmp_path / "saved_model.pb"
        model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
        functions = model.meta_graphs[0].graph_def.library.function
        nodes = [n for function in functions for n in function.node_def if n.op == "GatherNd"]
        assert nodes
        for node in nodes:
            for name, value in attributes.items():
                node.attr[name].s = value
        file.write_bytes(model.SerializeToString())
        (tmp_path / "fingerprint.pb").unlink()
        return tmp_path

    return save


def test_the_table_has_the_ops_of_the_tensorflow_that_is_installed():
    """If not: python -m keras_transformers.saved_model.checks.make_core_ops."""
    installed = ".".join(tf.__version__.split(".")[:2])
    assert list(WHEELS) == list(releases())
    assert installed in releases(), "add it to WHEELS in make_core_ops.py"
    buffer = pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList())
    registered = {op.name: op for op in op_def_pb2.OpList.FromString(buffer).op}
    for op in filter(lambda op: hasattr(tf.raw_ops, op), registered):
        expected = {attribute.name for attribute in registered[op].attr}
        assert tables()[installed][op] == expected, op


def test_known_changes():
    assert releases_with("_QuantizedMatMul") == releases()[releases().index("2.17") :]
    assert releases_with("MatMul") == releases()
    assert releases_with("MatMul", ["grad_a"])[0] == "2.16"
    assert releases_with("MatMul", ["grad_a", "no_such"]) == ()
    assert releases_with("RelayoutGrad") == ("2.13",)
    assert releases_with("Vendor>Fused") == ()


def test_int8_needs_a_newer_server_with_onednn(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([4, 64], tf.int8, name="x")], autograph=False)
    def product(x):
        matrix = tf.constant(1, tf.int8, (64, 8))
        return {"y": private_api.int8_product(x, matrix, tf.ones([8]))}

    tf.saved_model.save(tf.Module(), str(tmp_path), signatures={"serving_default": product})
    found = audit(tmp_path)
    assert found.oldest_serving == "2.17"
    text = "\n".join(found.lines())
    assert "_QuantizedMatMul: TF Serving 2.17 or newer, built with oneDNN (x86)" in text
    assert "all of its ops: 2.17, as far as we know" in text


@pytest.mark.parametrize(
    ("attributes", "oldest"),
    [
        ({}, "2.12"),
        ({"bad_indices_policy": b""}, "2.12"),  # the default: older ones compute the same
        ({"bad_indices_policy": b"IGNORE"}, "2.17"),
    ],
)
def test_attributes_in_functions_count_unless_they_have_the_default(gathering, attributes, oldest):
    found = audit(gathering(**attributes))
    assert found.oldest_serving == oldest
    text = "\n".join(found.lines())
    assert ("GatherNd with bad_indices_policy: TF Serving 2.17 or newer" in text) == (
        oldest == "2.17"
    )
    assert f"oldest TF Serving that has all of its ops: {oldest}, as far as we know" in text
    assert found.passed


def test_what_the_table_does_not_know_is_reported(gathering, monkeypatch):
    """An op or attribute of a TensorFlow newer than the table, and an op that is gone."""
    folder = gathering(from_the_future=b"x")
    assert set_attributes(folder)["GatherNd"] >= {"from_the_future"}
    found = audit(folder)
    assert found.oldest_serving is None
    told = json.loads(json.dumps(found.as_json()))
    assert told["core_ops"]["GatherNd"] == {"serving": None, "attributes": ["from_the_future"]}
    text = "\n".join(found.lines())
    span = f"{releases()[0]} to {releases()[-1]}"
    assert f"GatherNd with from_the_future: not in all releases that we know, {span}" in text
    assert "unknown for GatherNd, not before 2.12" in text

    ops = {"AbsV99": 1, "RelayoutGrad": 1, "MatMul": 1}
    monkeypatch.setattr(audits, "graph_ops", lambda folder: ops)
    monkeypatch.setattr(tf.raw_ops, "AbsV99", lambda: None, raising=False)
    found = audit(folder)
    assert list(found.core_ops) == ["AbsV99", "RelayoutGrad"]
    assert found.refused_ops == {}
    assert found.oldest_serving is None


def test_an_op_that_neither_the_table_nor_tensorflow_knows_is_custom(gathering, monkeypatch):
    monkeypatch.setattr(audits, "graph_ops", lambda folder: {"Vendor>Fused": 1})
    found = audit(gathering())
    assert found.core_ops == {}
    assert "a custom op" in found.refused_ops["Vendor>Fused"]
    assert f"TensorFlow {releases()[0]} to {releases()[-1]}" in found.refused_ops["Vendor>Fused"]
    assert not found.passed


def test_the_table_is_read_from_the_package():
    assert core_ops.FILE.is_file()
    assert all(len(table) > 1500 for table in tables().values())
