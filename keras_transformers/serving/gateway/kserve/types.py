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

    name: str = Field(description="An input of the signature.")
    shape: ListOf[int] = Field(description="The size of each dimension.")
    datatype: str = Field(description='Such as "BYTES" for texts, "FP32" or "INT64".')
    parameters: InputParameters | None = Field(default=None, description="Options of the input.")
    data: Annotated[
        list[Any] | None,
        Field(description="Its elements, nested or in one list; without, they are binary."),
    ] = None


class OutputParameters(Body):
    """Options of an output."""

    binary_data: Annotated[
        bool | None,
        Field(description="Send it as binary data or not; as binary_data_output by default."),
    ] = None
    content_type: _CONTENT_TYPE = None


class OutputTensor(Body):
    """An output to return."""

    name: str = Field(description="An output of the signature.")
    parameters: OutputParameters | None = Field(default=None, description="Options of the output.")


class InferRequest(Body):
    """Inputs of a signature, and the outputs to return."""

    id: str | None = Field(default=None, description="Comes back in the answer.")
    parameters: Parameters | None = Field(default=None, description="Options of the request.")
    inputs: ListOf[InputTensor] = Field(description="All inputs of the signature.")
    outputs: Annotated[
        ListOf[OutputTensor] | None, Field(description="All outputs if this is left out.")
    ] = None


class AnswerTensor(BaseModel):
    """An output: its elements in one list, or their number of bytes after the JSON."""

    name: str = Field(description="The output's name.")
    datatype: str = Field(description='Such as "BYTES" for texts, "FP32" or "INT64".')
    shape: list[int] = Field(description="The size of each dimension.")
    data: list[Any] | None = Field(default=None, description="Its elements in one list.")
    parameters: dict[str, int] | None = Field(
        default=None, description="binary_data_size, if it is sent as binary data."
    )


class InferAnswer(BaseModel):
    """The outputs."""

    model_name: str = Field(description="As in the path.")
    model_version: str | None = Field(default=None, description="As in the path.")
    id: str | None = Field(default=None, description="As in the request.")
    outputs: list[AnswerTensor] = Field(description="In the order of the request, or by name.")


class ServerMetadata(BaseModel):
    """What the server is."""

    name: str = Field(description='"keras_transformers".')
    version: str = Field(description="The version of keras_transformers.")
    extensions: list[str] = Field(description="Of the protocol: binary tensors.")


class TensorMetadata(BaseModel):
    """An input or output; -1 is a dimension of any size."""

    name: str = Field(description="Its name.")
    datatype: str = Field(description='Such as "BYTES" for texts, "FP32" or "INT64".')
    shape: list[int] = Field(description="The size of each dimension; -1 is any.")


class ModelMetadata(BaseModel):
    """What a model takes and returns."""

    name: str = Field(description="As in the path.")
    versions: list[str] = Field(description="Those that answer, the oldest first.")
    platform: str = Field(description='"tensorflow_savedmodel".')
    inputs: list[TensorMetadata] = Field(description="Of the signature serving_default.")
    outputs: list[TensorMetadata] = Field(description="Of the signature serving_default.")
    parameters: dict[str, str] = Field(
        description="signatures: the inputs and outputs of all signatures, in JSON."
    )


class Live(BaseModel):
    """Whether the server runs."""

    live: bool = Field(description="true.")


class Ready(BaseModel):
    """Whether all models answer."""

    ready: bool = Field(description="Whether every model has a version that answers.")


class ModelReady(BaseModel):
    """Whether a model answers."""

    name: str = Field(description="As in the path.")
    ready: bool = Field(description="Whether it has a version that answers.")


class InferError(BaseModel):
    """The answer to a request that is refused or fails."""

    error: str = Field(description="What is wrong, with the value and the remedy.")
