"""Defines what asks one server, without waiting in a thread."""

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

import numpy as np

from keras_transformers.serving.client.transport import (
    Call,
    SignatureInfo,
    TensorSpec,
    VersionStatus,
)
from keras_transformers.serving.protocol.signatures import Arrays, ModelSpec

Outputs = dict[str, np.ndarray]


class AsyncTransport(Protocol):
    """Asks one server, as `client.transport.Transport` does, but asynchronously."""

    async def predict(
        self, call: Call, inputs: Arrays, outputs: Mapping[str, TensorSpec]
    ) -> Outputs:
        """Sends one Predict request."""

    def stream(
        self, call: Call, inputs: Arrays, outputs: Mapping[str, TensorSpec]
    ) -> AsyncIterator[Outputs]:
        """Sends one Predict request and yields its outputs as they come; see `Backend.stream`."""

    async def status(self, model: ModelSpec, timeout_s: float) -> list[VersionStatus]:
        """Returns the state of each version."""

    async def signatures(self, model: ModelSpec, timeout_s: float) -> dict[str, SignatureInfo]:
        """Returns the signatures of a version."""

    async def names(self, timeout_s: float) -> list[str] | None:
        """Returns the names of the server's models; None if it does not tell them."""

    async def close(self) -> None:
        """Closes the connections."""
