"""How a client reaches a server: what both protocols offer, and which one a target means."""

import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

Features = Mapping[str, "str | bytes | int | float | Sequence[str | bytes | int | float]"]


@dataclass(frozen=True)
class ModelVersion:
    """Which model a request is for.

    Attributes:
        name: the model's.
        version: its number; None for the label's or the latest.
        label: of a version; None for none.
    """

    name: str
    version: int | None
    label: str | None


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of a signature.

    Attributes:
        dtype: numpy's; object for strings, None for one that numpy has not.
        shape: None for an unknown dimension; None as a whole for an unknown rank.
    """

    dtype: "np.dtype | None"
    shape: tuple[int | None, ...] | None

    @property
    def grows(self) -> bool:
        """Whether a row is as long as the longest row of its batch needs it."""
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
        error: why it failed; empty when it did not.
    """

    version: int
    state: str
    error: str


@dataclass(frozen=True)
class Target:
    """Where a server is.

    Attributes:
        protocol: REST or gRPC.
        address: the URL for REST, host:port for gRPC.
        tls: whether the connection is encrypted.
    """

    protocol: Literal["rest", "grpc"]
    address: str
    tls: bool

    @classmethod
    def parse(cls, text: str) -> "Target":
        """Reads what a user types.

        >>> Target.parse("localhost:8500")
        Target(protocol='grpc', address='localhost:8500', tls=False)

        Raises:
            ValueError: it has no port, or an unknown scheme.
        """
        url = urllib.parse.urlsplit(text if "://" in text else f"grpc://{text}")
        try:
            whole = bool(url.hostname and url.port)
        except ValueError:  # the port is no number
            whole = False
        if url.scheme in ("http", "https") and url.hostname:
            return cls("rest", text.rstrip("/"), url.scheme == "https")
        if url.scheme in ("grpc", "grpcs") and whole and url.path in ("", "/"):
            return cls("grpc", url.netloc, url.scheme == "grpcs")
        raise ValueError(f"target {text!r}: give http://host:port for REST, or host:port for gRPC")


class Transport(Protocol):
    """What a protocol does; every method raises RequestError, and has `timeout_s` seconds."""

    def predict(
        self,
        model: ModelVersion,
        signature_name: str,
        inputs: Mapping[str, np.ndarray],
        outputs: Mapping[str, TensorSpec],
        timeout_s: float,
    ) -> dict[str, np.ndarray]:
        """One Predict request."""

    def classify(
        self,
        model: ModelVersion,
        signature_name: str,
        examples: Sequence[Features],
        timeout_s: float,
    ) -> list[list[tuple[str, float]]]:
        """One Classify request."""

    def regress(
        self,
        model: ModelVersion,
        signature_name: str,
        examples: Sequence[Features],
        timeout_s: float,
    ) -> list[float]:
        """One Regress request."""

    def status(self, model: ModelVersion, timeout_s: float) -> list[VersionStatus]:
        """The states of the versions."""

    def signatures(self, model: ModelVersion, timeout_s: float) -> dict[str, SignatureInfo]:
        """The signatures of a version."""

    def close(self) -> None:
        """Closes the connections."""


def connect(target: Target, root_certificates: str | None) -> Transport:
    """A transport to a target; nothing is sent yet.

    Raises:
        FileNotFoundError: there is no such file of certificates.
    """
    if root_certificates is not None and not Path(root_certificates).is_file():
        raise FileNotFoundError(f"{root_certificates}: no such file; give a PEM file")
    if target.protocol == "rest":
        from keras_transformers.serving.rest_client import RestTransport

        return RestTransport(target.address, root_certificates)
    from keras_transformers.serving.grpc_client import GrpcTransport

    return GrpcTransport(target.address, root_certificates, tls=target.tls)
