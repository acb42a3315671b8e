"""Whatever arrives, the server gives a sensible answer and keeps giving right ones.

`pytest tests/fuzz --fuzz-seconds 60` searches for a minute with each kind of requests.
"""

import json
import urllib.parse

import grpc
import pytest
from hypothesis import strategies as st
from mutation import search
from tensorflow_serving.apis import predict_pb2, regression_pb2

MODEL = "/v1/models/half_plus_two"
SIGNATURES = [
    "serving_default",
    "rows",
    "named",
    "classify_labels",
    "regress_x_to_y",
    "checked",
    "",
]
PATHS = ["predict", "classify", "regress"]
FINE = {200, 400, 404, 413}  # never an error of the server
OK_CODES = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
}

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.builds(lambda data: {"b64": data}, st.text(max_size=8))
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["x", "tag", "signal", "sensor", "b64", "é"]), inner)
    ),
    max_leaves=12,
)
bodies = st.fixed_dictionaries(
    {},
    optional={
        "signature_name": st.sampled_from(SIGNATURES) | scalars,
        "instances": values | st.lists(values, max_size=4),
        "inputs": values,
        "examples": st.lists(values, max_size=4),
        "context": values,
    },
)


def check_still_right(rest):
    answer = rest.post(f"{MODEL}:predict", content='{"instances": [1.0, 5.0]}')
    assert answer.json() == {"predictions": [2.5, 4.5]}


def test_rest_objects(rest, seconds):
    def check(case):
        body, method = case
        response = rest.post(f"{MODEL}:{method}", content=json.dumps(body))
        assert response.status_code in FINE, response.text
        assert isinstance(json.loads(response.content), dict)  # JSON, with NaN as a number
        check_still_right(rest)

    search("REST objects", st.tuples(bodies, st.sampled_from(PATHS)), check, seconds, examples=30)


def test_rest_bytes(rest, seconds):
    def check(case):
        body, method = case
        response = rest.post(f"{MODEL}:{method}", content=body)
        assert response.status_code in {400, 413}
        assert list(response.json()) == ["error"]

    cases = st.tuples(st.binary(max_size=200), st.sampled_from(PATHS))
    search("REST bytes", cases, check, seconds, examples=30)


def test_rest_paths(rest, seconds):
    def check(case):
        parts, method = case
        path = "/v1/models/" + "/".join(urllib.parse.quote(part, safe="/:%.") for part in parts)
        response = rest.request(method, path)
        assert response.status_code in {400, 404, 405}, response.text

    parts = st.lists(st.text("abc/:%.0129é\x00 ?#", max_size=6), max_size=5)
    methods = st.sampled_from(["GET", "POST", "HEAD", "PUT"])
    search("REST paths", st.tuples(parts, methods), check, seconds, examples=30)


def test_grpc_bytes(channel, seconds):
    """Bytes that are not a message are the client's fault."""

    def check(case):
        data, method = case
        call = channel.unary_unary(method)
        with pytest.raises(grpc.RpcError) as caught:
            call(data, timeout=20)
        assert caught.value.code() in OK_CODES
        assert "server's log" not in (caught.value.details() or "")

    methods = st.sampled_from(
        [
            *(f"/tensorflow.serving.PredictionService/{name}" for name in ("Predict", "Classify")),
            "/tensorflow.serving.PredictionService/Regress",
            *(f"/inference.GRPCInferenceService/Model{name}" for name in ("Infer", "Metadata")),
        ]
    )
    search("gRPC bytes", st.tuples(st.binary(max_size=200), methods), check, seconds, examples=30)


tensors = st.fixed_dictionaries(
    {
        "dtype": st.integers(0, 30),
        "shape": st.lists(st.integers(-1, 2**62) | st.integers(0, 3), max_size=4),
        "content": st.binary(max_size=16),
        "floats": st.lists(st.floats(width=32), max_size=4),
        "strings": st.lists(st.binary(max_size=6), max_size=4),
        "ints": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4),
    }
)


requests = st.fixed_dictionaries(
    {
        "inputs": st.dictionaries(
            st.sampled_from(["x", "tag", "signal", "sensor", "inputs"]), tensors
        ),
        "signature": st.sampled_from(SIGNATURES) | st.text(max_size=5),
        "name": st.sampled_from(["half_plus_two"] * 4 + ["", "nobody"]),
        "filter": st.lists(st.sampled_from(["y", "tag", "nobody"]), max_size=2),
    }
)


def test_grpc_tensors(channel, rest, seconds):
    def check(case):
        request = predict_pb2.PredictRequest(output_filter=case["filter"])
        request.model_spec.name = case["name"]
        request.model_spec.signature_name = case["signature"]
        for key, given_tensor in case["inputs"].items():
            tensor = request.inputs[key]
            tensor.dtype = given_tensor["dtype"]
            tensor.tensor_content = given_tensor["content"]
            tensor.float_val.extend(given_tensor["floats"])
            tensor.string_val.extend(given_tensor["strings"])
            tensor.int_val.extend(given_tensor["ints"])
            for size in given_tensor["shape"]:
                tensor.tensor_shape.dim.add(size=size)
        assert code_of(channel, "Predict", request) in OK_CODES
        check_still_right(rest)

    search("gRPC tensors", requests, check, seconds, examples=30)


def test_grpc_examples(channel, seconds):
    def check(examples):
        request = regression_pb2.RegressionRequest()
        spec = request.model_spec
        spec.name, spec.signature_name = "half_plus_two", "regress_x_to_y"
        for features in examples:
            example = request.input.example_list.examples.add()
            for key, value in features.items():
                example.features.feature[key].bytes_list.value.append(value)
        assert code_of(channel, "Regress", request) in OK_CODES

    features = st.dictionaries(st.sampled_from(["x", "y"]), st.binary(max_size=4))
    search("gRPC examples", st.lists(features), check, seconds, examples=30)


def code_of(channel, method, request):
    call = channel.unary_unary(
        f"/tensorflow.serving.PredictionService/{method}",
        request_serializer=type(request).SerializeToString,
    )
    error = call.future(request, timeout=20).exception()
    if error is None:
        return grpc.StatusCode.OK
    assert "server's log" not in (error.details() or "")
    return error.code()
