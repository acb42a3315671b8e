import json
import os
import shutil
import signal
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from toy import doubling, export_doubling

import keras_transformers as kt
from keras_transformers.saved_model import exporting
from keras_transformers.saved_model.checks import check
from keras_transformers.saved_model.description import METADATA_FILE
from keras_transformers.saved_model.examples import stored_examples


def test_any_function_becomes_a_named_typed_signature(tmp_path):
    folder = export_doubling(tmp_path)
    assert folder == tmp_path / "1"
    function = tf.saved_model.load(str(folder)).signatures["serving_default"]
    assert function.structured_input_signature[1]["x"].shape.as_list() == [None]
    assert function(x=tf.constant([4.0]))["y"].numpy().tolist() == [8.0]
    assert list(check.failures(str(folder))) == []


def test_metadata_lie_beside_the_model(tmp_path):
    folder = export_doubling(tmp_path)
    metadata = json.loads((folder / METADATA_FILE).read_text())
    assert metadata["task"] == "toy"
    assert metadata["model"]["num_parameters"] == 1
    assert metadata["library_versions"]["tensorflow"] == tf.__version__
    signature = metadata["signatures"]["serving_default"]
    assert signature["inputs"] == {"x": {"dtype": "float32", "shape": [None]}}
    assert signature["examples"][0]["outputs"]["y"]["values"] == [2.0, -6.0]


def test_examples_are_stored_in_the_types_that_the_signature_takes(tmp_path):
    folder = export_doubling(tmp_path, examples=[{"x": np.array([1.0])}])  # float64
    metadata = json.loads((folder / METADATA_FILE).read_text())
    stored = metadata["signatures"]["serving_default"]["examples"][0]["inputs"]["x"]
    assert stored["dtype"] == "float32"
    stored["dtype"] = "float64"  # as in the first exports
    (example,) = stored_examples(metadata, "serving_default")
    assert example["inputs"]["x"].dtype == np.float32


@pytest.mark.usefixtures("new_processes")
def test_a_good_export_passes_the_check_in_a_fresh_process(classify, tmp_path):
    assert kt.export(classify, tmp_path) == tmp_path / "1"


def export_checked(path, factor, function, output=tf.float32, **changes):
    """Exports a toy that computes `function(weight, x)`, with a check; returns its metadata."""
    pipeline = doubling(
        factor,
        function=lambda x: {"y": function(pipeline.model.weights[0][0, 0], x)},
        outputs={"y": tf.TensorSpec([None], output)},
        **changes,
    )
    folder = kt.export(pipeline, path)
    assert list(check.failures(str(folder))) == []
    return json.loads((folder / METADATA_FILE).read_text())


@pytest.mark.slow
def test_weights_that_enlarge_rounding_have_a_wider_tolerance(tmp_path):
    """A difference of large numbers: moving the weight by 2**-22 of its size moves it by 1e-3."""
    plain = export_checked(tmp_path / "plain", 2.0, lambda w, x: w * x)
    assert plain["tolerance"] == 1e-5
    found = export_checked(tmp_path / "large", 3.0, lambda w, x: w * 4096.0 - 12288.0 + 3 * x)
    assert found["tolerance"] == pytest.approx(4 * 12288 * 2**-22 / 9, rel=0.1)
    with pytest.raises(RuntimeError, match=r"1\.3 of their size.*means nothing.*weights are too"):
        export_checked(tmp_path / "wild", 3.0, lambda w, x: w * 4096e3 - 12288e3 + 3 * x)
    assert not (tmp_path / "wild").exists()


def test_examples_whose_answers_rounding_decides_are_not_stored(tmp_path, caplog):
    def above(w, x):
        return tf.cast(w * x > 6.0, tf.int32)

    examples = [{"x": np.array(rows, np.float32)} for rows in ([1.0, 3.0, 5.0], [], [3.0])]
    found = export_checked(tmp_path / "some", 2.0, above, tf.int32, examples=examples)
    stored = found["signatures"]["serving_default"]["examples"]
    assert [example["inputs"]["x"]["values"] for example in stored] == [[1.0, 5.0], []]
    assert [example["outputs"]["y"]["values"] for example in stored] == [[0, 1], []]
    assert "2 rows of the examples" in caplog.text
    with pytest.raises(RuntimeError, match=r"'serving_default'.* all 1 rows.*other `examples`"):
        export_checked(tmp_path / "none", 2.0, above, tf.int32, examples=examples[2:])
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("new_processes")
def test_a_tampered_answer_is_found_in_a_fresh_process(tmp_path):
    folder = export_doubling(tmp_path)
    metadata = json.loads((folder / METADATA_FILE).read_text())
    example = metadata["signatures"]["serving_default"]["examples"][0]
    example["outputs"]["y"]["values"][0] -= 0.25
    (folder / METADATA_FILE).write_text(json.dumps(metadata))
    with pytest.raises(RuntimeError, match="answers differ from the pipeline's") as error:
        check.self_check(folder)
    lines = str(error.value).splitlines()[1:]
    assert len(lines) == 2
    for line, loader in zip(lines, ("tf.saved_model.load", "V1 session loader"), strict=True):
        assert f"{loader}, signature 'serving_default', example 0, output 'y'" in line
        assert "tolerance 1e-05" in line


def test_weights_of_another_training_fail_the_check(tmp_path):
    folder = export_doubling(tmp_path)
    other = export_doubling(tmp_path, 3.0)
    shutil.copytree(other / "variables", folder / "variables", dirs_exist_ok=True)
    found = list(check.failures(str(folder)))
    assert len(found) == 2
    for failure, loader in zip(found, ("tf.saved_model.load", "V1 session loader"), strict=True):
        assert f"{loader}, signature 'serving_default', example 0, output 'y'" in failure
        assert "-9.0) instead of np.float32(-6.0)" in failure


def test_trap_a_a_module_that_holds_the_keras_model_fails_the_check(tmp_path, monkeypatch):
    """tf.saved_model.load notices nothing; the V1 loader, and so TF Serving, would fail."""
    pipeline = doubling(function=lambda x: {"y": pipeline.model(x[:, None])[:, 0]})

    def export():
        return kt.export(pipeline, tmp_path, check=False)

    assert list(check.failures(str(export()))) == []

    def module_with_the_model(variables, trackables):
        module = tf.Module()
        module.model = pipeline.model
        return module

    monkeypatch.setattr(exporting, "_module", module_with_the_model)
    (failure,) = check.failures(str(export()))
    assert failure.startswith("V1 session loader, signature 'serving_default', example 0: Failed")


def test_a_failed_check_publishes_nothing(tmp_path, monkeypatch):
    def red(folder):
        assert (folder / "saved_model.pb").is_file()
        raise RuntimeError("red")

    monkeypatch.setattr(exporting, "self_check", red)
    with pytest.raises(RuntimeError, match="red"):
        kt.export(doubling(), tmp_path / "base")
    assert os.listdir(tmp_path) == []


def test_what_a_signature_returns_must_be_what_it_declares(tmp_path):
    with pytest.raises(ValueError, match=r"'serving_default' returns .*float32.*declares .*int32"):
        export_doubling(tmp_path, outputs={"y": tf.TensorSpec([None], tf.int32)})
    with pytest.raises(ValueError, match=r"returns .*'y'.*declares .*'z'"):
        export_doubling(tmp_path, outputs={"z": tf.TensorSpec([None], tf.float32)})
    with pytest.raises(ValueError, match=r"shape=\(None,\).*declares.*shape=\(None, 2\)"):
        export_doubling(tmp_path, outputs={"y": tf.TensorSpec([None, 2], tf.float32)})
    assert os.listdir(tmp_path) == []


def test_a_model_that_answers_nan_is_refused(tmp_path):
    with pytest.raises(ValueError, match="output 'y' is not finite"):
        export_doubling(tmp_path, np.nan)
    assert os.listdir(tmp_path) == []


def test_a_variable_left_out_is_an_error(tmp_path):
    stray = tf.Variable(1.0)
    with pytest.raises(AssertionError, match="untracked"):
        export_doubling(tmp_path, function=lambda x: {"y": stray * x})
    assert os.listdir(tmp_path) == []


def test_an_existing_version_stays_as_it_is(tmp_path):
    folder = export_doubling(tmp_path / "4")
    before = {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()}
    with pytest.raises(FileExistsError, match="never overwritten"):
        export_doubling(tmp_path / "4", 3.0)
    assert {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()} == before
    assert export_doubling(tmp_path).name == "5"


def test_another_backend_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match=r"runs on 'jax'.*KERAS_BACKEND=tensorflow"):
        export_doubling(tmp_path)


def test_no_path_of_this_machine_is_in_an_export(exported):
    for file in exported.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert str(exported.parent).encode() not in content, file
            assert os.getcwd().encode() not in content, file
            assert sys.prefix.encode() not in content, file


KILLED = """
import os, signal, sys
from toy import export_doubling
os.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
export_doubling(sys.argv[1])
"""


@pytest.mark.slow
def test_a_kill_just_before_the_end_leaves_no_version(tmp_path):
    process = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), os.getcwd()])},
        capture_output=True,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr.decode()
    (left,) = os.listdir(tmp_path)
    assert left.startswith(".exporting-")
    assert (tmp_path / left / "saved_model.pb").is_file()
    assert export_doubling(tmp_path) == tmp_path / "1"
