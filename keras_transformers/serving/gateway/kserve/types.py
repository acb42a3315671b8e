"""Defines the requests and answers of the protocol's REST API."""

from typing import Annotated, Any

from pydantic import BaseModel, Field

from keras_transformers.serving.gateway.apis import Body, ListOf

_CONTENT_TYPE = Annotated[str | None, Field(description="MLServer's hint, which is ignored.")]


class Parameters(Body):
    """Options of a request."""

    signature_name: Annotated[str, Field(description="A signature of the export.")] = (
        "serving_default"
    )
    binary_data_output: Annotated[
        bool, Field(description="Send all outputs as binary data, Triton's extension.")
    ] = False
    content_type: _CONTENT_TYPE = None


class InputParameters(Body):
    """Options of an input."""

    binary_data_size: Annotated[
        int | None, Field(ge=0, description="Bytes of the input after the JSON.")
    ] = None
    content_type: _CONTENT_TYPE = None


class InputTensor(Body):
    """An input of a signature."""

    name: str
    shape: ListOf[int]
    datatype: str
    parameters: InputParameters | None = None
    data: Annotated[
        list[Any] | None,
        Field(description="Its elements, nested or in one list; without, they are binary."),
    ] = None


class OutputParameters(Body):
    """Options of an output."""

    binary_data: bool | None = None
    content_type: _CONTENT_TYPE = None


class OutputTensor(Body):
    """An output to return."""

    name: str
    parameters: OutputParameters | None = None


class InferRequest(Body):
    """Inputs of a signature, and the outputs to return."""

    id: str | None = None
    parameters: Parameters | None = None
    inputs: ListOf[InputTensor]
    outputs: Annotated[
        ListOf[OutputTensor] | None, Field(description="All outputs if this is left out.")
    ] = None


class AnswerTensor(BaseModel):
    """An output: its elements in one list, or their number of bytes after the JSON."""

    name: str
    datatype: str
    shape: list[int]
    data: list[Any] | None = None
    parameters: dict[str, int] | None = None


class InferAnswer(BaseModel):
    """The outputs."""

    model_name: str
    model_version: str | None = None
    id: str | None = None
    outputs: list[AnswerTensor]


class ServerMetadata(BaseModel):
    """What the server is."""

    name: str
    version: str
    extensions: list[str]


class TensorMetadata(BaseModel):
    """An input or output; -1 is a dimension of any size."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(BaseModel):
    """What a model takes and returns.

    Attributes:
        parameters: `signatures`, the same of all signatures, in JSON.
    """

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]
    parameters: dict[str, str]


class Live(BaseModel):
    """Whether the server runs."""

    live: bool


class Ready(BaseModel):
    """Whether all models answer."""

    ready: bool


class ModelReady(BaseModel):
    """Whether a model answers."""

    name: str
    ready: bool


class InferError(BaseModel):
    """The answer to a request that is refused or fails."""

    error: str
