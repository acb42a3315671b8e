"""The client of servers that speak KServe v2."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest

from keras_transformers.results import Classification
from keras_transformers.serving import Client, RequestError
from keras_transformers.serving.protocol.kserve import tensors

TEXTS = ["good film", "a very bad film!"]


@pytest.fixture(scope="module", params=["http", "grpc"])
def client(request, served):
    address = {"http": served.url.partition("://")[2], "grpc": served.grpc}[request.param]
    with Client(f"kserve+{request.param}://{address}", timeout_s=120) as client:
        yield client


def test_it_gives_the_same_answers_as_the_servers_own_api(client, tiny_client):
    for ours, theirs in [
        (asked.ask(TEXTS, model="classification"), asked.rows(TEXTS, model="embedding"))
        for asked in (client, tiny_client)
    ]:
        assert isinstance(ours[0], Classification)
        assert len(theirs) == 2
    for name in ("classification", "embedding"):
        assert client.ask(TEXTS, model=name) == tiny_client.ask(TEXTS, model=name)
        assert client.signatures(name) == tiny_client.signatures(name)
        assert client.status(name) == tiny_client.status(name)
    ranking = [asked.ask(["good"], [TEXTS], model="reranking") for asked in (client, tiny_client)]
    assert ranking[0] == ranking[1]
    options = {"model": "embedding", "version": 1, "signature_name": "tokenize"}
    assert client.rows(TEXTS, **options) == tiny_client.rows(TEXTS, **options)
    any_bytes = {"text": np.array([b"a\xff"], object)}
    for name, array in client.predict(any_bytes, model="classification").items():
        wanted = tiny_client.predict(any_bytes, model="classification")[name]
        np.testing.assert_array_equal(array, wanted)


def test_its_errors_are_the_servers(client):
    for ask, code, part in [
        (lambda: client.ask(TEXTS, model="nobody"), "NOT_FOUND", "nobody"),
        (lambda: client.ask(TEXTS, model="embedding", version=9), "NOT_FOUND", "9"),
        (lambda: client.status("nobody"), "NOT_FOUND", "nobody"),
        (lambda: client.classify([{"text": "a"}], model="embedding"), "UNIMPLEMENTED", "Classify"),
        (lambda: client.regress([{"text": "a"}], model="embedding"), "UNIMPLEMENTED", "Regress"),
    ]:
        with pytest.raises(RequestError) as error:
            ask()
        assert error.value.code.name == code
        assert part in error.value.message
    with pytest.raises(ValueError, match="signature 'nothing'"):
        client.ask(TEXTS, model="embedding", signature_name="nothing")


METADATA = {
    "name": "m",
    "inputs": [{"name": "text", "datatype": "BYTES", "shape": ["-1"]}],
    "outputs": [
        {"name": "label", "datatype": "BYTES", "shape": [-1]},
        {"name": "probabilities", "datatype": "FP32", "shape": [-1, 2]},
        {"name": "label_index", "datatype": "INT64", "shape": [-1]},
    ],
}


class Other(BaseHTTPRequestHandler):
    """Another server of the protocol, without binary tensors and without signatures."""

    def do_GET(self):
        self.answer(METADATA)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert body["inputs"] == [
            {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["é"]}
        ]
        assert body["parameters"] == {"binary_data_output": True}
        arrays = {
            "label": np.array(["é".encode()], object),
            "probabilities": np.array([[0.25, np.nan]], "float32"),
            "label_index": np.array([1]),
        }
        self.answer(
            {
                "outputs": [
                    {
                        "name": name,
                        "shape": list(array.shape),
                        "datatype": tensors.datatype(array.dtype),
                        "data": tensors.to_json(array),
                    }
                    for name, array in arrays.items()
                ]
            }
        )

    def answer(self, document):
        data = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def test_another_servers_outputs_tell_the_task():
    with HTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with Client(f"kserve+http://127.0.0.1:{server.server_port}") as client:
            (answer,) = client.ask(["é"], model="m")
            assert client.status("m") == []  # it tells no versions
        server.shutdown()
    assert isinstance(answer, Classification)
    assert (answer.label, answer.label_index, answer.probabilities[0]) == ("é", 1, 0.25)
    assert np.isnan(answer.probabilities[1])


@pytest.mark.parametrize("target", ["kserve+localhost", "kserve+ftp://a:1", "kserve+grpc://a"])
def test_a_malformed_target_is_refused(target):
    with pytest.raises(ValueError, match=r"target .*http://host:port.*kserve\+"):
        Client(target)
