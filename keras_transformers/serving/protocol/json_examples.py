"""Reads the tf.train.Examples of Classify and Regress requests from JSON."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from keras_transformers.dependencies.untyped import Json, Message
from keras_transformers.serving.protocol.errors import invalid
from keras_transformers.serving.protocol.json_values import (
    decimal,
    encode,
    from_base64,
    is_base64,
    shorten,
    type_of,
)
from keras_transformers.serving.protocol.requests import check_context


def read_examples(document: Mapping[str, Any]) -> list[bytes]:
    """Returns the serialized tf.train.Examples of a Classify or Regress request.

    Raises:
        RequestError: the document does not fit the format.
    """
    context = b""
    if "context" in document:
        context = _example(document["context"])
    if "examples" not in document:
        raise invalid(
            f"JSON Value: {shorten(document)} When method is classify, key 'examples' is expected "
            "and was not found"
        )
    examples = document["examples"]
    if not isinstance(examples, list):
        raise invalid(
            f"JSON Value: {shorten(document)} Expecting 'examples' value to be an list/array"
        )
    if not examples:
        raise invalid(f"JSON Value: {shorten(document)} 'examples' value is an empty array")
    check_context(len(context), len(examples))
    # Parsing merges concatenated messages, and later values win.
    return [context + _example(example) for example in examples]


def _example(value: Json) -> bytes:
    """Returns a JSON object of features as a serialized tf.train.Example."""
    if not isinstance(value, dict):
        raise invalid(f"Example must be JSON object but got JSON {type_of(value)}")
    example = tf.train.Example()
    for name, content in value.items():
        feature = example.features.feature[encode(name).decode("utf-8")]
        for item in content if isinstance(content, list) else [content]:
            _add_to_feature(item, name, feature)
    return example.SerializeToString()


def _add_to_feature(value: Json, name: str, feature: Message) -> None:
    item: Any
    if isinstance(value, bool | int):
        kind, item = "int64", int(value)
        if not -(2**63) <= item < 2**63:
            raise invalid(f"Feature: {name} has uint64 element. Only int64 is supported.")
    elif isinstance(value, float):
        kind, item = "float", decimal(value, tf.float32)
    elif isinstance(value, str):
        kind, item = "bytes", encode(value)
    elif is_base64(value):
        kind, item = "bytes", from_base64(value)
    else:
        raise invalid(f"Feature: {name} has element with unexpected JSON type: {type_of(value)}")
    first = (feature.WhichOneof("kind") or f"{kind}_list").removesuffix("_list")
    if first != kind:
        raise invalid(f"Unexpected element type in feature: {name} expecting type: {first}")
    getattr(feature, f"{kind}_list").value.append(item)
