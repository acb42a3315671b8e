"""TF Serving's gRPC services, called with the stubs of tensorflow-serving-api."""

import threading
import types
from unittest import mock

import grpc
import numpy as np
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from keras_transformers.serving.protocol import messages
from keras_transformers.serving.protocol.errors import RequestError
from keras_transformers.serving.server import grpc_server

CODES = grpc.StatusCode


@pytest.fixture(scope="module")
def predictions(channel):
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


@pytest.fixture(scope="module")
def models(channel):
    return model_service_pb2_grpc.ModelServiceStub(channel)


def spec(signature="", name="half_plus_two", **more):
    message = model_pb2.ModelSpec(name=name, signature_name=signature)
    if "version" in more:
        message.version.value = more["version"]
    if "label" in more:
        message.version_label = more["label"]
    return message


def example(**features):
    message = tf.train.Example()
    for name, value in features.items():
        message.features.feature[name].float_list.value.append(value)
    return message


def predict(stub, model_spec, **inputs):
    request = predict_pb2.PredictRequest(model_spec=model_spec)
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return stub.Predict(request, timeout=20)


def refused(code, call, *arguments, **more):
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, **more)
    assert caught.value.code() == code, caught.value.details()
    return caught.value.details()


def test_predict(predictions):
    for more in ({}, {"version": 123}, {"label": "Version_Label"}):
        response = predict(predictions, spec(**more), x=np.float32([1, 2, 5]))
        assert tf.make_ndarray(response.outputs["y"]).tolist() == [2.5, 3.0, 4.5]
        found = response.model_spec
        assert (found.name, found.version.value) == ("half_plus_two", 123)
        assert found.signature_name == "serving_default"


def test_output_filter(predictions):
    request = predict_pb2.PredictRequest(model_spec=spec("named"), output_filter=["total"])
    for name, value in {
        "tag": [b"\xff"],
        "signal": np.int64([[1, 2]]),
        "sensor": np.ones((1, 2, 2), "int64"),
    }.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    response = predictions.Predict(request, timeout=20)
    assert {k: tf.make_ndarray(v).tolist() for k, v in response.outputs.items()} == {"total": [7]}
    request.output_filter.append("total")
    refused(CODES.INVALID_ARGUMENT, predictions.Predict, request, timeout=20)
    request.output_filter[:] = ["nobody"]
    details = refused(CODES.INVALID_ARGUMENT, predictions.Predict, request, timeout=20)
    assert "not found in signature: nobody" in details


def test_classify_regress_and_both(predictions):
    request = classification_pb2.ClassificationRequest(model_spec=spec("classify_labels"))
    request.input.example_list.examples.append(example(x=2.0))
    (row,) = predictions.Classify(request, timeout=20).result.classifications
    assert [(c.label, c.score) for c in row.classes] == [("no", 3.0), ("yes", 2.0)]

    request = regression_pb2.RegressionRequest(model_spec=spec("regress_x_to_y"))
    with_context = request.input.example_list_with_context
    with_context.context.CopyFrom(example(x=80.0))
    with_context.examples.extend([example(), example(x=0.0)])  # the second has its own x
    values = [r.value for r in predictions.Regress(request, timeout=20).result.regressions]
    assert values == [42.0, 2.0]

    both = inference_pb2.MultiInferenceRequest()
    both.tasks.add(model_spec=spec("regress_x_to_y"), method_name="tensorflow/serving/regress")
    both.tasks.add(model_spec=spec("classify_x_to_y"), method_name="tensorflow/serving/classify")
    both.input.example_list.examples.append(example(x=80.0))
    first, second = predictions.MultiInference(both, timeout=20).results
    assert first.regression_result.regressions[0].value == 42.0
    assert second.classification_result.classifications[0].classes[0].score == 42.0
    assert (first.model_spec.version.value, second.model_spec.signature_name) == (
        123,
        "classify_x_to_y",
    )


def test_metadata_and_status(predictions, models):
    request = get_model_metadata_pb2.GetModelMetadataRequest(
        model_spec=spec(), metadata_field=["signature_def"]
    )
    response = predictions.GetModelMetadata(request, timeout=20)
    found = get_model_metadata_pb2.SignatureDefMap()
    response.metadata["signature_def"].Unpack(found)
    assert found.signature_def["rows"].inputs["x"].dtype == tf.float32.as_datatype_enum
    assert response.model_spec.version.value == 123
    request.metadata_field[:] = ["weights"]
    refused(CODES.INVALID_ARGUMENT, predictions.GetModelMetadata, request, timeout=20)
    request.ClearField("metadata_field")
    refused(CODES.INVALID_ARGUMENT, predictions.GetModelMetadata, request, timeout=20)

    status = get_model_status_pb2.GetModelStatusRequest(model_spec=spec())
    (entry,) = models.GetModelStatus(status, timeout=20).model_version_status
    assert (entry.version, entry.state, entry.status.error_code) == (123, entry.AVAILABLE, 0)
    status.model_spec.name = "foo"
    refused(CODES.NOT_FOUND, models.GetModelStatus, status, timeout=20)


def test_a_request_cannot_change_what_is_served(models):
    request = model_management_pb2.ReloadConfigRequest()
    request.config.model_config_list.config.add(name="x", base_path="/etc")
    refused(CODES.UNIMPLEMENTED, models.HandleReloadConfigRequest, request, timeout=20)


def test_health(channel):
    stub = health_pb2_grpc.HealthStub(channel)
    for service in ("", "tensorflow.serving.PredictionService"):
        answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=20)
        assert answer.status == answer.SERVING
    request = health_pb2.HealthCheckRequest(service="nobody")
    refused(CODES.NOT_FOUND, stub.Check, request, timeout=20)


def test_requests_that_do_not_fit(predictions):
    x = np.float32([1])
    no = CODES.INVALID_ARGUMENT
    assert "Latest(foo)" in refused(CODES.NOT_FOUND, predict, predictions, spec(name="foo"), x=x)
    refused(CODES.NOT_FOUND, predict, predictions, spec(version=5), x=x)
    assert "label: nobody" in refused(no, predict, predictions, spec(label="nobody"), x=x)
    refused(no, predict, predictions, spec(name=""), x=x)
    details = refused(CODES.FAILED_PRECONDITION, predict, predictions, spec("nobody"), x=x)
    assert details == 'Serving signature key "nobody" not found.'
    details = refused(no, predict, predictions, spec(), z=x)
    assert "Sent extra: {z}. Missing but required: {x}." in details
    details = refused(no, predict, predictions, spec(), x=np.int32([1]))
    assert details == 'input "x" is of type int32, expected float32'
    refused(no, predict, predictions, spec("rows"), x=np.float32([[1]]))
    assert "65 rows" in refused(no, predict, predictions, spec("rows"), x=np.zeros(65, "float32"))
    refused(no, predict, predictions, spec("regress_x_to_y"), inputs=[b"no example"])
    refused(no, predictions.Regress, regression_pb2.RegressionRequest(model_spec=spec()))
    request = regression_pb2.RegressionRequest(model_spec=spec("regress_x_to_y"))
    assert "input is empty" in refused(no, predictions.Regress, request)
    refused(no, predictions.MultiInference, inference_pb2.MultiInferenceRequest())
    both = inference_pb2.MultiInferenceRequest()
    both.tasks.add(model_spec=spec("regress_x_to_y"), method_name="tensorflow/serving/predict")
    refused(CODES.UNIMPLEMENTED, predictions.MultiInference, both)
    both.tasks.add(model_spec=spec("regress_x_to_y"))
    assert "Duplicate" in refused(no, predictions.MultiInference, both)


def test_tensors_that_lie_about_their_size(predictions):
    request = predict_pb2.PredictRequest(model_spec=spec())
    tensor = request.inputs["x"]
    tensor.dtype = tf.float32.as_datatype_enum
    tensor.float_val.append(1.0)
    for sizes in ([2**40, 2**40], [10**9], [-1], [1] * 40):
        tensor.tensor_shape.ClearField("dim")
        for size in sizes:
            tensor.tensor_shape.dim.add(size=size)
        refused(CODES.INVALID_ARGUMENT, predictions.Predict, request, timeout=20)
    tensor.tensor_shape.ClearField("dim")
    tensor.tensor_shape.dim.add(size=3)
    response = predictions.Predict(request, timeout=20)  # one value stands for all three
    assert tf.make_ndarray(response.outputs["y"]).tolist() == [2.5, 2.5, 2.5]
    tensor.tensor_content = b"123"
    refused(CODES.INVALID_ARGUMENT, predictions.Predict, request, timeout=20)


def test_a_shape_of_very_many_dimensions_is_refused_at_once(predictions):
    """Their product has millions of digits, and computing it would stop every other request."""
    request = predict_pb2.PredictRequest(model_spec=spec())
    shape = request.inputs["x"].tensor_shape
    shape.dim.extend([type(shape).Dim(size=2**62)] * 300)
    details = refused(CODES.INVALID_ARGUMENT, predictions.Predict, request, timeout=20)
    assert details == 'input "x" has 300 dimensions, more than 16'
    shape.dim.extend(list(shape.dim) * 399)  # the server's limit on messages is lower
    with pytest.raises(RequestError, match="120000 dimensions"):
        messages.to_array("x", request.inputs["x"])


def test_a_short_message_cannot_ask_for_much_memory(predictions):
    """One value may stand for many, but not in unknown inputs, and not if it is a long string."""
    request = predict_pb2.PredictRequest(model_spec=spec("text"))
    for index in range(1000):  # 4 GB if each became an array
        tensor = request.inputs[f"x{index}"]
        tensor.dtype = tf.float32.as_datatype_enum
        tensor.tensor_shape.dim.add(size=10**6)
        tensor.float_val.append(1.0)
    details = refused(CODES.INVALID_ARGUMENT, predictions.Predict, request, timeout=20)
    assert "input size does not match signature: 1000!=1" in details
    request.ClearField("inputs")
    tensor = request.inputs["text"]
    tensor.dtype = tf.string.as_datatype_enum
    tensor.tensor_shape.dim.add(size=60)
    tensor.string_val.append(b"x" * 100_000)
    details = refused(CODES.INVALID_ARGUMENT, predictions.Predict, request, timeout=20)
    assert details == 'input "text" repeats its last string up to 5900000 bytes'


@pytest.mark.parametrize("count", [30, 3000])
def test_a_context_cannot_be_multiplied_without_bound(predictions, count):
    """The context is merged into each example, so a short message can make a large tensor."""
    request = regression_pb2.RegressionRequest(model_spec=spec("regress_x_to_y"))
    merged = request.input.example_list_with_context
    merged.context.features.feature["long"].bytes_list.value.append(b"x" * 100_000)
    merged.examples.extend([example(x=1.0)] * count)
    if count == 30:
        assert len(predictions.Regress(request, timeout=20).result.regressions) == count
    else:
        details = refused(CODES.INVALID_ARGUMENT, predictions.Regress, request, timeout=20)
        assert details.startswith("the context of 3000 examples takes 300")


def test_very_many_tasks_are_checked_in_one_pass():
    """Comparing each name with every other would take minutes for what fits into a message."""
    compared = 0

    class Name(str):
        __hash__ = str.__hash__

        def __eq__(self, other):
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    names = [Name(index) for index in range(2000)] + [Name(17)]
    specs = [types.SimpleNamespace(signature_name=name) for name in names]
    both = types.SimpleNamespace(tasks=[types.SimpleNamespace(model_spec=each) for each in specs])
    with pytest.raises(RequestError, match="Duplicate evaluation of signature: 17"):
        messages.multi_inference(None, both, None)
    assert 0 < compared < 10 * len(names)


def test_calls_whose_messages_never_come_keep_nobody_out(server, channel, predictions, monkeypatch):
    """Probes and requests get through; what has waited longest for its message is ended."""
    monkeypatch.setattr(grpc_server, "_GRACE_S", 0.1)
    stop, done = threading.Event(), threading.Semaphore(0)

    def silence():
        stop.wait(60)
        yield from ()

    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", options) as other:
        call = other.stream_unary("/tensorflow.serving.PredictionService/Predict")
        calls = [call.future(silence()) for _ in range(50)]
        for each in calls:
            each.add_done_callback(lambda _: done.release())
        most = 50 - server.engine.limits.max_requests
        assert all(done.acquire(timeout=20) for _ in range(most))
        health = health_pb2_grpc.HealthStub(channel)
        for _ in range(10):
            assert health.Check(health_pb2.HealthCheckRequest(), timeout=20).status == 1
            assert predict(predictions, spec(), x=np.float32([1])).outputs["y"].float_val == [2.5]
        ended = [each.code() for each in calls if each.done()]
        assert most <= len(ended) <= most + 1  # one more, if a request made a crowd of those left
        assert set(ended) == {CODES.CANCELLED, CODES.RESOURCE_EXHAUSTED}
        stop.set()


class Clock:
    """Stands in for threading.Timer and time.monotonic."""

    def __init__(self):
        self.now, self.timers = 100.0, []

    def monotonic(self):
        return self.now

    def Timer(self, seconds, function):
        self.timers.append((self.now + seconds, function))
        return mock.Mock()

    def go_to(self, now):
        self.now = now
        due = [each for each in self.timers if each[0] <= now]
        self.timers = [each for each in self.timers if each[0] > now]
        for _, function in due:
            function()


def test_a_crowd_of_calls_without_messages_has_one_timer(monkeypatch):
    """A timer is a thread: one for each call would be thousands under load."""
    clock = Clock()
    monkeypatch.setattr(grpc_server.time, "monotonic", clock.monotonic)
    monkeypatch.setattr(grpc_server.threading, "Timer", clock.Timer)
    arrivals, stop = grpc_server._Arrivals(2), threading.Event()
    begun = threading.Semaphore(0)

    def silence():
        begun.release()
        stop.wait(20)
        yield from ()

    contexts = [mock.Mock() for _ in range(4)]
    threads = [threading.Thread(target=arrivals._receive, args=(silence(), c)) for c in contexts]
    for thread in threads:
        thread.start()
        assert begun.acquire(timeout=20)
        for _ in range(30):
            assert arrivals._receive(iter([b"message"]), object()) == b"message"
        assert len(clock.timers) <= 1
        clock.go_to(clock.now + 0.3)
    clock.go_to(102.5)
    assert [each.cancel.called for each in contexts] == [True, True, False, False]
    assert not clock.timers
    stop.set()
    for thread in threads:
        thread.join(20)
    assert not arrivals._waiting


def test_there_is_no_watch_of_health(server, channel, predictions):
    """Each would hold one of the calls that may be under way for as long as its client likes."""
    stub = health_pb2_grpc.HealthStub(channel)
    calls = [stub.Watch(health_pb2.HealthCheckRequest(), timeout=20) for _ in range(40)]
    assert {call.code() for call in calls} <= {CODES.UNIMPLEMENTED, CODES.RESOURCE_EXHAUSTED}
    predict(predictions, spec(), x=np.float32([1]))


def test_messages_that_cannot_be_parsed_log_one_line(channel, caplog):
    for service, method in (
        ("tensorflow.serving.PredictionService", "Predict"),
        ("tensorflow.serving.ModelService", "GetModelStatus"),
        ("grpc.health.v1.Health", "Check"),
    ):
        call = channel.unary_unary(f"/{service}/{method}")
        for _ in range(50):
            details = refused(CODES.INVALID_ARGUMENT, call, b"\x0a\xff", timeout=20)
            assert details == f"/{service}/{method}: the message cannot be parsed"
    assert len(caplog.records) <= 1 + 150 // 10  # one in ten seconds
    assert not any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_what_comes_out_of_a_compressed_message_is_limited(server, compression):
    address = f"127.0.0.1:{server.grpc_port}"
    with grpc.insecure_channel(address, compression=compression) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        response = predict(stub, spec(), x=np.zeros((1, 40_000), "float32"))
        assert tf.make_ndarray(response.outputs["y"]).shape == (1, 40_000)
        big = np.zeros((1, 10**6), "float32")
        refused(CODES.RESOURCE_EXHAUSTED, predict, stub, spec(), x=big)


def test_messages_count_as_held(server, predictions):
    with server.engine.slot(server.engine.limits.max_held_bytes - 1000):
        refused(
            CODES.RESOURCE_EXHAUSTED, predict, predictions, spec(), x=np.zeros((1, 300), "float32")
        )
        predict(predictions, spec(), x=np.float32([1.0]))


def test_a_message_beyond_the_limit_is_refused(predictions):
    big = np.zeros((1, 60_000), "float32")
    refused(CODES.RESOURCE_EXHAUSTED, predict, predictions, spec(), x=big)


@pytest.mark.parametrize("character", ["x", "\N{GRINNING FACE}"])
def test_an_error_that_quotes_a_long_name_is_cut(predictions, character):
    """Details travel in a header; if it is too long, grpc fails the call with another code."""
    label = character * 20_000
    details = refused(CODES.INVALID_ARGUMENT, predict, predictions, spec(label=label), x=[1.0])
    assert details.startswith(f"Unrecognized servable version label: {character}")
    assert 1990 < len(details.encode()) <= 2000


def test_a_deadline_is_kept(predictions):
    request = predict_pb2.PredictRequest(model_spec=spec("spin"))
    request.inputs["loops"].CopyFrom(tf.make_tensor_proto(np.int32([10**9])))
    refused(CODES.DEADLINE_EXCEEDED, predictions.Predict, request, timeout=0.4)
    # The run was stopped too, so the two workers are free for the next.
    for _ in range(3):
        response = predict(predictions, spec("spin"), loops=np.int32([1]))
        assert tf.make_ndarray(response.outputs["done"]).tolist() == [1.0]
