"""Answers what both of the protocol's transports ask."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np

from keras_transformers.dependencies.untyped import Json
from keras_transformers.serving.client.transport import SignatureInfo
from keras_transformers.serving.gateway.backend import Model, Models
from keras_transformers.serving.gateway.refusals import RefusalError, refusal
from keras_transformers.serving.protocol.kserve import signatures
from keras_transformers.serving.protocol.kserve.signatures import SIGNATURE_NAME
from keras_transformers.serving.protocol.kserve.tensors import datatype
from keras_transformers.serving.protocol.signatures import DEFAULT_SIGNATURE

_SHOWN = 200  # characters of a value in an error


@dataclass(frozen=True)
class Input:
    """An input of a request.

    Attributes:
        name: the input's name.
        array: its value.
        place: the field of the request, such as "inputs.0".
    """

    name: str
    array: np.ndarray
    place: str


def server_metadata() -> dict[str, Json]:
    """Returns the metadata of the server."""
    return {
        "name": "keras_transformers",
        "version": metadata.version("keras-transformers"),
        "extensions": ["binary_tensor_data"],
    }


async def model_metadata(models: Models, name: str, version: str | None) -> dict[str, Json]:
    """Returns the metadata of a model.

    Raises:
        RefusalError: there is no such model.
    """
    model = await models.find(versioned(name, version))
    numbers = await models.versions(model.name)
    return signatures.metadata(name, [str(number) for number in numbers], model.signatures)


def versioned(name: str, version: str | None) -> str:
    """Returns the name of a version, as `Models` reads it; a label is a version, too."""
    return f"{name}@{version}" if version else name


async def infer(
    model: Model,
    inputs: Sequence[Input],
    outputs: Sequence[str],
    parameters: Mapping[str, Any],
) -> dict[str, np.ndarray]:
    """Runs a signature.

    Args:
        model: the model.
        inputs: the request's inputs.
        outputs: the outputs to return; all if there are none.
        parameters: the request's.

    Raises:
        RefusalError: the request does not fit the model.
        RequestError: the model failed.
    """
    name, signature = _signature(model, parameters.get(SIGNATURE_NAME, DEFAULT_SIGNATURE))
    _check_names([one.name for one in inputs], signature.inputs, "inputs")
    for one in inputs:
        _check_array(one, signature)
    missing = sorted(signature.inputs.keys() - {one.name for one in inputs})
    if missing:
        raise refusal(f"inputs lacks {', '.join(missing)}", field="inputs")
    _check_names(outputs, signature.outputs, "outputs")
    answer = await model.predict(name, {one.name: one.array for one in inputs})
    return {output: answer[output] for output in outputs or sorted(answer)}


def _signature(model: Model, name: Any) -> tuple[str, SignatureInfo]:
    public = sorted(other for other in model.signatures if not other.startswith("__"))
    if name not in public:
        raise refusal(
            f"parameters.{SIGNATURE_NAME} is {str(name)[:_SHOWN]!r}; model {model.name!r} has "
            f"{', '.join(public)}",
            field=f"parameters.{SIGNATURE_NAME}",
        )
    return name, model.signatures[name]


def _check_names(names: Sequence[str], wanted: Collection[str], place: str) -> None:
    """Checks that names are known, and none comes twice."""
    for index, name in enumerate(names):
        field = f"{place}.{index}.name"
        if name not in wanted:
            raise refusal(
                f"{field} is {name[:_SHOWN]!r}; the signature has {', '.join(sorted(wanted))}",
                field=field,
            )
        if name in names[:index]:
            raise refusal(f"{field}: {name!r} comes twice", field=field)


def _check_array(one: Input, signature: SignatureInfo) -> None:
    spec, array = signature.inputs[one.name], one.array
    if spec.dtype is not None and array.dtype != spec.dtype:
        raise _misfit(one, "datatype", datatype(array.dtype), datatype(spec.dtype))
    if spec.shape is None:
        return
    fits = len(spec.shape) == array.ndim and all(
        wanted in (None, size) for wanted, size in zip(spec.shape, array.shape, strict=True)
    )
    if not fits:
        wanted = [-1 if size is None else size for size in spec.shape]
        raise _misfit(one, "shape", f"{list(array.shape)}", f"{wanted}")


def _misfit(one: Input, part: str, value: str, wanted: str) -> RefusalError:
    field = f"{one.place}.{part}"
    return refusal(f"{field} of {one.name!r} is {value}, expected {wanted}", field=field)
