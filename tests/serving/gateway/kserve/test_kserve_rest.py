"""KServe v2 over REST."""

import json

import httpx
import numpy as np
import pytest

from keras_transformers.serving.protocol.errors import Code, RequestError
from keras_transformers.serving.protocol.kserve import tensors

LENGTH = "Inference-Header-Content-Length"
TEXTS = {"name": "text", "shape": [2], "datatype": "BYTES", "data": ["ab", "é"]}


def refused(response, status=400):
    assert response.status_code == status, response.text
    assert set(response.json()) == {"error"}
    return response.json()["error"]


def infer(ask, body, model="embedder"):
    return ask(f"/v2/models/{model}/infer", body)


def test_a_server_says_what_it_is_and_whether_it_answers(ask, simple):
    assert set(ask("/v2").json()) == {"name", "version", "extensions"}
    assert ask("/v2/health/live").json() == {"live": True}
    assert ask("/v2/health/ready").json() == {"ready": True}
    assert ask("/v2/models/echo/ready").json() == {"name": "echo", "ready": True}
    assert ask("/v2/models/echo/versions/1/ready").status_code == 200
    assert "no version 2" in refused(ask("/v2/models/echo/versions/2/ready"), 404)
    assert "'nobody'" in refused(ask("/v2/models/nobody/ready"), 404)
    simple.loading.add("echo")
    for path, body in {
        "/v2/health/ready": {"ready": False},
        "/v2/models/echo/ready": {"name": "echo", "ready": False},
    }.items():
        response = ask(path)
        assert (response.status_code, response.json()) == (503, body)
    assert ask("/v2/health/live").status_code == 200


def test_metadata_has_the_default_signature_and_all_others(ask):
    metadata = ask("/v2/models/embedder").json()
    signatures = json.loads(metadata.pop("parameters")["signatures"])
    assert metadata == {
        "name": "embedder",
        "versions": ["1"],
        "platform": "tensorflow_savedmodel",
        "inputs": [{"name": "text", "datatype": "BYTES", "shape": [-1]}],
        "outputs": [{"name": "embedding", "datatype": "FP32", "shape": [-1, 3]}],
    }
    assert set(signatures) == {"serving_default", "query", "tokenize", "__task"}
    assert signatures["__task"]["method_name"] == "embedding"
    assert ask("/v2/models/embedder/versions/1").json()["name"] == "embedder"
    refused(ask("/v2/models/embedder/versions/2"), 404)
    refused(ask("/v2/models/nobody"), 404)


def test_texts_and_numbers_in_json(ask):
    answer = infer(ask, {"id": "7", "inputs": [TEXTS]}).json()
    assert answer == {
        "model_name": "embedder",
        "id": "7",
        "outputs": [
            {
                "name": "embedding",
                "datatype": "FP32",
                "shape": [2, 3],
                "data": [2.0, 1.0, -2.0, 2.0, 1.0, -2.0],
            }
        ],
    }
    query = {"inputs": [TEXTS], "parameters": {"signature_name": "query"}}
    assert infer(ask, query).json()["outputs"][0]["data"][0] == 4.0
    versioned = ask("/v2/models/embedder/versions/1/infer", {"inputs": [TEXTS]}).json()
    assert versioned["model_version"] == "1"
    tokens = {
        "inputs": [TEXTS],
        "parameters": {"signature_name": "tokenize"},
        "outputs": [{"name": "tokens"}, {"name": "num_tokens"}],
    }
    strings, numbers = infer(ask, tokens).json()["outputs"]
    assert strings["data"] == ["[CLS]", "ab", "[SEP]", "[CLS]", "é", "[SEP]"]
    assert numbers == {"name": "num_tokens", "datatype": "INT32", "shape": [2], "data": [3, 3]}


VALUES = {
    "float32": [[0.1, -3e38]],
    "float16": [[0.5, 2.0]],
    "float64": [[0.1, 1e300]],
    "int32": [[-(2**31), 2**31 - 1]],
    "int8": [[-128, 127]],
    "uint64": [[0, 2**64 - 1]],
    "bool": [[True, False]],
    "object": [["é", ""]],
}


def echo(values):
    return {
        name: np.array([[text.encode() for text in row] for row in rows], object)
        if name == "object"
        else np.array(rows, name)
        for name, rows in values.items()
    }


@pytest.mark.parametrize("nested", [False, True])
def test_all_types_come_back_from_json(ask, nested):
    inputs = [
        {
            "name": name,
            "shape": [1, 2],
            "datatype": tensors.datatype(np.dtype(name)),
            "data": rows if nested else rows[0],
        }
        for name, rows in VALUES.items()
    ]
    outputs = infer(ask, {"inputs": inputs}, "echo").json()["outputs"]
    assert {output["name"]: [output["data"]] for output in outputs} == VALUES


def binary(arrays, outputs=(), **parameters):
    parts = {name: tensors.to_binary(array) for name, array in arrays.items()}
    head = {
        "inputs": [
            {
                "name": name,
                "shape": list(array.shape),
                "datatype": tensors.datatype(array.dtype),
                "parameters": {"binary_data_size": len(parts[name])},
            }
            for name, array in arrays.items()
        ],
        "parameters": parameters,
    }
    if outputs:
        head["outputs"] = list(outputs)
    return json.dumps(head).encode(), b"".join(parts.values())


def send(ask, head, tail, size=None, kind="application/octet-stream"):
    return ask(
        "/v2/models/echo/infer",
        head + tail,
        headers={LENGTH: str(len(head) if size is None else size), "Content-Type": kind},
    )


def test_all_types_come_back_as_binary_tensors(ask):
    arrays = echo(VALUES) | {"float32": np.array([[np.nan, -np.inf]], "float32")}
    arrays["object"][0, 0] = b"\xff\x00"
    response = send(ask, *binary(arrays, binary_data_output=True))
    size = int(response.headers[LENGTH])
    left = response.content[size:]
    for output in json.loads(response.content[:size])["outputs"]:
        length = output["parameters"]["binary_data_size"]
        array = tensors.from_binary(left[:length], output["datatype"], output["shape"])
        assert array.dtype == arrays[output["name"]].dtype
        np.testing.assert_array_equal(array, arrays[output["name"]])
        left = left[length:]
    assert not left


def test_each_output_says_its_form(ask):
    wanted = [
        {"name": "int8", "parameters": {"binary_data": True}},
        {"name": "bool", "parameters": {"binary_data": False}},
    ]
    response = send(ask, *binary(echo(VALUES), wanted, binary_data_output=True))
    size = int(response.headers[LENGTH])
    int8, boolean = json.loads(response.content[:size])["outputs"]
    assert response.content[size:] == b"\x80\x7f"
    assert int8["parameters"] == {"binary_data_size": 2}
    assert boolean["data"] == [True, False]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"inputs": []}, "text"),
        ({"inputs": None}, "inputs"),
        ({"inputs": [TEXTS, TEXTS]}, "inputs.1.name"),
        ({"inputs": [TEXTS | {"name": "texts"}]}, "inputs.0.name"),
        ({"inputs": [{"name": "text", "data": ["a"], "datatype": "BYTES"}]}, "inputs.0.shape"),
        ({"inputs": [TEXTS | {"shape": [3]}]}, "inputs.0.data"),
        ({"inputs": [TEXTS | {"shape": [-1]}]}, "inputs.0.data"),
        ({"inputs": [TEXTS | {"shape": [2, 1]}]}, "inputs.0.shape"),
        ({"inputs": [TEXTS | {"shape": [1] * 40}]}, "inputs.0.data"),
        ({"inputs": [TEXTS | {"shape": [10**12, 10**12]}]}, "inputs.0.data"),
        ({"inputs": [TEXTS | {"datatype": "STRING"}]}, "'STRING'"),
        ({"inputs": [TEXTS | {"datatype": "INT32", "data": [1, 2]}]}, "inputs.0.datatype"),
        ({"inputs": [TEXTS | {"data": ["a", 2]}]}, "inputs.0.data"),
        ({"inputs": [TEXTS | {"data": None}]}, "inputs.0.data"),
        ({"inputs": [TEXTS | {"parameters": {"binary_data_size": 4}}]}, "inputs.0.data"),
        ({"inputs": [TEXTS | {"parameters": {"shared_memory_region": "a"}}]}, "shared_memory"),
        ({"outputs": [{"name": "vector"}]}, "outputs.0.name"),
        ({"outputs": [{"name": "embedding", "parameters": {"classification": 2}}]}, "classificat"),
        ({"parameters": {"signature_name": "nothing"}}, "parameters.signature_name"),
        ({"parameters": {"signature_name": "__task"}}, "parameters.signature_name"),
        ({"parameters": {"priority": 1}}, "parameters.priority"),
        ({"id": 7}, "id"),
    ],
)
def test_a_refusal_names_the_field(ask, simple, change, field):
    assert field in refused(infer(ask, {"inputs": [TEXTS]} | change))
    assert not simple.calls


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("FP32", "NaN"),
        ("FP32", "1e39"),
        ("FP32", "true"),
        ("FP32", "1" + "0" * 400),
        ("INT8", "128"),
        ("INT32", "1.5"),
        ("INT32", "true"),
        ("UINT64", "-1"),
        ("BOOL", "1"),
        ("BYTES", "null"),
        ("BYTES", '"\\ud83d"'),
    ],
)
def test_a_value_that_its_type_has_not_is_refused(ask, kind, value):
    tensor = f'{{"name": "x", "shape": [2], "datatype": "{kind}", "data": [{value}, {value}]}}'
    message = refused(ask("/v2/models/echo/infer", f'{{"inputs": [{tensor}]}}'.encode()))
    assert "inputs.0.data" in message
    assert kind in message or "surrogate" in message


def test_binary_tensors_that_do_not_fit_are_refused(ask):
    head, tail = binary(echo(VALUES))
    assert "after the JSON" in refused(send(ask, head, tail + b"!"))
    assert "inputs.7.data" in refused(send(ask, head, tail[:-1]))
    for size in ("99999999", "-1", "1e3", "9" * 5000):
        assert LENGTH in refused(send(ask, head, tail, size))
    assert "JSON" in refused(send(ask, head, tail, size=3))
    assert "JSON" in refused(ask("/v2/models/echo/infer", head + tail))
    strings = echo({"object": VALUES["object"]})
    head, tail = binary(strings)
    assert "element 0" in refused(send(ask, head, b"\xff\xff\xff\x7f" + tail[4:]))


def test_a_request_has_limits_and_the_backend_its_own_errors(ask, simple):
    large = TEXTS | {"data": ["a" * 10_000_000, "b"]}
    assert "1000000 bytes" in refused(infer(ask, {"inputs": [large]}), 413)
    zipped = ask("/v2/models/embedder/infer", b"\x1f\x8b" * 9, headers={"Content-Encoding": "gzip"})
    assert "gzip" in refused(zipped, 415)
    for code, status in {Code.RESOURCE_EXHAUSTED: 429, Code.DEADLINE_EXCEEDED: 504}.items():
        simple.error = RequestError(code, "the reason")
        assert refused(infer(ask, {"inputs": [TEXTS]}), status) == "the reason"
    assert "'nobody'" in refused(infer(ask, {"inputs": [TEXTS]}, "nobody"), 404)


def test_answers_are_those_of_the_client(served, tiny_client):
    texts = ["good film", "a very bad film!"]
    tensor = {"name": "text", "shape": [2], "datatype": "BYTES", "data": texts}
    url = f"{served.url}/v2/models/classification/infer"
    answer = httpx.post(url, json={"inputs": [tensor]}, timeout=120).json()
    labelled = tiny_client.predict({"text": texts}, model="classification")
    for output in answer["outputs"]:
        wanted = labelled[output["name"]]
        array = tensors.from_json(output["data"], output["datatype"], output["shape"])
        np.testing.assert_array_equal(array, wanted)
    assert httpx.get(f"{served.url}/v2/health/ready").status_code == 200
