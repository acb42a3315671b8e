"""What REST and gRPC both offer a client, and the types that they speak in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from keras_transformers.serving.protocol.signatures import ModelSpec

Features = Mapping[str, "str | bytes | int | float | Sequence[str | bytes | int | float]"]


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of a signature.

    Attributes:
        dtype: numpy's; object for strings, None for what numpy lacks.
        shape: None for an unknown dimension; None as a whole for an unknown rank.
    """

    dtype: "np.dtype | None"
    shape: tuple[int | None, ...] | None

    @property
    def grows(self) -> bool:
        """Whether rows are padded to the longest of their batch."""
        return self.shape is not None and len(self.shape) > 1 and self.shape[1] is None


@dataclass(frozen=True)
class SignatureInfo:
    """A signature as the server describes it.

    Attributes:
        method_name: such as "tensorflow/serving/predict".
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
        version: its number.
        state: START, LOADING, AVAILABLE, UNLOADING or END.
        error: why it failed; empty if it did not.
    """

    version: int
    state: str
    error: str


def as_bytes(text: str | bytes) -> bytes:
    """A text as a request carries it: bytes that are not UTF-8 may hide in a str as surrogates."""
    return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text


@dataclass(frozen=True)
class Call:
    """Where a Predict, Classify or Regress request goes, and how long it may take.

    Attributes:
        model: the model and its version.
        signature_name: one of the model's signatures.
        timeout_s: seconds until the request fails.
    """

    model: ModelSpec
    signature_name: str
    timeout_s: float


class Transport(Protocol):
    """One protocol. Every method takes at most `timeout_s` seconds and raises RequestError."""

    def predict(
        self, call: Call, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, TensorSpec]
    ) -> dict[str, np.ndarray]:
        """One Predict request."""

    def classify(self, call: Call, examples: Sequence[Features]) -> list[list[tuple[str, float]]]:
        """One Classify request."""

    def regress(self, call: Call, examples: Sequence[Features]) -> list[float]:
        """One Regress request."""

    def status(self, model: ModelSpec, timeout_s: float) -> list[VersionStatus]:
        """The states of the versions."""

    def signatures(self, model: ModelSpec, timeout_s: float) -> dict[str, SignatureInfo]:
        """The signatures of a version."""

    def close(self) -> None:
        """Closes the connections."""
