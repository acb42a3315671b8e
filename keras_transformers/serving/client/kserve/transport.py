"""Defines what the protocol's transports share."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from keras_transformers.serving.client.transport import (
    Call,
    Features,
    SignatureInfo,
    TensorSpec,
    VersionStatus,
)
from keras_transformers.serving.protocol.errors import Code, RequestError
from keras_transformers.serving.protocol.kserve.signatures import SIGNATURE_NAME, read_metadata
from keras_transformers.serving.protocol.signatures import DEFAULT_SIGNATURE, ModelSpec


class KServeTransport:
    """Answers from a model's metadata; `client.transport.Transport` describes the methods.

    Subclasses send the requests, over REST or gRPC.
    """

    def predict(  # noqa: D102
        self, call: Call, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, TensorSpec]
    ) -> dict[str, np.ndarray]:
        raise NotImplementedError

    def stream(  # noqa: D102
        self, call: Call, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, TensorSpec]
    ) -> Iterator[dict[str, np.ndarray]]:
        yield self.predict(call, inputs, outputs)  # the protocol answers once

    def classify(  # noqa: D102
        self, call: Call, examples: Sequence[Features]
    ) -> NoReturn:
        raise _only_tf_serving("Classify")

    def regress(self, call: Call, examples: Sequence[Features]) -> NoReturn:  # noqa: D102
        raise _only_tf_serving("Regress")

    def status(self, model: ModelSpec, timeout_s: float) -> list[VersionStatus]:  # noqa: D102
        metadata = self._metadata(model, timeout_s)
        state = "AVAILABLE" if self._is_ready(model, timeout_s) else "LOADING"
        return [
            VersionStatus(int(version), state, "")
            for version in metadata.get("versions") or ()
            if str(version).isdecimal()
        ]

    def signatures(  # noqa: D102
        self, model: ModelSpec, timeout_s: float
    ) -> dict[str, SignatureInfo]:
        return read_metadata(self._metadata(model, timeout_s))

    def _metadata(self, model: ModelSpec, timeout_s: float) -> Mapping[str, Any]:
        """Returns a model's metadata, as REST has them."""
        raise NotImplementedError

    def _is_ready(self, model: ModelSpec, timeout_s: float) -> bool:
        """Returns whether a model answers."""
        raise NotImplementedError


def parameters(signature_name: str) -> dict[str, str]:
    """Returns a request's parameters; none for the default, as other servers know none."""
    return {} if signature_name == DEFAULT_SIGNATURE else {SIGNATURE_NAME: signature_name}


def version_of(model: ModelSpec) -> str:
    """Returns a model's version, empty for the latest; a label is a version, too."""
    return (model.label if model.version is None else str(model.version)) or ""


def _only_tf_serving(method: str) -> RequestError:
    """Returns the refusal of a request with tf.Examples."""
    return RequestError(
        Code.UNIMPLEMENTED, f"KServe's protocol has no {method}: call `ask` or `predict`"
    )
