"""Converts the weights of transformers' TensorFlow classes to PyTorch's names and layout.

Keras' names are paths of layers: `bert/encoder/layer_._0/output/dense/kernel:0` is PyTorch's
`bert.encoder.layer.0.output.dense.weight`, transposed.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from keras_transformers.convert.containers.arrays import Arrays

__all__: list[str] = []

_WEIGHTS = {"kernel": "weight", "gamma": "weight", "embeddings": "weight", "beta": "bias"}
# Number of axes of a kernel -> PyTorch's order of them: (height, width, in, out) becomes (out, in,
# height, width).
_AXES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 2, 0, 1)}
_UPPER = {"lm": "LM", "mt": "MT"}


@dataclass(frozen=True)
class KerasWeight:
    """A weight of a TensorFlow class.

    Attributes:
        name: Keras' name within the model, such as "bert/pooler/dense/kernel:0".
        shape: the weight's shape.
        read: returns the weight's values.
    """

    name: str
    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]


def as_pytorch_arrays(
    source: Path,
    weights: Iterable[KerasWeight],
    *,
    others: Iterable[KerasWeight] = (),
    architecture: str = "",
) -> Arrays:
    """Returns weights under PyTorch's names and in PyTorch's layout.

    A weight that several layers share is stored with each of them, but returned only once.

    Args:
        source: the file or folder that holds them.
        weights: the weights of one of transformers' classes.
        others: the weights of other layers, which keep Keras' names and layout.
        architecture: the class that wrote them, if it is known.

    Raises:
        ValueError: copies of a shared weight have different shapes. If their values differ, reading
            raises it.
    """
    stored: dict[str, list[KerasWeight]] = {}
    for weight in weights:
        stored.setdefault(_pytorch_name(weight.name), []).append(weight)
    for name, (first, *copies) in stored.items():
        for copy in copies:
            if copy.shape != first.shape:
                raise ValueError(
                    f"{source}: {first.name} is {first.shape} and {copy.name} {copy.shape}, but "
                    f"both are {name}: save the model again"
                )

    other_weights = {other.name: other for other in others}

    def read(name: str) -> np.ndarray:
        if name in other_weights:
            return other_weights[name].read()
        first, *copies = stored[name]
        array = first.read()
        for copy in copies:
            if not np.array_equal(array, copy.read(), equal_nan=True):
                raise ValueError(
                    f"{source}: {copy.name} and {first.name} have different values, but are one "
                    f"shared weight, {name}: save the model again"
                )
        return _stored(first.name, array)

    # A broadcast number takes no memory, and gets the shape that the values would get.
    shapes = {
        name: _stored(first.name, np.broadcast_to(np.float32(0), first.shape)).shape
        for name, (first, *_) in stored.items()
    }
    shapes |= {name: other.shape for name, other in other_weights.items()}
    return Arrays(source, shapes, read, architecture)


def is_keras_name(name: str) -> bool:
    """Returns whether a name comes from Keras 2, whose names end in ":0"."""
    return name.endswith(":0")


def class_of(name: str) -> str:
    """Returns the class after which Keras named a model; "" for other names.

    Keras splits words at capitals, so the case may differ: "GPT2LMHead" became "gp_t2lm_head".

    Example:
        >>> class_of("tf_bert_for_masked_lm_1"), class_of("my_model")
        ('BertForMaskedLM', '')
    """
    match = re.fullmatch(r"tf_?([a-z]\w*?)(_\d+)?", name)
    if match is None:
        return ""
    return "".join(_UPPER.get(word, word.capitalize()) for word in match[1].split("_"))


def _pytorch_name(name: str) -> str:
    *modules, last = name.removesuffix(":0").split("/")
    if modules[:1] == modules[1:2]:  # a shared layer: shared/shared/embeddings
        modules = modules[1:]
    modules = [module.rpartition("___")[2].replace("_._", ".") for module in modules]
    return ".".join([*modules, _WEIGHTS.get(last, last)])


def _stored(name: str, array: np.ndarray) -> np.ndarray:
    """Returns a weight as PyTorch stores it."""
    last = name.removesuffix(":0").rpartition("/")[2]
    if last == "kernel" and array.ndim in _AXES:
        return array.transpose(_AXES[array.ndim])
    if last == "bias" and array.ndim == 2 and len(array) == 1:  # GPT-2 stores them as rows
        return array[0]
    return array
