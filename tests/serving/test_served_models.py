"""Versions appear, swap and go as their folders do, and no request is lost."""

import ctypes
import platform
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from keras_transformers.saved_model.description import WARM_UP_FILE
from keras_transformers.saved_model.models_config import VersionPolicy
from keras_transformers.serving.protocol.errors import Code, RequestError
from keras_transformers.serving.server import models as served
from keras_transformers.serving.server.models import AVAILABLE, END, Model, Models
from keras_transformers.serving.server.settings import (
    ModelSettings,
    check_models,
    model_settings,
    read_model_config,
)


def answer(model, number=None, label=None):
    """Returns the answer to x = 0, the offset, which tells the version."""
    with model.lease(number, label) as (_, saved_model):
        signature = saved_model.signatures["rows"]
        return saved_model.run(signature, {"x": np.zeros(1, "float32")}, timeout_s=10)["y"][0]


def states(model):
    return {version.number: version.state for version in model.versions()}


def test_a_new_version_takes_over_and_the_old_one_ends(tmp_path, publish):
    publish(tmp_path, 1, 2.0)
    model = Model(ModelSettings("m", tmp_path))
    model.refresh()
    assert answer(model) == 2.0
    with model.lease(None, None) as (version, _):  # a request under way
        publish(tmp_path, 2, 3.0)
        model.refresh()
        assert answer(model) == 3.0
        assert states(model) == {1: served.UNLOADING, 2: AVAILABLE}
        assert version.saved_model is not None
        with pytest.raises(RequestError, match=r"Specific\(m, 1\)"):
            answer(model, 1)
    assert states(model) == {1: END, 2: AVAILABLE}
    assert version.saved_model is None

    shutil.rmtree(tmp_path / "2")  # a rollback: the remaining version is loaded again
    model.refresh()
    assert (answer(model), states(model)) == (2.0, {1: AVAILABLE, 2: END})
    shutil.rmtree(tmp_path / "1")
    model.refresh()
    assert answer(model) == 2.0  # an old version is better than none
    model.close()
    assert states(model) == {1: END, 2: END}


def test_a_version_that_cannot_be_loaded_changes_nothing(tmp_path, publish, monkeypatch):
    publish(tmp_path, 1, 2.0)
    model = Model(ModelSettings("m", tmp_path))
    model.refresh()
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "saved_model.pb").write_bytes(b"no model")
    model.refresh()
    assert (answer(model), states(model)) == (2.0, {1: AVAILABLE, 2: END})
    failed = model.versions()[1]
    assert failed.error is not None
    model.refresh()
    assert failed.attempts == 1  # it waits before the next attempt
    shutil.rmtree(tmp_path / "2")
    publish(tmp_path, 2, 3.0)  # repaired in place
    monkeypatch.setattr(failed, "retry_at", 0.0)
    model.refresh()
    assert (answer(model), states(model)) == (3.0, {1: END, 2: AVAILABLE})


def test_policies_and_labels(tmp_path, publish):
    for number, offset in ((1, 2.0), (2, 3.0), (3, 2.0)):
        publish(tmp_path, number, offset)
    settings = ModelSettings(
        "m", tmp_path, VersionPolicy("specific", versions=(1, 2)), {"stable": 1, "canary": 2}
    )
    model = Model(settings)
    model.refresh()
    assert states(model) == {1: AVAILABLE, 2: AVAILABLE}
    assert (answer(model, label="stable"), answer(model, label="canary")) == (2.0, 3.0)
    assert (answer(model), answer(model, 1)) == (3.0, 2.0)
    with pytest.raises(RequestError, match="Unrecognized servable version label: other"):
        answer(model, label="other")


def request(**inputs):
    message = predict_pb2.PredictRequest()
    message.model_spec.signature_name = "checked"
    for name, value in inputs.items():
        message.inputs[name].CopyFrom(tf.make_tensor_proto(np.float32(value)))
    return message


def write_warm_up(folder, *requests):
    file = folder / WARM_UP_FILE
    file.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for one in requests:
            log = prediction_log_pb2.PredictionLog()
            log.predict_log.request.CopyFrom(one)
            writer.write(log.SerializeToString())


def test_warm_up_requests_are_answered_first(tmp_path, publish, monkeypatch):
    write_warm_up(publish(tmp_path, 1, 2.0), request(x=[4]), request(x=[1, 9]))
    runs = []
    run = served.SavedModel.run
    monkeypatch.setattr(
        served.SavedModel,
        "run",
        lambda self, signature, inputs, **more: (
            runs.append((model.is_ready(), len(inputs["x"])))
            or run(self, signature, inputs, **more)
        ),
    )
    model = Model(ModelSettings("m", tmp_path))
    model.refresh()
    assert runs == [(False, 1), (False, 2)]
    assert model.is_ready()


@pytest.mark.parametrize("requests", [[request(x=[-1])], [request(z=[1])]])
def test_a_version_that_fails_its_warm_up_is_not_served(tmp_path, publish, requests):
    write_warm_up(publish(tmp_path, 1, 2.0), *requests)
    model = Model(ModelSettings("m", tmp_path))
    model.refresh()
    assert states(model) == {1: END}
    failure = model.versions()[0].error.message
    assert failure.startswith(f"{tmp_path / '1' / WARM_UP_FILE}: record 1: ")
    assert "[[" not in failure
    with pytest.raises(RequestError) as caught:
        answer(model)
    assert caught.value.code == Code.NOT_FOUND


def test_a_version_that_fails_in_an_unforeseen_way_changes_nothing(tmp_path, publish, monkeypatch):
    publish(tmp_path, 1, 2.0)
    model = Model(ModelSettings("m", tmp_path))
    model.refresh()

    def broken(saved_model):
        raise MemoryError("no more")

    monkeypatch.setattr(served, "warm_up", broken)
    publish(tmp_path, 2, 3.0)
    model.refresh()
    assert (answer(model), states(model)) == (2.0, {1: AVAILABLE, 2: END})
    failed = model.versions()[1]
    assert (failed.error.code, failed.error.message) == (Code.INTERNAL, "MemoryError: no more")
    assert failed.saved_model is None


def test_a_damaged_warm_up_file_is_reported(tmp_path, publish):
    file = publish(tmp_path, 1, 2.0) / WARM_UP_FILE
    file.parent.mkdir()
    file.write_bytes(b"no records at all, and long enough to be read")
    model = Model(ModelSettings("m", tmp_path))
    model.refresh()
    assert model.versions()[0].error.code == Code.DATA_LOSS


@pytest.mark.slow
def test_requests_under_swaps_are_all_answered(tmp_path, publish, half_plus):
    half_plus(2.0), half_plus(3.0)
    publish(tmp_path, 1, 2.0)
    watching = Models(lambda: [ModelSettings("m", tmp_path)], poll_interval_s=0.02)
    watching.start()
    assert watching.wait_for_first_look(30)
    stop, seen, failed = threading.Event(), set(), []

    def ask():
        while not stop.is_set():
            try:
                seen.add(float(answer(watching["m"])))
            except Exception as error:
                failed.append(error)
                return

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in (2, 3, 4):
        publish(tmp_path, number, 2.0 if number % 2 else 3.0)
        limit = time.monotonic() + 60
        while states(watching["m"]).get(number) != AVAILABLE and time.monotonic() < limit:
            time.sleep(0.01)
    stop.set()
    for thread in threads:
        thread.join()
    watching.close()
    assert (failed, seen) == ([], {2.0, 3.0})
    assert states(watching["m"]) == dict.fromkeys([1, 2, 3, 4], END)


def resident_mib():
    (line,) = [s for s in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in s]
    return int(line.split()[1]) / 1024


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps freed memory")
def test_memory_that_was_freed_is_returned_now_and_then(monkeypatch):
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    pieces = [libc.malloc(64 * 1024) for _ in range(3200)]  # 200 MiB
    for piece in pieces:
        ctypes.memset(piece, 1, 64 * 1024)
    for piece in pieces[:-1]:  # the last one lies above the gap
        libc.free(piece)
    before = resident_mib()
    monkeypatch.setattr(served, "_RETURN_MEMORY_S", 0.0)
    models = Models(list, poll_interval_s=0.001)
    models.start()
    deadline = time.monotonic() + 60
    while resident_mib() > before - 150 and time.monotonic() < deadline:
        time.sleep(0.01)
    models.close()
    assert resident_mib() <= before - 150
    libc.free(pieces[-1])


@pytest.mark.slow
def test_a_changed_config_is_taken_up(tmp_path, publish):
    publish(tmp_path, 1, 2.0)
    config = tmp_path / "models.config"
    entry = 'config {{ name: "{}" base_path: "." {} }}'
    config.write_text(f"model_config_list {{ {entry.format('a', '')} }}")
    models = Models(lambda: read_model_config(config))
    models.refresh()
    with pytest.raises(RequestError, match="label"):
        answer(models["a"], label="stable")
    label = 'version_labels { key: "stable" value: 1 }'
    config.write_text(f"model_config_list {{ {entry.format('a', label)} {entry.format('b', '')} }}")
    models.refresh()
    assert (answer(models["a"], label="stable"), answer(models["b"])) == (2.0, 2.0)
    (tmp_path / "other").mkdir()
    publish(tmp_path / "other", 1, 3.0)
    moved = 'config { name: "a" base_path: "other" }'
    config.write_text(f"model_config_list {{ {moved} {entry.format('b', '')} }}")
    models.refresh()
    assert (answer(models["a"]), answer(models["b"])) == (3.0, 2.0)
    config.write_text("model_config_list { broken")
    models.refresh()
    assert models.names == ["a", "b"]  # a broken file changes nothing
    config.write_text(f"model_config_list {{ {entry.format('b', '')} }}")
    models.refresh()
    assert models.names == ["b"]
    assert answer(models["b"]) == 2.0


@pytest.mark.slow
def test_a_problem_is_logged_once_and_holds_up_no_other_model(tmp_path, publish, caplog):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        publish(tmp_path / name, 1, 2.0)
    readable = True

    class Folder(type(tmp_path)):
        def iterdir(self):
            if not readable:
                raise PermissionError(f"{self}: permission denied")
            return super().iterdir()

    settings = [ModelSettings("a", Folder(tmp_path / "a")), ModelSettings("b", tmp_path / "b")]
    wrong = None

    def read():
        if wrong:
            raise ValueError(wrong)
        return settings

    models = Models(read)
    models.refresh()
    readable, wrong = False, "models.config: broken"
    publish(tmp_path / "b", 2, 3.0)
    for _ in range(3):
        models.refresh()
    wrong = "models.config: broken elsewhere"
    models.refresh()
    assert (answer(models["a"]), answer(models["b"])) == (2.0, 3.0)
    kept = [text for text in caplog.messages if text.startswith("keeping")]
    assert kept == [
        "keeping the current models: models.config: broken",
        f"keeping the current versions of a: {tmp_path / 'a'}: permission denied",
        "keeping the current models: models.config: broken elsewhere",
    ]
    models.close()


@pytest.mark.slow
def test_a_model_answers_until_the_folder_that_it_moves_to_can(tmp_path, publish):
    publish(tmp_path / "old", 1, 2.0)
    (tmp_path / "new" / "1").mkdir(parents=True)
    settings = ModelSettings("m", tmp_path / "old")
    models = Models(lambda: [settings])
    models.refresh()
    settings = ModelSettings("m", tmp_path / "new")
    models.refresh()
    models.refresh()
    assert answer(models["m"]) == 2.0
    publish(tmp_path / "new", 2, 3.0)
    models.refresh()
    assert answer(models["m"]) == 3.0
    models.close()


def test_config_file(tmp_path):
    file = tmp_path / "models.config"
    file.write_text(
        """model_config_list {
  config { name: 'first' base_path: '/tmp/first/' model_platform: 'tensorflow' }
  config {
    name: 'second' base_path: 'here'
    model_version_policy { specific { versions: 42 versions: 43 } }
    version_labels { key: 'stable' value: 42 }
    version_labels { key: 'canary' value: 43 }
  }
  config { name: 'third' base_path: 'x' model_version_policy { latest { num_versions: 2 } } }
  config { name: 'fourth' base_path: 'x' model_version_policy { all {} } }
  config { name: 'fifth' base_path: 'x' model_version_policy { latest {} } }
}"""
    )
    first, second, third, fourth, fifth = read_model_config(file)
    assert (str(first.base_path), first.version_policy) == ("/tmp/first", VersionPolicy())
    assert second.base_path == tmp_path / "here"
    assert second.version_policy.versions == (42, 43)
    assert second.version_labels == {"stable": 42, "canary": 43}
    assert third.version_policy.choose([5, 1, 3]) == [3, 5]
    assert fourth.version_policy.choose([5, 1]) == [1, 5]
    assert fifth.version_policy.choose([5, 1]) == [5]  # as in TF Serving


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model_config_list {}", "no model to serve"),
        ("nonsense", "model config"),
        (
            "config { name: 'a' base_path: 'x' } config { name: 'a' }",
            "name a: give",
        ),
        ("config { name: 'a/b' base_path: 'x' }", "or contain a slash"),
        ("config { name: 'a' model_platform: 'caffe' }", "must be 'tensorflow'"),
        ("config { name: 'a' model_version_policy { specific {} } }", "list at least one"),
        ("config { name: 'a' version_labels { key: ':' value: 1 } }", "a slash or a colon"),
    ],
)
def test_config_files_that_do_not_fit(tmp_path, text, message):
    file = tmp_path / "models.config"
    file.write_text(text if "config {" not in text else f"model_config_list {{ {text} }}")
    with pytest.raises(ValueError, match=message):
        read_model_config(file)


def test_base_paths(tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "saved_model.pb").touch()
    assert model_settings(str(tmp_path)).name == tmp_path.name
    assert model_settings(f"other={tmp_path}") == ModelSettings("other", tmp_path)
    with pytest.raises(ValueError, match="is itself an export: pass"):
        model_settings(str(tmp_path / "7"))
    with pytest.raises(FileNotFoundError, match="no such folder"):
        model_settings("nowhere")
    with pytest.raises(ValueError, match="name a"):
        check_models([ModelSettings("a", tmp_path)] * 2, "here")
