"""Writes and reads signatures in a model's metadata.

The protocol knows one set of inputs and outputs of a model, where an export has several signatures.
The metadata shows those of `serving_default`, and all of them in the parameter `signatures`, which
other servers' metadata lack.
"""

import json
from collections.abc import Mapping
from typing import Any

from keras_transformers.dependencies.untyped import Json
from keras_transformers.serving.client.transport import SignatureInfo, TensorSpec
from keras_transformers.serving.protocol.kserve.tensors import DTYPES, datatype
from keras_transformers.serving.protocol.signatures import DEFAULT_SIGNATURE

SIGNATURE_NAME = "signature_name"  # a request's parameter
SIGNATURES = "signatures"  # a parameter of the metadata, in JSON
_UNKNOWN_RANK = [-1]  # the protocol has no word for it
_PLATFORM = "tensorflow_savedmodel"


def metadata(
    name: str, versions: list[str], signatures: Mapping[str, SignatureInfo]
) -> dict[str, Json]:
    """Returns the metadata of a model.

    Args:
        name: as requests name it.
        versions: those that answer.
        signatures: its signatures by name.
    """
    default = signatures.get(DEFAULT_SIGNATURE, SignatureInfo("", {}, {}))
    described = {
        key: {
            "method_name": signature.method_name,
            "inputs": _tensors(signature.inputs, None),
            "outputs": _tensors(signature.outputs, None),
        }
        for key, signature in sorted(signatures.items())
    }
    return {
        "name": name,
        "versions": versions,
        "platform": _PLATFORM,
        "inputs": _tensors(default.inputs),
        "outputs": _tensors(default.outputs),
        "parameters": {SIGNATURES: json.dumps(described)},
    }


def read_metadata(document: Mapping[str, Any]) -> dict[str, SignatureInfo]:
    """Returns the signatures in a model's metadata, of any server."""
    text = (document.get("parameters") or {}).get(SIGNATURES)
    described = {DEFAULT_SIGNATURE: document} if text is None else json.loads(text)
    return {
        name: SignatureInfo(
            signature.get("method_name", ""),
            _specs(signature.get("inputs", [])),
            _specs(signature.get("outputs", [])),
        )
        for name, signature in described.items()
    }


def _tensors(
    specs: Mapping[str, TensorSpec], of_unknown_rank: list[int] | None = _UNKNOWN_RANK
) -> list[dict[str, Json]]:
    return [
        {
            "name": name,
            "datatype": datatype(spec.dtype),
            "shape": of_unknown_rank
            if spec.shape is None
            else [-1 if size is None else size for size in spec.shape],
        }
        for name, spec in sorted(specs.items())
    ]


def _specs(tensors: list[Mapping[str, Any]]) -> dict[str, TensorSpec]:
    return {
        tensor["name"]: TensorSpec(DTYPES.get(tensor["datatype"]), _shape(tensor["shape"]))
        for tensor in tensors
    }


def _shape(sizes: list[Any] | None) -> tuple[int | None, ...] | None:
    if sizes is None:
        return None
    return tuple(None if int(size) < 0 else int(size) for size in sizes)  # MLServer has strings
