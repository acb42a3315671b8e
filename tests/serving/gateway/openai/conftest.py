"""A gateway in front of a backend that answers at once, in no model's words."""

import asyncio
import json
import threading

import httpx
import numpy as np
import pytest

from keras_transformers.serving import Limits
from keras_transformers.serving.client.transport import SignatureInfo, TensorSpec
from keras_transformers.serving.gateway.process import Gateway
from keras_transformers.serving.protocol.errors import Code, RequestError
from keras_transformers.tasks.answers import CHAT_SIGNATURE, OPTIONS_SIGNATURE, TASK_SIGNATURE

STRING, INT, FLOAT, BOOL = (np.dtype(kind) for kind in ("O", "i4", "f4", "?"))
DEFAULTS = {"max_length": 12, "temperature": 0.8, "top_k": 5, "seed": 7, "stop": ["!"]}


def signature(inputs, **outputs):
    rows = {name: TensorSpec(STRING, (None,)) for name in inputs}
    return SignatureInfo("tensorflow/serving/predict", rows, outputs)


def vectors(name):
    return signature(["text"], embedding=TensorSpec(FLOAT, (None, 4)))


WRITING = {
    "text": TensorSpec(STRING, (None,)),
    "num_new_tokens": TensorSpec(INT, (None,)),
    "finished": TensorSpec(BOOL, (None,)),
    "num_prompt_tokens": TensorSpec(INT, (None,)),
}
TOKENS = {
    "token_bytes": TensorSpec(STRING, (None, None)),
    "tokens": TensorSpec(STRING, (None, None)),
    "token_log_probabilities": TensorSpec(FLOAT, (None, None)),
}
CHOOSING = {
    "text": TensorSpec(STRING, (None,)),
    "probability": TensorSpec(FLOAT, (None,)),
    "probabilities": TensorSpec(FLOAT, (None, None)),
    "num_prompt_tokens": TensorSpec(INT, (None,)),
    "num_new_tokens": TensorSpec(INT, (None,)),
}
MODELS = {
    "talker": {
        TASK_SIGNATURE: SignatureInfo("generation", {}, {}),
        OPTIONS_SIGNATURE: SignatureInfo(json.dumps(DEFAULTS), {}, {}),
        **{name: signature([], **WRITING) for name in ("complete", "chat_complete")},
        **{name: signature([], **WRITING | TOKENS) for name in ("complete_tokens", "chat_tokens")},
        **{name: signature([], **CHOOSING) for name in ("choose", "chat_choose")},
    },
    "caller": {  # whose chat template has tools
        TASK_SIGNATURE: SignatureInfo("generation", {}, {}),
        CHAT_SIGNATURE: SignatureInfo("qwen3", {}, {}),
        "chat_complete": signature([], **WRITING),
        "chat_tokens": signature([], **WRITING | TOKENS),
    },
    "old_talker": {  # as version 1.0 exported it
        TASK_SIGNATURE: SignatureInfo("generation", {}, {}),
        **{
            name: signature([], **{n: WRITING[n] for n in ("text", "num_new_tokens", "finished")})
            for name in ("complete", "chat_complete")
        },
    },
    "embedder": {
        TASK_SIGNATURE: SignatureInfo("embedding", {}, {}),
        "serving_default": vectors("text"),
        "tokenize": signature(["text"], num_tokens=TensorSpec(INT, (None,))),
    },
    "old_embedder": {
        TASK_SIGNATURE: SignatureInfo("embedding", {}, {}),
        "serving_default": vectors("text"),
    },
}
VECTOR = np.array([0.1, -0.2, 0.3, 0.9273618], "float32")
# "é" is two tokens; the end token adds nothing.
PIECES = [b"Hi", b" \xc3", b"\xa9", b""]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Z\u00fcrich"}}\n</tool_call>'
ANSWER = f'I look. <b> \n{CALL}\n<tool_call>\n{{"name": "now"}}\n</tool_call>'


class Backend:
    """Says the same to everyone.

    Attributes:
        calls: the signatures and the inputs of the calls.
        error: what the next call raises.
        holding: whether calls and streams (after their first piece) wait forever.
        left: set when one that waited was abandoned.
        pause_s: seconds between two pieces of a stream.
        answer: what the model "caller" writes.
    """

    def __init__(self):
        self.answer = ANSWER
        self.calls, self.error, self.holding, self.left = [], None, False, threading.Event()
        self.pause_s = 0.0

    async def names(self):
        return sorted(MODELS)

    async def signatures(self, model, timeout_s):
        if model.version not in (None, 1):
            raise RequestError(Code.NOT_FOUND, f"no version {model.version}")
        return MODELS[model.name]

    async def predict(self, call, inputs):
        self.calls.append((call.signature_name, inputs))
        await self._obey()
        outputs = MODELS[call.model.name][call.signature_name].outputs
        if "embedding" in outputs:
            return {"embedding": np.tile(VECTOR, (len(inputs["text"]), 1))}
        if set(outputs) == {"num_tokens"}:
            return {"num_tokens": np.array([len(text) for text in inputs["text"]], "int32")}
        rows = len(next(iter(inputs.values())))
        if "probabilities" in outputs:
            last = inputs["choices"].shape[1] - 1
            probabilities = np.tile(np.float32([0.0] * (last - 1) + [0.25, 0.75]), (rows, 1))
            return {
                "text": inputs["choices"][:, last],
                "probability": probabilities[:, last],
                "probabilities": probabilities,
                "num_prompt_tokens": np.full(rows, 7, "int32"),
                "num_new_tokens": np.full(rows, 3, "int32"),
            }
        pieces = PIECES
        if call.model.name == "caller":
            pieces = [letter.encode() for letter in self.answer]
        return rows_of([self._outputs(pieces, len(pieces), finished=True)] * rows, outputs)

    async def stream(self, call, inputs):
        self.calls.append((call.signature_name, inputs))
        outputs = MODELS[call.model.name][call.signature_name].outputs
        if call.model.name == "caller":
            for count, letter in enumerate(self.answer, start=1):
                finished = count == len(self.answer)
                row = self._outputs([letter.encode()], count, text=letter, finished=finished)
                yield rows_of([row], outputs)
            return
        for text, tokens, count in (("Hi", PIECES[:1], 1), (" é", PIECES[1:3], 3), ("", [b""], 4)):
            yield rows_of([self._outputs(tokens, count, text=text, finished=count == 4)], outputs)
            await self._obey()
            await asyncio.sleep(self.pause_s)

    async def close(self):
        pass

    def _outputs(self, tokens, count, *, finished, text=None):
        return {
            "text": b"".join(tokens) if text is None else text.encode(),
            "num_new_tokens": np.int32(count),
            "num_prompt_tokens": np.int32(7),
            "finished": np.bool_(finished),
            "token_bytes": [*tokens, b"padding"],
            "tokens": [*tokens, b"padding"],
            "token_log_probabilities": np.float32([-0.1] * len(tokens) + [0.0]),
        }

    async def _obey(self):
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        if self.holding:
            try:
                await asyncio.sleep(60)
            finally:
                self.left.set()


def rows_of(rows, outputs):
    """The rows as one batch, with only these outputs."""
    return {
        name: np.array([row[name] for row in rows], spec.dtype) for name, spec in outputs.items()
    }


@pytest.fixture
def vector():
    """The vector of every text."""
    return VECTOR


@pytest.fixture(scope="session")
def running():
    backend = Backend()
    limits = Limits(max_body_bytes=1_000_000, timeout_s=20.0)
    with (
        Gateway(backend, port=0, limits=limits) as gateway,
        httpx.Client(base_url=f"http://127.0.0.1:{gateway.port}", timeout=30) as client,
    ):
        yield backend, client


@pytest.fixture
def backend(running):
    running[0].__init__()
    return running[0]


@pytest.fixture
def gateway(running, backend):
    """An HTTP client of the gateway."""
    return running[1]


@pytest.fixture
def ask(gateway):
    """Sends a request; returns the answer."""

    def post(path, status=200, **body):
        answer = gateway.post(path, json=body)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/json"
        return answer.json()

    return post


@pytest.fixture
def refused(ask):
    """Sends a request that is refused; returns the message, the field and the code."""

    def post(path, status=400, **body):
        answer = ask(path, status, **body)
        assert set(answer) == {"error"}
        error = answer["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["type"] == "invalid_request_error"
        return error["message"], error["param"], error["code"]

    return post
