"""Says what the protocol's transports share."""

from collections.abc import Mapping
from typing import Any, NoReturn

from keras_transformers.serving.client.transport import VersionStatus
from keras_transformers.serving.protocol.errors import Code, RequestError
from keras_transformers.serving.protocol.kserve.signatures import SIGNATURE_NAME
from keras_transformers.serving.protocol.signatures import DEFAULT_SIGNATURE


def parameters(signature_name: str) -> dict[str, str]:
    """Returns a request's parameters; none for the default, as other servers know none."""
    return {} if signature_name == DEFAULT_SIGNATURE else {SIGNATURE_NAME: signature_name}


def statuses(metadata: Mapping[str, Any], *, ready: bool) -> list[VersionStatus]:
    """Returns the state of each version in a model's metadata."""
    state = "AVAILABLE" if ready else "LOADING"
    return [
        VersionStatus(int(version), state, "")
        for version in metadata.get("versions") or ()
        if str(version).isdecimal()
    ]


def refuse_examples(method: str) -> NoReturn:
    """Refuses a request with tf.Examples, which only TF Serving has."""
    raise RequestError(
        Code.UNIMPLEMENTED, f"KServe's protocol has no {method}: call `ask` or `predict`"
    )
