import importlib.util
import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
import tensorflow as tf
import tiny
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.client import pywrap_tf_session

import keras_transformers as kt
from keras_transformers.pipelines import Pipeline
from keras_transformers.saved_model.checks import audit as audits
from keras_transformers.saved_model.checks.audit import audit
from keras_transformers.saved_model.checks.check import forget_ourselves, in_fresh_process
from keras_transformers.saved_model.checks.core_ops import releases
from keras_transformers.saved_model.checks.op_origins import EMBEDDED, PYTHON_OPS, TEXT_OPS
from keras_transformers.saved_model.checks.trials import findings
from keras_transformers.saved_model.description import METADATA_FILE, read_metadata


@pytest.fixture(scope="module")
def passed(exported):
    return audit(exported.parent, max_batch_size=3)


def test_our_export_passes(passed, exported):
    assert passed.passed, list(passed.lines())
    assert passed.path == exported
    assert {finding.outcome for finding in passed.findings} <= {"passed", "refused"}
    tried = {(finding.signature, finding.trial) for finding in passed.findings}
    for name in ("serving_default", "tokens", "classify"):
        for loader in ("tf.saved_model.load", "V1 session loader"):
            assert (name, f"stored examples, {loader}") in tried
        assert (name, "batches of 1 to 3") in tried
        assert (name, "8 threads at the same time") in tried
        assert (name, "an empty batch") in tried
    assert ("serving_default", "invalid UTF-8") in tried
    assert ("tokens", "invalid UTF-8") not in tried
    # The tf.Example signature refuses bytes that are no record; the text signature answers them.
    refused = {f.signature for f in passed.findings if f.outcome == "refused"}
    assert refused == {"classify"}


def test_ops_of_tensorflow_text_are_named_with_the_oldest_server(passed):
    assert set(passed.text_ops) == {"FastBertNormalize", "FastWordpieceTokenizeWithOffsets"}
    assert passed.oldest_serving == "2.12"
    assert passed.text_ops["FastBertNormalize"]["text"] == "2.9.0"
    assert passed.ops["MatMul"] > 0
    told = json.loads(json.dumps(passed.as_json()))
    assert (told["passed"], told["oldest_serving"]) == (True, "2.12")
    text = "\n".join(passed.lines())
    assert "FastBertNormalize: tensorflow-text 2.9.0 or newer; TF Serving 2.12 or newer" in text
    assert "oldest TF Serving that has all of its ops: 2.12, as far as we know" in text


def test_what_is_unknown_of_an_op_is_reported():
    ops = ("SentencepieceOp", "SentencepieceVocabSizeOp")
    found = audits.Audit(Path("a"), {}, {op: asdict(TEXT_OPS[op]) for op in ops}, {}, {}, [])
    assert found.oldest_serving is None
    text = "\n".join(found.lines())
    assert "tensorflow-text since an unknown version; TF Serving since an unknown version" in text
    assert "all of its ops: unknown for SentencepieceVocabSizeOp, not before 2.12" in text
    # TensorFlow's own ops are known from here on only.
    assert audits.Audit(Path("a"), {}, {}, {}, {}, []).oldest_serving == releases()[0] == "2.12"


_SEARCH = "search"  # whose exports hold a corpus: tests/tasks/search


def test_no_task_is_left_out():
    shown = [getattr(kt.pipelines, name) for name in dir(kt.pipelines)]
    pipelines = [
        found for found in shown if isinstance(found, type) and issubclass(found, Pipeline)
    ]
    assert {found.task for found in pipelines if hasattr(found, "task")} == {*tiny.TASKS, _SEARCH}


@pytest.mark.slow
@pytest.mark.parametrize("task", tiny.TASKS)
def test_every_export_passes_all_trials(task):
    found = findings(str(tiny.exported(task)), 4)
    assert [f for f in found if f.outcome in ("failed", "skipped")] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fill_mask_en", "sentiment_en", "translate_de_en"])
def test_the_exports_in_the_repository_pass(name):
    found = audit(Path(__file__).parents[2] / "saved_models" / name / "1", max_batch_size=3)
    assert found.passed, "\n".join(found.lines())


def save(folder, function, *specs):
    concrete = tf.function(function, input_signature=specs, autograph=False)
    tf.saved_model.save(tf.Module(), str(folder), signatures={"serving_default": concrete})
    return folder


def test_python_in_a_graph_is_refused_and_seen_in_functions(tmp_path, monkeypatch):
    def inner(x):
        return tf.numpy_function(lambda v: v, [x], tf.float32)

    def call(x):
        return {"y": tf.ensure_shape(tf.map_fn(inner, x), [None])}

    folder = save(tmp_path / "1", call, tf.TensorSpec([None], tf.float32, name="x"))
    monkeypatch.setattr(audits, "_trials", lambda folder, max_batch_size: [])
    found = audit(folder)
    assert not found.passed
    (op,) = found.refused_ops
    assert op in PYTHON_OPS
    assert f"refused  {op}: calls Python" in "\n".join(found.lines())
    assert next(reversed(list(found.lines()))).endswith("1 findings against it")


def test_custom_ops_are_refused(exported, monkeypatch):
    monkeypatch.setattr(audits, "graph_ops", lambda folder: {"MatMul": 1, "Vendor>Fused": 2})
    monkeypatch.setattr(audits, "_trials", lambda folder, max_batch_size: [])
    found = audit(exported)
    assert list(found.refused_ops) == ["Vendor>Fused"]
    assert "a custom op" in found.refused_ops["Vendor>Fused"]


@pytest.mark.slow
def test_an_answer_that_is_not_the_stored_one_fails(exported, tmp_path):
    folder = shutil.copytree(exported, tmp_path / "1")
    metadata = json.loads((folder / METADATA_FILE).read_text("utf-8"))
    example = metadata["signatures"]["serving_default"]["examples"][0]
    example["outputs"]["probabilities"]["values"][0] += 0.01
    (folder / METADATA_FILE).write_text(json.dumps(metadata), "utf-8")
    found = {(f.signature, f.trial): f for f in findings(str(folder), 1)}
    wrong = found["serving_default", "stored examples, V1 session loader"]
    assert wrong.outcome == "failed"
    assert "output 'probabilities': 1 of 4 values differ" in wrong.detail
    assert found["tokens", "stored examples, V1 session loader"].outcome == "passed"
    assert found["serving_default", "batches of 1 to 1"].outcome == "failed"


def test_a_crash_in_the_process_of_its_own_is_a_failure(exported, monkeypatch):
    def crash(*arguments):
        raise ChildProcessError("ended with status -11")

    monkeypatch.setattr(audits, "in_fresh_process", crash)
    found = audit(exported)
    assert not found.passed
    assert [f.detail for f in found.findings] == ["ended with status -11"]


@pytest.mark.slow
@pytest.mark.usefixtures("new_processes")
def test_the_process_of_its_own_imports_neither_keras_nor_us(tmp_path, monkeypatch):
    (tmp_path / "probe.py").write_text(
        "import json\n"
        "from keras_transformers.saved_model.checks.check import forget_ourselves\n"
        "def main(*names):\n"
        "    forget_ourselves()\n"
        "    found = {}\n"
        "    for name in names:\n"
        "        try:\n"
        "            __import__(name)\n"
        "        except ImportError:\n"
        "            found[name] = 'blocked'\n"
        "    print(json.dumps(found))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    names = (
        "keras",
        "keras_transformers",
        "keras_transformers.saved_model.checks.check",
        "tensorflow",
    )
    found = in_fresh_process("probe", *names)
    assert found == dict.fromkeys(names[:3], "blocked")
    assert callable(forget_ourselves)  # importing it here blocks nothing


def test_every_op_of_tensorflow_text_is_in_the_table():
    folder = Path(importlib.util.find_spec("tensorflow_text").origin).parent
    libraries = [tf.load_op_library(str(f)) for f in sorted(folder.glob("python/ops/_*.so"))]
    buffer = pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList())
    ops = {op.name: op.name.replace(">", "_") for op in op_def_pb2.OpList.FromString(buffer).op}
    core = {op for op in ops if hasattr(tf.raw_ops, op)}
    found = {op for op in set(ops) - core if any(hasattr(lib, ops[op]) for lib in libraries)}
    assert found == set(TEXT_OPS)
    for origin in TEXT_OPS.values():
        assert bool(origin.sources) == (origin.text is not None)
        assert origin.serving is None or origin.serving in EMBEDDED


def test_impossible_arguments(tmp_path):
    with pytest.raises(ValueError, match="max_batch_size=0"):
        audit(tmp_path, max_batch_size=0)
    with pytest.raises(FileNotFoundError, match="no version folder"):
        audit(tmp_path)


def documented() -> dict[tuple[str, str], list[str]]:
    """Reads (pipeline, signature) -> API, inputs and outputs from docs/exports.md."""
    rows, pipeline = {}, ""
    text = (Path(__file__).parents[2] / "docs" / "exports.md").read_text("utf-8")
    _, table = text.split("| pipeline | signature |")
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[1].startswith("`"):
            pipeline = cells[0].strip("`") or pipeline
            rows[pipeline, cells[1].strip("`")] = cells[2:]
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("task", tiny.TASKS)
def test_the_documents_table_is_what_is_exported(task):
    told = read_metadata(tiny.exported(task))["signatures"]
    name = type(tiny.pipeline(task)).__name__
    rows = {
        signature: cells
        for (pipeline, signature), cells in documented().items()
        if pipeline == name
    }
    # The page says once for all which pipelines have `tokenize`.
    assert set(rows) == set(told) - {"tokenize"}
    for signature, (api, *columns) in rows.items():
        assert told[signature]["method_name"] == f"tensorflow/serving/{api.lower()}"
        for side, cell in zip(("inputs", "outputs"), columns, strict=True):
            for key, spec in told[signature][side].items():
                assert f"`{key}` {spec['dtype']}" in cell or f"also `{key}`" in cell, (key, cell)
