"""Gateways: before a backend of simple arithmetic, and before real exports of tiny models."""

import asyncio
import dataclasses
import threading
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
import tensorflow as tf
import tiny

from keras_transformers.serving import Client, Limits, ModelSettings, Server
from keras_transformers.serving.client.target import Target
from keras_transformers.serving.client.tls import ClientTls
from keras_transformers.serving.client.transport import SignatureInfo, TensorSpec, VersionStatus
from keras_transformers.serving.gateway.process import Gateway
from keras_transformers.serving.gateway.servers.backend import Servers
from keras_transformers.serving.gateway.servers.connect import connect
from keras_transformers.serving.gateway.servers.replicas import Replicas
from keras_transformers.serving.protocol.errors import Code, RequestError
from keras_transformers.tasks.answers import TASK_SIGNATURE

STRING, INT, FLOAT = (np.dtype(kind) for kind in ("O", "i4", "f4"))
TEXT = TensorSpec(STRING, (None,))
TOKENS = {
    "token_ids": TensorSpec(INT, (None, None)),
    "tokens": TensorSpec(STRING, (None, None)),
    "num_tokens": TensorSpec(INT, (None,)),
}


def signature(inputs, **outputs):
    return SignatureInfo("tensorflow/serving/predict", inputs, outputs)


def model(task, inputs, **outputs):
    return {
        TASK_SIGNATURE: SignatureInfo(task, {}, {}),
        "serving_default": signature(inputs, **outputs),
    }


VECTOR = {"embedding": TensorSpec(FLOAT, (None, 3))}
SCORES = {
    "scores": TensorSpec(FLOAT, (None, None)),
    "order": TensorSpec(INT, (None, None)),
    "num_documents": TensorSpec(INT, (None,)),
}
PAIR = {"text": TEXT, "documents": TensorSpec(STRING, (None, None))}
LABELS = {
    "label": TensorSpec(STRING, (None,)),
    "probabilities": TensorSpec(FLOAT, (None, 2)),
    "label_index": TensorSpec(INT, (None,)),
}
CLASSES = signature(
    {"inputs": TEXT},
    classes=TensorSpec(STRING, (None, 2)),
    scores=TensorSpec(FLOAT, (None, 2)),
)
NUMBERS = {
    name: TensorSpec(np.dtype(name), (None, 2))
    for name in ("float32", "float16", "float64", "int32", "int8", "uint64", "bool", "object")
}
MODELS = {
    "embedder": {
        **model("embedding", {"text": TEXT}, **VECTOR),
        "query": signature({"text": TEXT}, **VECTOR),
        "tokenize": signature({"text": TEXT}, **TOKENS),
    },
    "reranker": {
        **model("reranking", PAIR, **SCORES),
        "tokenize": signature(PAIR, **TOKENS),
    },
    "classifier": model("classification", {"text": TEXT}, **LABELS) | {"classify": CLASSES},
    "judge": model("classification", {"text": TEXT, "text_b": TEXT}, **LABELS)
    | {"classify": CLASSES},
    # Returns its inputs, of every type.
    "echo": {"serving_default": signature(NUMBERS, **NUMBERS)},
}
WORDS = {"[CLS]": 1, "[SEP]": 2}


class Backend:
    """Answers by arithmetic: a text's score is its length.

    Attributes:
        calls: (model, signature, inputs) of the calls.
        error: what the next call raises.
        holding: whether calls wait.
        abandoned: set when a call that waits is cancelled.
        loading: names of models without a version that answers.
        models: name -> signatures.
    """

    def __init__(self):
        self.calls, self.error, self.holding = [], None, False
        self.abandoned, self.loading = threading.Event(), set()
        self.models = dict(MODELS)

    async def names(self):
        return list(self.models)

    async def signatures(self, model, timeout_s):
        if model.version not in (None, 1) or model.name in self.loading:
            raise RequestError(Code.NOT_FOUND, f"no version {model.version} of {model.name}")
        return self.models[model.name]

    async def status(self, model, timeout_s):
        if model.version not in (None, 1):
            raise RequestError(Code.NOT_FOUND, f"no version {model.version} of {model.name}")
        state = "LOADING" if model.name in self.loading else "AVAILABLE"
        return [VersionStatus(1, state, "")]

    async def close(self):
        pass

    async def predict(self, call, inputs):
        self.calls.append((call.model.name, call.signature_name, inputs))
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        if self.holding:
            try:
                await asyncio.sleep(60)
            finally:
                self.abandoned.set()
        if call.model.name == "echo":
            return dict(inputs)
        if call.signature_name == "tokenize":
            return tokens(
                [*map(joined, *inputs.values())] if "documents" in inputs else inputs["text"]
            )
        if call.signature_name == "classify":
            return classes(inputs["inputs"])
        if "documents" in inputs:
            scores = np.array([[len(text) / 10 for text in inputs["documents"][0]]], "float32")
            order = np.argsort(-scores, axis=1, kind="stable").astype("int32")
            return {"scores": scores, "order": order, "num_documents": np.int32([scores.size])}
        lengths = np.array([len(text) for text in inputs["text"]], "float32")
        scale = 2 if call.signature_name == "query" else 1
        return {
            "embedding": np.stack([lengths * scale, np.ones_like(lengths), -lengths * scale], 1)
        }


def joined(query, documents):
    return b" ".join([query, *documents])


def tokens(texts):
    rows = [["[CLS]", *text.decode().split(), "[SEP]"] for text in texts]
    width = max(map(len, rows))
    return {
        "token_ids": np.array(
            [[WORDS.get(t, len(t) + 10) for t in row] + [0] * (width - len(row)) for row in rows],
            "int32",
        ),
        "tokens": np.array(
            [[t.encode() for t in row] + [b""] * (width - len(row)) for row in rows], object
        ),
        "num_tokens": np.array(list(map(len, rows)), "int32"),
    }


def classes(examples):
    rows = [tf.train.Example.FromString(example).features.feature for example in examples]
    good = [b"good" in row["text"].bytes_list.value[0] for row in rows]
    scores = np.array([[0.25, 0.75] if is_good else [0.9, 0.1] for is_good in good], "float32")
    return {"classes": np.array([[b"bad", b"good"]] * len(rows), object), "scores": scores}


@pytest.fixture(scope="session")
def arithmetic():
    """A gateway before a `Backend`, with REST and gRPC."""
    backend = Backend()
    limits = Limits(max_body_bytes=1_000_000, timeout_s=20.0, max_rows=200)
    with Gateway(backend, port=0, grpc_port=0, limits=limits) as gateway:
        yield SimpleNamespace(
            backend=backend,
            url=f"http://127.0.0.1:{gateway.port}",
            grpc=f"127.0.0.1:{gateway.grpc_port}",
        )


@pytest.fixture
def simple(arithmetic):
    """The backend of `ask`."""
    arithmetic.backend.__init__()
    return arithmetic.backend


@pytest.fixture
def ask(arithmetic, simple):
    """Sends a request to the backend of arithmetic; returns the response."""

    def send(path, body=None, **options):
        if isinstance(body, bytes):
            return httpx.post(arithmetic.url + path, content=body, timeout=30, **options)
        if body is None:
            return httpx.get(arithmetic.url + path, timeout=30)
        return httpx.post(arithmetic.url + path, json=body, timeout=30, **options)

    return send


@dataclasses.dataclass
class Place:
    """Where exports are served: REST's URL and gRPC's address."""

    url: str
    grpc: str


@pytest.fixture(scope="session")
def tiny_server():
    """A server of tiny exports, one for each task of texts that the APIs know."""
    tasks = (
        *("classification", "embedding", "reranking"),
        *("sparse_embedding", "late_interaction"),
    )
    settings = [ModelSettings(task, tiny.exported(task).parent) for task in tasks]
    with Server(settings, rest_port=0, grpc_port=0) as server:
        assert server.wait_until_loaded(120)
        yield server


@pytest.fixture(scope="session")
def tiny_client(tiny_server):
    """A client of the server's own API."""
    with Client(f"http://127.0.0.1:{tiny_server.rest_port}", timeout_s=120) as client:
        yield client


@pytest.fixture(scope="session", params=["own engine", "rest", "grpc"])
def served(request, tiny_server):
    """The APIs before the exports: in the server, or in a gateway that asks it."""
    rest, grpc = f"127.0.0.1:{tiny_server.rest_port}", f"127.0.0.1:{tiny_server.grpc_port}"
    if request.param == "own engine":
        yield Place(f"http://{rest}", grpc)
        return
    target = Target.parse(f"http://{rest}" if request.param == "rest" else grpc)
    names = None
    if request.param == "grpc":  # which cannot tell them
        names = {name: name for name in tiny_server.engine.models.names}
    servers = Servers([(Replicas([connect(target, ClientTls())]), names)])
    with Gateway(servers, port=0, grpc_port=0) as gateway:
        yield Place(f"http://127.0.0.1:{gateway.port}", f"127.0.0.1:{gateway.grpc_port}")
