"""Defines the messages and methods of inference.GRPCInferenceService.

The messages are those of Triton's grpc_service.proto. They live in a pool of their own: in
protobuf's default pool, tritonclient could not register its definitions in the same process.
"""

import functools
from types import SimpleNamespace
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE = "inference.GRPCInferenceService"
METHODS = (
    "ServerLive",
    "ServerReady",
    "ModelReady",
    "ServerMetadata",
    "ModelMetadata",
    "ModelInfer",
)
_PACKAGE = "inference"
# Message -> its fields, "type name number". A type with a capital is a message; "*" is repeated.
_MESSAGES: dict[str, str] = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "bool live 1",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "bool ready 1",
    "ModelReadyRequest": "string name 1; string version 2",
    "ModelReadyResponse": "bool ready 1",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "string name 1; string version 2; string* extensions 3",
    "ModelMetadataRequest": "string name 1; string version 2",
    "ModelMetadataResponse": (
        "string name 1; string* versions 2; string platform 3; "
        "ModelMetadataResponse.TensorMetadata* inputs 4; "
        "ModelMetadataResponse.TensorMetadata* outputs 5; "
        # Not Triton's, but MLServer's.
        "parameters 6"
    ),
    "ModelMetadataResponse.TensorMetadata": "string name 1; string datatype 2; int64* shape 3",
    "InferParameter": (
        "bool bool_param 1; int64 int64_param 2; string string_param 3; double double_param 4; "
        "uint64 uint64_param 5"
    ),
    "InferTensorContents": (
        "bool* bool_contents 1; int32* int_contents 2; int64* int64_contents 3; "
        "uint32* uint_contents 4; uint64* uint64_contents 5; float* fp32_contents 6; "
        "double* fp64_contents 7; bytes* bytes_contents 8"
    ),
    "ModelInferRequest": (
        "string model_name 1; string model_version 2; string id 3; parameters 4; "
        "ModelInferRequest.InferInputTensor* inputs 5; "
        "ModelInferRequest.InferRequestedOutputTensor* outputs 6; bytes* raw_input_contents 7"
    ),
    "ModelInferRequest.InferInputTensor": (
        "string name 1; string datatype 2; int64* shape 3; parameters 4; "
        "InferTensorContents contents 5"
    ),
    "ModelInferRequest.InferRequestedOutputTensor": "string name 1; parameters 2",
    "ModelInferResponse": (
        "string model_name 1; string model_version 2; string id 3; parameters 4; "
        "ModelInferResponse.InferOutputTensor* outputs 5; bytes* raw_output_contents 6"
    ),
    "ModelInferResponse.InferOutputTensor": (
        "string name 1; string datatype 2; int64* shape 3; parameters 4; "
        "InferTensorContents contents 5"
    ),
}
_ONE_OF = {"InferParameter": "parameter_choice"}  # message -> the oneof that has all its fields
_Field = descriptor_pb2.FieldDescriptorProto


@functools.cache
def messages() -> Any:
    """Returns the classes of the messages, as attributes, such as `ModelInferRequest`."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(_file().SerializeToString())
    return SimpleNamespace(
        **{
            name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
            for name in _MESSAGES
            if "." not in name
        }
    )


def path(method: str) -> str:
    """Returns the path of a method, as gRPC names it."""
    return f"/{SERVICE}/{method}"


def _file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="grpc_service.proto", package=_PACKAGE, syntax="proto3"
    )
    descriptors: dict[str, Any] = {}
    for name, fields in _MESSAGES.items():
        outer, _, inner = name.rpartition(".")
        message = (
            descriptors[outer].nested_type.add(name=inner) if outer else file.message_type.add()
        )
        message.name = inner
        descriptors[name] = message
        for text in filter(None, fields.split("; ")):
            _add_field(message, name, text)
        if name in _ONE_OF:
            message.oneof_decl.add(name=_ONE_OF[name])
            for field in message.field:
                field.oneof_index = 0
    return file


def _add_field(message: Any, path: str, text: str) -> None:
    kind, name, number = text.split() if text.count(" ") == 2 else ("Map*", *text.split())
    field = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
    if kind.endswith("*"):
        field.label = _Field.LABEL_REPEATED
    if kind == "Map*":  # map<string, InferParameter>, which is a message of pairs
        entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
        entry.options.map_entry = True
        _add_field(entry, "", "string key 1")
        _add_field(entry, "", "InferParameter value 2")
        kind = f"{path}.{entry.name}"
    kind = kind.removesuffix("*")
    if kind[0].isupper():
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    else:
        field.type = getattr(_Field, f"TYPE_{kind.upper()}")
