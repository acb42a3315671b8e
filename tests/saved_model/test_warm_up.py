import shutil
import sys

import pytest
import tensorflow as tf

from keras_transformers.saved_model import warm_up
from keras_transformers.saved_model.description import WARM_UP_FILE, describe
from keras_transformers.saved_model.manifest import Provenance, record
from keras_transformers.saved_model.publishing import publish

prediction_log = pytest.importorskip(
    "tensorflow_serving.apis.prediction_log_pb2",
    reason="needs tensorflow-serving-api: pip install -e .[serving]",
)


@pytest.fixture
def copy(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "sentiment" / "1")


def logs(folder):
    records = tf.data.TFRecordDataset(str(folder / WARM_UP_FILE))
    return [prediction_log.PredictionLog.FromString(r) for r in records.as_numpy_iterator()]


def test_each_signature_gets_a_request_of_each_size(copy, exported):
    assert warm_up.add_warm_up(copy.parent, batch_sizes=(4, 1, 4)) == (copy / WARM_UP_FILE, 8)
    kinds, sizes = [], []
    for log in logs(copy):
        kinds.append(log.WhichOneof("log_type"))
        request = getattr(log, kinds[-1]).request
        assert request.model_spec.name == "sentiment"
        if kinds[-1] == "classify_log":
            assert request.model_spec.signature_name == "classify"
            examples = request.input.example_list.examples
            sizes.append(len(examples))
            (text,) = examples[0].features.feature["text"].bytes_list.value
            assert text == b"A sentence to try the model with."
        else:
            arrays = {name: tf.make_ndarray(proto) for name, proto in request.inputs.items()}
            sizes.append(min(map(len, arrays.values())))
    assert kinds == ["predict_log"] * 4 + ["classify_log"] * 2 + ["predict_log"] * 2
    assert sizes == [1, 4] * 4
    assert describe(copy)["warm_up"]
    # The other files have not changed.
    for file in exported.rglob("*"):
        if file.is_file():
            assert (copy / file.relative_to(exported)).read_bytes() == file.read_bytes()


def test_the_requests_are_answered(copy):
    warm_up.add_warm_up(copy, batch_sizes=(3,))
    signatures = tf.saved_model.load(str(copy)).signatures
    for log in logs(copy)[:2]:
        request = log.predict_log.request
        arrays = {name: tf.constant(tf.make_ndarray(p)) for name, p in request.inputs.items()}
        answer = signatures[request.model_spec.signature_name](**arrays)
        assert answer["label"].shape == (3,)


def write(folder, *records):
    (folder / WARM_UP_FILE).parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(folder / WARM_UP_FILE)) as writer:
        for record in records:
            writer.write(record)


def test_they_are_read_back(copy):
    assert list(warm_up.read_requests(copy)) == []
    warm_up.add_warm_up(copy, batch_sizes=(2,))
    (_, text), (_, tokens), (name, examples), (last, _) = warm_up.read_requests(copy)
    assert text["text"].shape == (2,)
    assert tokens["token_ids"].dtype == "int32"
    assert (name, last) == ("classify", "tokenize")
    example = tf.train.Example.FromString(examples[0])
    assert example.features.feature["text"].bytes_list.value[0].startswith(b"A sentence")


def test_other_peoples_records_are_read(tmp_path):
    log = prediction_log.PredictionLog()
    request = log.multi_inference_log.request
    for signature in ("classify", ""):
        request.tasks.add().model_spec.signature_name = signature
    with_context = request.input.example_list_with_context
    with_context.context.features.feature["a"].int64_list.value.append(1)
    with_context.examples.add().features.feature["b"].int64_list.value.append(2)
    write(tmp_path, log.SerializeToString())
    (first, (example,)), (second, _) = warm_up.read_requests(tmp_path)
    assert (first, second) == ("classify", "serving_default")
    assert set(tf.train.Example.FromString(example).features.feature) == {"a", "b"}


@pytest.mark.parametrize("records", [[b"\xff no message"], None])
def test_damaged_records_are_reported(tmp_path, records):
    if records is None:
        write(tmp_path)
        (tmp_path / WARM_UP_FILE).write_bytes(b"no records at all, and long enough to be read")
    else:
        write(tmp_path, *records)
    with pytest.raises(ValueError, match="not a TFRecord of PredictionLog"):
        list(warm_up.read_requests(tmp_path))


def test_records_of_another_kind_are_reported(tmp_path):
    log = prediction_log.PredictionLog()
    log.session_run_log.request.target.append("t")
    write(tmp_path, log.SerializeToString())
    with pytest.raises(ValueError, match="of the kind session_run_log"):
        list(warm_up.read_requests(tmp_path))


def test_published_with_the_version(exported, tmp_path):
    version = publish(exported, tmp_path / "models" / "film", warm_up=(2,))
    assert {log.predict_log.request.model_spec.name for log in logs(version)[:2]} == {"film"}
    assert not (exported / WARM_UP_FILE).exists()


def test_what_cannot_be(copy, monkeypatch):
    with pytest.raises(ValueError, match=r"batch sizes \[0, 1\]"):
        warm_up.add_warm_up(copy, batch_sizes=(0, 1))
    with pytest.raises(ValueError, match="1336 requests,.*TF.*1000"):
        warm_up.add_warm_up(copy, batch_sizes=range(1, 335))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "tensorflow_serving.apis", None)
        with pytest.raises(ValueError, match=r"pip install keras-transformers\[serving\]"):
            warm_up.add_warm_up(copy)
    assert not (copy / WARM_UP_FILE).exists()
    warm_up.add_warm_up(copy)
    with pytest.raises(FileExistsError, match="publish the export again"):
        warm_up.add_warm_up(copy)


def test_an_export_of_a_manifest_stays_as_it_is(copy):
    record(copy, Provenance("make it", "0" * 40, {}, "data", "licence"))
    with pytest.raises(ValueError, match="manifest.json lists every file of"):
        warm_up.add_warm_up(copy)
    assert not (copy / WARM_UP_FILE).exists()


def test_without_stored_examples_there_are_no_requests(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").write_bytes(b"")
    with pytest.raises(ValueError, match="no stored examples"):
        warm_up.add_warm_up(tmp_path / "1")
