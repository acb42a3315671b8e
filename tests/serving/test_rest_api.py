"""TF Serving's REST API documentation and the tests of its HTTP handler, as tests of our server.

tensorflow_serving/g3doc/api_rest.md and model_servers/http_rest_api_handler_test.cc.
"""

import contextlib
import gzip
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from keras_transformers.serving.server import rest as rest_api

MODEL = "/v1/models/half_plus_two"
METRICS = "/monitoring/prometheus/metrics"


def post(rest, path, body, status=200):
    content = body if isinstance(body, str | bytes) else json.dumps(body)
    response = rest.post(path, content=content)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    return response.json()


def test_status_as_documented(rest):
    expected = {
        "model_version_status": [
            {
                "version": "123",
                "state": "AVAILABLE",
                "status": {"error_code": "OK", "error_message": ""},
            }
        ]
    }
    for path in (f"{MODEL}/versions/123", f"{MODEL}/labels/Version_Label"):
        response = rest.get(path)
        assert (response.status_code, response.json()) == (200, expected)
    # The model's own path is one of OpenAI's API too.
    card = {"object": "model", "created": 0, "owned_by": "keras_transformers"}
    response = rest.get(MODEL)
    assert response.json() == {**expected, "id": "half_plus_two", **card}


def test_predict_in_rows_as_documented(rest):
    answer = post(rest, f"{MODEL}:predict", '{"instances": [1.0,2.0,5.0]}')
    assert answer == {"predictions": [2.5, 3.0, 4.5]}
    answer = post(rest, f"{MODEL}:predict", '{"instances": [[1.0, 2.0], [3.0, 4.0]]}')
    assert answer == {"predictions": [[2.5, 3.0], [3.5, 4.0]]}


@pytest.mark.parametrize("where", ["/versions/123", "/labels/Version_Label", ""])
def test_predict_of_a_version_or_label(rest, where):
    body = {"signature_name": "serving_default", "instances": [3.0, 4.0]}
    assert post(rest, f"{MODEL}{where}:predict", body) == {"predictions": [3.5, 4.0]}
    body = {"signature_name": "serving_default", "inputs": [3.0, 4.0]}
    assert post(rest, f"{MODEL}{where}:predict", body) == {"outputs": [3.5, 4.0]}


def test_several_inputs_in_rows_and_columns_as_documented(rest):
    rows = [
        {"tag": "foo", "signal": [1, 2, 3, 4, 5], "sensor": [[1, 2], [3, 4]]},
        {"tag": "bar", "signal": [3, 4, 1, 2, 5], "sensor": [[4, 5], [6, 8]]},
    ]
    answer = post(rest, f"{MODEL}:predict", {"signature_name": "named", "instances": rows})
    assert answer == {
        "predictions": [
            {"tag": "foo", "tag_bytes": {"b64": "Zm9v"}, "total": 25},
            {"tag": "bar", "tag_bytes": {"b64": "YmFy"}, "total": 38},
        ]
    }
    columns = {
        "tag": ["foo", "bar"],
        "signal": [[1, 2, 3, 4, 5], [3, 4, 1, 2, 5]],
        "sensor": [[[1, 2], [3, 4]], [[4, 5], [6, 8]]],
    }
    answer = post(rest, f"{MODEL}:predict", {"signature_name": "named", "inputs": columns})
    assert answer == {
        "outputs": {
            "tag": ["foo", "bar"],
            "tag_bytes": [{"b64": "Zm9v"}, {"b64": "YmFy"}],
            "total": [25, 38],
        }
    }


def test_binary_values_as_documented(rest):
    row = {"signal": [1], "sensor": [[0, 0], [0, 0]]}
    rows = [row | {"tag": {"b64": "aW1hZ2UgYnl0ZXM="}}, row | {"tag": {"b64": "/w=="}}]
    answer = post(rest, f"{MODEL}:predict", {"signature_name": "named", "instances": rows})
    found = [(p["tag"], p["tag_bytes"]["b64"]) for p in answer["predictions"]]
    assert found == [("image bytes", "aW1hZ2UgYnl0ZXM="), ("\N{REPLACEMENT CHARACTER}", "/w==")]


def test_regress_as_documented(rest):
    body = '{"signature_name": "regress_x_to_y", "examples": [{"x": 1.0}, {"x": 2.0}]}'
    assert post(rest, f"{MODEL}:regress", body) == {"results": [2.5, 3.0]}
    body = {"signature_name": "regress_x_to_y", "examples": [{"x": 80.0}]}
    for where in ("", "/versions/123", "/labels/Version_Label"):
        assert post(rest, f"{MODEL}{where}:regress", body) == {"results": [42]}


def test_classify_as_documented(rest):
    body = {"signature_name": "classify_x_to_y", "examples": [{"x": 20.0}]}
    assert post(rest, f"{MODEL}:classify", body) == {"results": [[["", 12]]]}
    body = {
        "signature_name": "classify_labels",
        "context": {"x": 0.2},
        "examples": [{}, {"x": 2.0}],
    }
    assert post(rest, f"{MODEL}:classify", body) == {
        "results": [[["no", 2.1], ["yes", 0.2]], [["no", 3.0], ["yes", 2.0]]]
    }


def test_metadata(rest):
    answer = rest.get(f"{MODEL}/metadata").json()
    assert answer["model_spec"] == {
        "name": "half_plus_two",
        "signature_name": "",
        "version": "123",
    }
    signatures = answer["metadata"]["signature_def"]["signature_def"]
    rows = signatures["rows"]
    assert rows["method_name"] == "tensorflow/serving/predict"
    x = rows["inputs"]["x"]
    assert (x["dtype"], x["tensor_shape"]["dim"]) == ("DT_FLOAT", [{"size": "-1", "name": ""}])
    assert signatures["regress_x_to_y"]["method_name"] == "tensorflow/serving/regress"
    for where in ("versions/123", "labels/Version_Label"):
        assert rest.get(f"{MODEL}/{where}/metadata").json() == answer
    assert rest.get(f"{MODEL}/versions/5/metadata").status_code == 404


def test_an_unknown_model_is_not_found_as_documented(rest):
    answer = post(rest, "/v1/models/half:predict", '{"instances": [1.0,5.0]}', 404)
    assert answer == {"error": "Servable not found for request: Latest(half)"}
    for path in ("/v1/models/foo/versions/50:predict", f"{MODEL}99:predict"):
        post(rest, path, {"instances": [1]}, 404)
    answer = post(rest, f"{MODEL}/versions/99:predict", {"instances": [1]}, 404)
    assert answer["error"] == "Servable not found for request: Specific(half_plus_two, 99)"
    assert rest.get("/v1/models/foo").status_code == 404
    assert rest.get(f"{MODEL}/versions/7").status_code == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/foo"),
        ("POST", "/v1/foo"),
        ("GET", "/v1/models/debug/model_name"),
        ("GET", "/v1/models/foo:predict"),
        ("GET", "/v1/models/foo/version/50:predict"),
        ("POST", "/v1/models/foo/version/50:regress"),
        ("POST", "/v1/models/foo/versions/HELLO:regress"),
        ("POST", "/v1/models/foo/metadata"),
        ("POST", "/v1/models/foo/label/some_label:regress"),
        ("POST", "/v1/models/foo/versions/50/labels/some_label:regress"),
        ("PUT", "/v1/models/half_plus_two:predict"),
        ("DELETE", "/v1/models/half_plus_two"),
        ("GET", "/v1/models/..%2f..%2fetc%2fpasswd/x"),
    ],
)
def test_malformed_requests(rest, method, path):
    response = rest.request(method, path)
    assert response.status_code == 400
    assert response.json()["error"].startswith(f"Malformed request: {method} /v1/")


def test_other_paths_and_odd_versions(rest):
    assert rest.post("/v1/models").json()["error"] == "Method Not Allowed: POST /v1/models"
    assert rest.get("/index").status_code == 404
    for version in (2**64 - 1, 2**63, "9" * 5000):
        answer = post(rest, f"/v1/models/foo/versions/{version}:regress", "", 400)
        assert "Failed to convert version" in answer["error"]
    assert rest.get(f"{MODEL}/versions/{'0' * 5000}123").status_code == 200
    assert rest.get(f"{MODEL}/versions/{2**63 - 1}").status_code == 404
    assert rest.get("/V1/Models/half_plus_two").status_code == 200  # TF Serving ignores case
    assert rest.get("/v1/models/..%2f..%2fetc").status_code == 404
    answer = post(rest, f"{MODEL}/labels/nobody:predict", {"instances": ["x", "y"]}, 400)
    assert "Unrecognized servable version label" in answer["error"]
    assert post(rest, f"{MODEL}/labels/gone:predict", {"instances": [1]}, 404)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "JSON Parse error: The document is empty"),
        ("instances = [1, 2]", "JSON Parse error: Invalid value"),
        (b'{"instances": "\xff"}', "JSON Parse error"),
        ("[1]", "Is not object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"inputs": ' + "[" * 900 + "]" * 900 + "}", "nested"),
        ('{"instances": [' + "9" * 5000 + "]}", "JSON Parse error"),
        ({"instances": ["x", "y"]}, "not of expected type: float"),
        ({"instances": [True]}, "not of expected type: float"),
        ({"instances": [None]}, "Type: Null is not of expected type: float"),
        ({"signature_name": 100}, "'signature_name' key must be a string value."),
        ({"signature_name": "nobody", "inputs": 1}, 'Serving signature name: "nobody" not found'),
        ({}, "Missing 'inputs' or 'instances' key"),
        ({"instances": [1], "inputs": [1]}, "only one of 'inputs' or 'instances'"),
        ({"instances": []}, "No values in 'instances' array"),
        ({"instances": 1}, "Excepting 'instances' to be an list/array"),
        ({"signature_name": "rows", "inputs": 1.0}, 'input "x" is of shape [], expected [?]'),
        ({"signature_name": "rows", "instances": [1] * 65}, "65 rows in one request"),
        ({"signature_name": "checked", "instances": [-1]}, "did not hold element-wise"),
        ({"signature_name": "number", "instances": ["one"]}, "could not correctly convert"),
        ({"signature_name": "number", "instances": [{"b64": "/w=="}]}, "the graph rejected"),
    ],
)
def test_requests_that_do_not_fit(rest, body, message):
    error = post(rest, f"{MODEL}:predict", body, 400)["error"]
    assert message in error
    assert "File " not in error  # no stack trace of the graph's program


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"examples": [{"x": 1.0}]}, "Expected classification signature method_name"),
        ({"signature_name": "nobody", "examples": []}, "No signature was found with the name"),
        ({}, "Expected classification signature"),
        ({"signature_name": "classify_x_to_y"}, "key 'examples' is expected and was not found"),
        ({"signature_name": "classify_x_to_y", "examples": {}}, "to be an list/array"),
        ({"signature_name": "classify_x_to_y", "examples": []}, "is an empty array"),
        ({"signature_name": "classify_x_to_y", "examples": [3]}, "Example must be JSON object"),
        ({"signature_name": "classify_x_to_y", "examples": [{"x": [1, "a"]}]}, "expecting type"),
        ({"signature_name": "classify_x_to_y", "examples": [{"x": [[1]]}]}, "JSON type: Array"),
        ({"signature_name": "classify_x_to_y", "examples": [{"x": None}]}, "JSON type: Null"),
        ({"signature_name": "classify_x_to_y", "examples": [{"x": "text"}]}, "x"),
        ({"signature_name": "classify_x_to_y", "examples": [{"x": 2**64}]}, "uint64"),
    ],
)
def test_examples_that_do_not_fit(rest, body, message):
    assert message in post(rest, f"{MODEL}:classify", body, 400)["error"]


def test_a_context_cannot_be_multiplied_without_bound(rest):
    body = {"signature_name": "classify_x_to_y", "context": {"long": "x" * 100_000}}
    body["examples"] = [{"x": 1.0}] * 30
    assert len(post(rest, f"{MODEL}:classify", body)["results"]) == 30
    body["examples"] = [{}] * 3000
    error = post(rest, f"{MODEL}:classify", body, 400)["error"]
    assert error.startswith("the context of 3000 examples takes 300")


def test_a_body_beyond_the_limit_is_refused(rest):
    answer = post(rest, f"{MODEL}:predict", " " * 200_001, 413)
    assert answer == {"error": "the body is larger than 200000 bytes"}

    def chunks():
        for _ in range(5):
            yield b" " * 50_000

    response = rest.post(f"{MODEL}:predict", content=chunks())  # sends no length in advance
    assert response.status_code == 413


def test_a_compressed_body(rest):
    """TF Serving takes gzip too."""
    body = gzip.compress(b'{"instances": [1.0, 2.0]}')
    headers = {"Content-Encoding": "gzip"}
    response = rest.post(f"{MODEL}:predict", content=body, headers=headers)
    assert (response.status_code, response.json()) == (200, {"predictions": [2.5, 3.0]})
    for damaged in (b"", b'{"instances": [1.0]}', body[:-4], body + body):
        response = rest.post(f"{MODEL}:predict", content=damaged, headers=headers)
        assert response.status_code == 400
        assert "gzip" in response.json()["error"]


def test_what_comes_out_of_a_compressed_body_is_limited(rest):
    for size, status in ((200_000, 400), (200_001, 413), (10**7, 413)):
        content = gzip.compress(b" " * size)
        assert len(content) < 200_000
        headers = {"Content-Encoding": "gzip"}
        response = rest.post(f"{MODEL}:predict", content=content, headers=headers)
        assert response.status_code == status
    assert response.json() == {"error": "the body is larger than 200000 bytes"}


def test_what_comes_out_of_a_compressed_body_counts_as_held(server, rest):
    content, headers = gzip.compress(b" " * 200_000), {"Content-Encoding": "gzip"}
    with server.engine.slot(server.engine.limits.max_held_bytes - 200_000):
        response = rest.post(f"{MODEL}:predict", content=content, headers=headers)
        assert response.status_code == 429
        assert response.json()["error"].startswith("the requests in progress have 3000000 bytes")
        assert post(rest, f"{MODEL}:predict", {"instances": [1.0]}) == {"predictions": [2.5]}
    lying = content[:-4] + b"\1\0\0\0"
    response = rest.post(f"{MODEL}:predict", content=lying, headers=headers)
    assert response.status_code == 400
    assert "not exactly one gzip stream" in response.json()["error"]  # it read no further


def test_few_large_bodies_are_parsed_at_a_time(rest, monkeypatch):
    parse, lock, parsing, most = rest_api.parse, threading.Lock(), 0, 0

    def counted(body):
        nonlocal parsing, most
        with lock:
            parsing += 1
            most = max(most, parsing)
        time.sleep(0.05)
        document = parse(body)
        with lock:
            parsing -= 1
        return document

    monkeypatch.setattr(rest_api, "parse", counted)
    monkeypatch.setattr(rest_api, "_LARGE", 100)
    for size, expected in ((100, range(1, 3)), (0, range(3, 7))):
        most = 0
        body = b'{"instances": [1.0]' + b" " * size + b"}"
        with ThreadPoolExecutor(6) as pool:
            for _ in pool.map(lambda _, body=body: post(rest, f"{MODEL}:predict", body), range(6)):
                pass
        assert most in expected


@pytest.mark.parametrize("encoding", ["deflate", "br", "gzip, gzip"])
def test_another_compression_is_refused(rest, encoding):
    headers = {"Content-Encoding": encoding}
    response = rest.post(f"{MODEL}:predict", content=b"{}", headers=headers)
    assert response.status_code == 415
    expected = f"Content-Encoding: {encoding} is not supported; use gzip or none"
    assert response.json() == {"error": expected}


def exchange(server, data):
    """Sends bytes; returns the answer's status and JSON."""
    with socket.create_connection(("127.0.0.1", server.rest_port), timeout=20) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(10_000):
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head
    return int(head.split()[1]), json.loads(body or b"{}")


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (f"GET {MODEL}%0ax HTTP/1.1", 404),
        ("GET /a%0ab HTTP/1.1", 404),
        ("OPTIONS * HTTP/1.1", 404),
        ("CONNECT localhost:80 HTTP/1.1", 404),
        (f"HEAD {MODEL} HTTP/1.1", 400),
        (f"FROB {MODEL} HTTP/1.1", 400),
        (f"GET http://localhost{MODEL} HTTP/1.1", 200),
        (f"GET HTTP://127.0.0.1:1{MODEL}?x HTTP/1.1", 200),
        ("GET http://localhost HTTP/1.1", 404),
        (f"GET http://evil.example{MODEL} HTTP/1.1", 403),
        (f"GET http://user@localhost{MODEL} HTTP/1.1", 403),
        ("no HTTP", 400),
    ],
)
def test_every_answer_is_json(server, line, status):
    found, answer = exchange(server, f"{line}\r\nHost: localhost\r\n\r\n".encode())
    assert found == status
    name = "model_version_status" if status == 200 else "error"
    assert line.startswith("HEAD") or next(iter(answer)) == name


def test_a_body_that_does_not_arrive_holds_no_slot(server, rest):
    """Neither do heads that do not arrive keep probes and requests out."""
    head = f"POST {MODEL}:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx"
    with contextlib.ExitStack() as stack:
        for data in [head] * 2 * server.engine.limits.max_requests + ["GET /v1/mod"] * 300:
            address = ("127.0.0.1", server.rest_port)
            connection = stack.enter_context(socket.create_connection(address, timeout=20))
            connection.sendall(data.encode())
        for _ in range(3):
            assert rest.get(MODEL).status_code == 200
            assert rest.get(METRICS).status_code == 200
            answer = post(rest, f"{MODEL}:predict", {"instances": [1.0]})
            assert answer == {"predictions": [2.5]}


def test_a_client_that_leaves_is_not_an_error_of_the_server(server, rest):
    head = f"POST {MODEL}:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx"
    with socket.create_connection(("127.0.0.1", server.rest_port), timeout=20) as connection:
        connection.sendall(head.encode())
    counted = ':tensorflow:serving:request_count_total{model_name="",status="%s"}'
    deadline = time.monotonic() + 20
    while counted % "CANCELLED" not in (page := rest.get(METRICS).text):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert counted % "INTERNAL" not in page


def test_metrics(rest):
    post(rest, f"{MODEL}:predict", {"signature_name": "rows", "instances": [1.0]})
    post(rest, "/v1/models/nobody_ever:predict", {"instances": [1]}, 404)
    response = rest.get(METRICS)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain")
    page = response.text
    assert ':tensorflow:serving:request_count_total{model_name="half_plus_two",status="OK"}' in page
    assert 'request_latency_bucket{API="REST",entrypoint="Predict",' in page
    assert "nobody_ever" not in page  # a request must not add series


def test_an_answers_body_does_not_wait_until_its_head_is_acknowledged(server):
    """asyncio sets TCP_NODELAY only if it knows that a socket is TCP's; else 40 ms are lost."""
    assert server._listening.proto == socket.IPPROTO_TCP
