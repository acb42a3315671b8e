"""Defines the interface of the client's REST and gRPC transports, and its types."""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Protocol

import numpy as np

from keras_transformers.dependencies.graph_errors import sentence
from keras_transformers.serving.protocol import request_ids, tracing
from keras_transformers.serving.protocol.errors import Code, RequestError
from keras_transformers.serving.protocol.signatures import ModelSpec

# What gRPC and TensorFlow say when the client's time is over.
_TIMES_UP = ("", "Deadline Exceeded", "Timed out waiting for notification")

Features = Mapping[str, "str | bytes | int | float | Sequence[str | bytes | int | float]"]


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of a signature.

    Attributes:
        dtype: a numpy dtype: object for strings, None for a type that numpy lacks.
        shape: its dimensions, with None for unknown ones; None if the rank is unknown.
    """

    dtype: "np.dtype | None"
    shape: tuple[int | None, ...] | None

    @property
    def grows(self) -> bool:
        """Whether rows are padded to the longest row of their batch."""
        return self.shape is not None and len(self.shape) > 1 and self.shape[1] is None


@dataclass(frozen=True)
class SignatureInfo:
    """A signature as the server describes it.

    Attributes:
        method_name: the API that it belongs to, such as "tensorflow/serving/predict".
        inputs: name -> spec.
        outputs: name -> spec.
    """

    method_name: str
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]


@dataclass(frozen=True)
class VersionStatus:
    """The state of a version.

    Attributes:
        version: the version's number.
        state: START, LOADING, AVAILABLE, UNLOADING or END.
        error: why loading failed; empty if it did not.
    """

    version: int
    state: str
    error: str


@dataclass(frozen=True)
class Call:
    """The destination of a Predict, Classify or Regress request, and its timeout.

    Attributes:
        model: the model and its version.
        signature_name: one of the model's signatures.
        timeout_s: seconds until the request fails.
    """

    model: ModelSpec
    signature_name: str
    timeout_s: float


def request_error(
    code: Code, message: str, timeout_s: float, headers: Mapping[str, str] | None = None
) -> RequestError:
    """Returns a server's error with only the sentence of its message.

    Args:
        code: the kind of failure.
        message: what the server said.
        timeout_s: how long the request was allowed to take.
        headers: of the answer, or its metadata, with names in lower case: the request's id, and
            when to try again.
    """
    headers = headers or {}
    text = sentence(message)
    if code == Code.DEADLINE_EXCEEDED and text in _TIMES_UP:
        text = f"no answer within {timeout_s:.3g} s: ask for less, or pass a larger timeout"
    return RequestError(
        code,
        text,
        retry_after_s=_seconds(headers.get("retry-after", "")),
        request_id=headers.get(request_ids.HEADER, ""),
    )


def outgoing() -> dict[str, str]:
    """Returns the headers that pass on the id and the trace of the request in progress here."""
    number = request_ids.current.get()
    return tracing.headers() | ({request_ids.HEADER: number} if number else {})


def credentials(api_key: str | None) -> dict[str, str]:
    """Returns the header that shows an API key; empty without one.

    Raises:
        ValueError: the key cannot be part of a header.
    """
    if api_key is None:
        return {}
    if not api_key or not api_key.isascii() or not api_key.isprintable() or " " in api_key:
        raise ValueError("api_key must be of printable ASCII characters without spaces")
    return {"authorization": f"Bearer {api_key}"}


def _seconds(text: str) -> float | None:
    """Returns the seconds in a Retry-After header, which may also be a date; None if it is none."""
    if text.isdecimal():
        return float(text[:9])
    with contextlib.suppress(ValueError, TypeError):
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    return None


class Transport(Protocol):
    """A protocol. Failing methods raise RequestError, after `timeout_s` seconds at the latest."""

    def predict(
        self, call: Call, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, TensorSpec]
    ) -> dict[str, np.ndarray]:
        """Sends one Predict request."""

    def stream(
        self, call: Call, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, TensorSpec]
    ) -> Iterator[dict[str, np.ndarray]]:
        """Sends a Predict request of one row that writes text, and yields its outputs as it does.

        `text` is what to append, and the other outputs are those so far. A server that does not
        stream gives one piece. To close the iterator is to give the request up.
        """

    def classify(self, call: Call, examples: Sequence[Features]) -> list[list[tuple[str, float]]]:
        """Sends one Classify request."""

    def regress(self, call: Call, examples: Sequence[Features]) -> list[float]:
        """Sends one Regress request."""

    def status(self, model: ModelSpec, timeout_s: float) -> list[VersionStatus]:
        """Returns the state of each version."""

    def signatures(self, model: ModelSpec, timeout_s: float) -> dict[str, SignatureInfo]:
        """Returns the signatures of a version."""

    def close(self) -> None:
        """Closes the connections."""
