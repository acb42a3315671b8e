"""Defines how requests name models, and the signatures of a loaded SavedModel."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from keras_transformers.dependencies.untyped import Message

DEFAULT_SIGNATURE = "serving_default"
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class ModelSpec:
    """The model and version that a request is for.

    Attributes:
        name: the model's name.
        version: its number; None for the label's version or the latest.
        label: a version's label; None or empty for none.
    """

    name: str
    version: int | None = None
    label: str | None = None


@dataclass(frozen=True)
class TensorInfo:
    """One input or output of a signature.

    Attributes:
        tensor: the tensor's name in the graph, such as "serving_default_text:0".
        dtype: its tf.DType.
        shape: its dimensions, with None for unknown ones; None if the rank is unknown.
    """

    tensor: str
    dtype: Any
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True)
class SignatureInfo:
    """One entry point of a SavedModel.

    Attributes:
        name: the name that requests give.
        method_name: the API that it belongs to, such as "tensorflow/serving/classify".
        inputs: name -> tensor.
        outputs: name -> tensor.
        reads_tokens: whether its cost depends only on how many tokens its texts have.
    """

    name: str
    method_name: str
    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo]
    reads_tokens: bool = False

    @property
    def takes_batches(self) -> bool:
        """Whether rows of several requests may run together without changing any answer.

        They may if the first dimension of every input and output is free and no other dimension of
        an output is: that would be as long as the batch's longest row, so an answer would depend on
        other requests.
        """
        shapes = [info.shape for info in (*self.inputs.values(), *self.outputs.values())]
        if any(not shape or shape[0] is not None for shape in shapes):
            return False
        return all(None not in (info.shape or (None,))[1:] for info in self.outputs.values())


class Servable(Protocol):
    """The part of a loaded model that the protocol needs.

    Attributes:
        signatures: name -> signature.
        definitions: name -> SignatureDef from the file, including the initializer's.
    """

    signatures: dict[str, SignatureInfo]
    definitions: dict[str, Message]
