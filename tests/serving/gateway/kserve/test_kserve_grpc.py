"""KServe v2 over gRPC."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import httpx
import numpy as np
import pytest

from keras_transformers.serving import Limits
from keras_transformers.serving.gateway.process import Gateway
from keras_transformers.serving.protocol.errors import Code, RequestError
from keras_transformers.serving.protocol.kserve import tensors
from keras_transformers.serving.protocol.kserve.messages import add_tensor, read_tensor
from keras_transformers.serving.protocol.kserve.service import METHODS, messages, path

ARRAYS = {
    "float32": np.array([[0.1, np.nan]], "float32"),
    "float16": np.array([[0.5, 2.0]], "float16"),
    "float64": np.array([[0.1, 1e300]]),
    "int32": np.array([[-(2**31), 2**31 - 1]], "int32"),
    "int8": np.array([[-128, 127]], "int8"),
    "uint64": np.array([[0, 2**64 - 1]], "uint64"),
    "bool": np.array([[True, False]]),
    "object": np.array([[b"\xff\x00", b""]], object),
}


def caller(address):
    """A function that calls a method with the fields of its request."""
    channel = grpc.insecure_channel(address)

    def call(method, request=None, timeout=60, **fields):
        request = request or getattr(messages(), f"{method}Request")(**fields)
        return channel.unary_unary(
            path(method),
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=getattr(messages(), f"{method}Response").FromString,
        )(request, timeout=timeout)

    return call


@pytest.fixture
def call(arithmetic, simple):
    return caller(arithmetic.grpc)


def inference(model="embedder", inputs=None, *, typed=False, outputs=(), **fields):
    request = messages().ModelInferRequest(model_name=model, **fields)
    inputs = {"text": np.array([b"ab", b"abc"], object)} if inputs is None else inputs
    for name, array in inputs.items():
        add_tensor(request.inputs, name, array, request.raw_input_contents, typed=typed)
    for name in outputs:
        request.outputs.add(name=name)
    return request


def arrays(response):
    return {
        output.name: read_tensor(output, response.raw_output_contents, index)
        for index, output in enumerate(response.outputs)
    }


def refused(call, code, *arguments, **fields):
    with pytest.raises(grpc.RpcError) as error:
        call(*arguments, **fields)
    assert error.value.code() == code, error.value.details()
    return error.value.details()


def test_health_and_metadata(call, simple):
    assert call("ServerLive").live
    assert call("ServerReady").ready
    assert call("ModelReady", name="echo").ready
    assert call("ModelReady", name="echo", version="1").ready
    assert not call("ModelReady", name="echo", version="2").ready
    assert not call("ModelReady", name="nobody").ready
    simple.loading.add("echo")
    assert not call("ServerReady").ready
    assert not call("ModelReady", name="echo").ready
    assert call("ServerMetadata").name == "keras_transformers"
    metadata = call("ModelMetadata", name="embedder")
    assert list(metadata.versions) == ["1"]
    assert [(one.name, one.datatype, list(one.shape)) for one in metadata.outputs] == [
        ("embedding", "FP32", [-1, 3])
    ]
    assert "tokenize" in metadata.parameters["signatures"].string_param
    missing = grpc.StatusCode.NOT_FOUND
    assert "'nobody'" in refused(call, missing, "ModelMetadata", name="nobody")
    assert "no version 2" in refused(call, missing, "ModelMetadata", name="echo", version="2")


def test_a_model_answers(call):
    request = inference(id="7", model_version="1")
    response = call("ModelInfer", request)
    assert (response.model_name, response.model_version, response.id) == ("embedder", "1", "7")
    np.testing.assert_array_equal(arrays(response)["embedding"], [[2, 1, -2], [3, 1, -3]])
    request.parameters["signature_name"].string_param = "tokenize"
    request.outputs.add(name="num_tokens")
    assert arrays(call("ModelInfer", request))["num_tokens"].tolist() == [3, 3]


def test_all_types_come_back_in_the_form_of_the_request(call):
    response = call("ModelInfer", inference("echo", ARRAYS))
    assert len(response.raw_output_contents) == len(ARRAYS)
    answer = arrays(response)
    for name, array in ARRAYS.items():
        assert answer[name].dtype == array.dtype
        np.testing.assert_array_equal(answer[name], array)
    typed = call("ModelInfer", inference(typed=True))
    assert not typed.raw_output_contents
    np.testing.assert_array_equal(arrays(typed)["embedding"], [[2, 1, -2], [3, 1, -3]])


@pytest.mark.parametrize("name", [name for name in ARRAYS if name != "float16"])
def test_each_type_has_a_typed_form(name):
    request = inference("echo", {name: ARRAYS[name]}, typed=True)
    array = read_tensor(request.inputs[0], [], 0)
    assert array.dtype == ARRAYS[name].dtype
    np.testing.assert_array_equal(array, ARRAYS[name])


def broken(change):
    request = inference()
    change(request)
    return request


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda r: r.inputs.pop(), "raw_input_contents"),
        (lambda r: (r.inputs.pop(), r.raw_input_contents.pop()), "lacks text"),
        (lambda r: r.raw_input_contents.append(b""), "raw_input_contents"),
        (lambda r: r.raw_input_contents.__setitem__(0, b"\x09"), "inputs.0"),
        (lambda r: r.inputs[0].contents.bytes_contents.append(b"a"), "contents"),
        (lambda r: setattr(r.inputs[0], "name", "texts"), "inputs.0.name"),
        (lambda r: setattr(r.inputs[0], "datatype", "INT32"), "inputs.0"),
        (lambda r: setattr(r.inputs[0], "datatype", "STRING"), "'STRING'"),
        (lambda r: r.inputs[0].shape.append(1), "inputs.0.shape"),
        (lambda r: r.inputs[0].shape.__setitem__(0, -1), "inputs.0"),
        (lambda r: r.outputs.add(name="vector"), "outputs.0.name"),
        (lambda r: r.parameters["priority"].__setattr__("int64_param", 1), "parameters.priority"),
        (
            lambda r: r.inputs[0].parameters["shared_memory_region"].SetInParent(),
            "inputs.0.parameters.shared_memory_region",
        ),
        (
            lambda r: r.parameters["signature_name"].__setattr__("int64_param", 1),
            "parameters.signature_name",
        ),
    ],
)
def test_a_refusal_names_the_field(call, simple, change, part):
    details = refused(call, grpc.StatusCode.INVALID_ARGUMENT, "ModelInfer", broken(change))
    assert part in details
    assert not simple.calls


def test_values_that_do_not_fit_are_refused(call):
    request = inference("echo", {"int8": np.zeros((1, 2), "int8")}, typed=True)
    request.inputs[0].contents.int_contents[:] = [1, 128]
    assert "INT8" in refused(call, grpc.StatusCode.INVALID_ARGUMENT, "ModelInfer", request)


def test_errors_have_codes(call, simple):
    unknown = inference("nobody")
    assert "'nobody'" in refused(call, grpc.StatusCode.NOT_FOUND, "ModelInfer", unknown)
    simple.error = RequestError(Code.RESOURCE_EXHAUSTED, "the reason")
    busy = grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refused(call, busy, "ModelInfer", inference()) == "the reason"
    large = inference(inputs={"text": np.array([b"a" * 10_000_000], object)})
    refused(call, busy, "ModelInfer", large)


def test_requests_of_both_protocols_share_the_limits(simple):
    busy = grpc.StatusCode.RESOURCE_EXHAUSTED
    simple.holding, limits = True, Limits(max_requests=1, timeout_s=20.0)
    with (
        Gateway(simple, port=0, grpc_port=0, limits=limits) as gateway,
        ThreadPoolExecutor(1) as pool,
    ):
        url, call = f"http://127.0.0.1:{gateway.port}", caller(f"127.0.0.1:{gateway.grpc_port}")
        late = grpc.StatusCode.DEADLINE_EXCEEDED
        held = pool.submit(refused, call, late, "ModelInfer", inference(), timeout=2)
        while not simple.calls and not held.done():
            time.sleep(0.01)
        assert "1 requests are in progress" in refused(call, busy, "ModelInfer", inference())
        assert httpx.post(f"{url}/embed", json={"inputs": "a"}, timeout=15).status_code == 429
        assert call("ServerLive").live  # probes do not count
        held.result()
        assert simple.abandoned.wait(10)
        simple.holding = False
        assert call("ModelInfer", inference()).outputs


def test_a_client_that_leaves_abandons_its_request(call, simple):
    simple.holding = True
    late = grpc.StatusCode.DEADLINE_EXCEEDED
    refused(call, late, "ModelInfer", inference(), timeout=0.3)
    assert simple.abandoned.wait(10)


def test_a_message_that_cannot_be_parsed_is_the_clients_fault(arithmetic, simple):
    method = grpc.insecure_channel(arithmetic.grpc).unary_unary(path("ModelInfer"))
    with pytest.raises(grpc.RpcError) as error:
        method(b"\xff\xff", timeout=30)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_answers_are_those_of_the_client(served, tiny_client):
    call = caller(served.grpc)
    texts = {"text": np.array([b"good film", b"a very bad film!"], object)}
    answer = arrays(call("ModelInfer", inference("classification", texts)))
    for name, array in tiny_client.predict(texts, model="classification").items():
        np.testing.assert_array_equal(answer[name], array)
    assert call("ServerReady").ready


def test_messages_leave_their_names_to_other_packages():
    """Another package's definitions of the same messages can be registered in the process."""
    code = """
from google.protobuf import descriptor_pb2, descriptor_pool
from keras_transformers.serving.protocol.kserve.service import messages
assert messages().ModelInferRequest.DESCRIPTOR.full_name == "inference.ModelInferRequest"
file = descriptor_pb2.FileDescriptorProto(name="grpc_service.proto", package="inference")
file.message_type.add(name="ModelInferRequest").field.add(name="x", number=9, type=9, label=1)
descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_wire_format_is_tritons():
    """Bytes by hand: field number << 3 | wire type, length, content."""
    request = messages().ModelInferRequest(model_name="m", id="7")
    request.parameters["p"].string_param = "v"
    tensor = request.inputs.add(name="t", datatype="BYTES", shape=[1])
    tensor.contents.bytes_contents.append(b"a")
    assert request.SerializeToString() == (
        b"\x0a\x01m\x1a\x017"
        b"\x22\x08\x0a\x01p\x12\x03\x1a\x01v"
        b"\x2a\x12\x0a\x01t\x12\x05BYTES\x1a\x01\x01\x2a\x03\x42\x01a"
    )
    response = messages().ModelInferResponse(raw_output_contents=[b"ab"])
    assert response.SerializeToString() == b"\x32\x02ab"
    assert messages().ModelReadyResponse(ready=True).SerializeToString() == b"\x08\x01"
    assert len(METHODS) == 6
    assert tensors.datatype(None) == ""
