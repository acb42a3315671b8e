"""Reads keras-bert's and bert4keras' HDF5 files, written by Keras 2's save or save_weights.

Other layers keep Keras' names and layout, as in `tf_h5`.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from keras_transformers.convert.containers.arrays import Arrays, Container
from keras_transformers.convert.containers.hdf5 import hdf5_shapes, is_hdf5, read_hdf5

__all__: list[str] = []

# Their layer -> Hugging Face's module, outside the encoder's layers and inside them.
_MODULES = {
    "Embedding-Token": "bert.embeddings.word_embeddings",
    "Embedding-Segment": "bert.embeddings.token_type_embeddings",
    "Embedding-Position": "bert.embeddings.position_embeddings",
    "Embedding-Norm": "bert.embeddings.LayerNorm",
    "MLM-Dense": "cls.predictions.transform.dense",
    "MLM-Norm": "cls.predictions.transform.LayerNorm",
    "MLM-Sim": "cls.predictions",
    "MLM-Bias": "cls.predictions",
    "NSP-Dense": "bert.pooler.dense",
    "Pooler-Dense": "bert.pooler.dense",
    "NSP": "cls.seq_relationship",
    "NSP-Proba": "cls.seq_relationship",
}
_NORMS = {
    "MultiHeadSelfAttention-Norm": "attention.output.LayerNorm",
    "FeedForward-Norm": "output.LayerNorm",
}
# The matrices of a layer: keras-bert's suffix -> Hugging Face's module. bert4keras numbers them in
# this order, with one counter for all models in a process.
_DENSES = {
    "MultiHeadSelfAttention": {
        "q": "attention.self.query",
        "k": "attention.self.key",
        "v": "attention.self.value",
        "o": "attention.output.dense",
    },
    "FeedForward": {"1": "intermediate.dense", "2": "output.dense"},
}
_WEIGHTS = {"kernel": "weight", "gamma": "weight", "embeddings": "weight", "beta": "bias"}
# keras-bert counts from 1, bert4keras from 0.
_FIRST = {"Encoder": 1, "Transformer": 0}
_BLOCK = re.compile(r"(Encoder|Transformer)-(\d+)-(.+)")
_AGAIN = re.compile(r"_\d+$")  # Keras adds this to the names in a process's second model
_DENSE = re.compile(r"dense(?:_(\d+))?/(kernel|bias)")


def open_keras_bert_h5(path: Path) -> Arrays:
    """Opens a model's HDF5 file.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is damaged, or several layers have the same name.
    """
    shapes = hdf5_shapes(path)
    names = _names(shapes)
    places: dict[str, str] = {}
    for stored in shapes:
        name = names.get(stored, stored)
        if name in places:
            raise ValueError(
                f"{path}: {places[name]} and {stored} are both {name}: save a model with one BERT"
            )
        places[name] = stored

    def read(name: str) -> np.ndarray:
        array = read_hdf5(path, places[name])
        return array.T if _is_turned(name, places[name]) else array

    stored_shapes = {
        name: shapes[stored][::-1] if _is_turned(name, stored) else shapes[stored]
        for name, stored in places.items()
    }
    return Arrays(path, stored_shapes, read)


def _names(shapes: Iterable[str]) -> dict[str, str]:
    """Returns path -> Hugging Face's name, for the arrays that have one."""
    layers = {path: _layer_and_weight(path) for path in shapes}
    numbers: dict[str, set[int]] = {}  # layer -> the numbers of the dense layers in it
    for layer, weight in layers.values():
        if match := _DENSE.fullmatch(weight):
            numbers.setdefault(layer, set()).add(int(match[1] or 0))
    names = {
        path: _name(layer, weight, sorted(numbers.get(layer, ())))
        for path, (layer, weight) in layers.items()
    }
    return {path: name for path, name in names.items() if name}


def _layer_and_weight(path: str) -> tuple[str, str]:
    """Splits a path, possibly of a nested model, into a layer of theirs and its weight."""
    *groups, last = path.removesuffix(":0").split("/")
    for index in reversed(range(len(groups))):
        layer = _AGAIN.sub("", groups[index])
        if layer in _MODULES or _BLOCK.fullmatch(layer):
            return layer, "/".join([*groups[index + 1 :], last.removeprefix(f"{layer}_")])
    return "", path


def _name(layer: str, weight: str, numbers: list[int]) -> str:
    """Returns Hugging Face's name of a layer's weight; "" if it has none."""
    if layer in _MODULES:
        return f"{_MODULES[layer]}.{_WEIGHTS.get(weight, weight)}"
    block = _BLOCK.fullmatch(layer)
    if block is None:
        return ""
    kind = block[3]
    if kind in _NORMS:
        part = _NORMS[kind]
    else:
        matrices = _DENSES.get(kind, {})
        if (dense := _DENSE.fullmatch(weight)) and len(numbers) == len(matrices):
            part = list(matrices.values())[numbers.index(int(dense[1] or 0))]
            weight = dense[2]
        else:
            part = matrices.get(weight[1:], "")
            weight = {"W": "kernel", "b": "bias"}.get(weight[0], "")
        if not part or not weight:
            return ""
    number = int(block[2]) - _FIRST[block[1]]
    return f"bert.encoder.layer.{number}.{part}.{_WEIGHTS.get(weight, weight)}"


def _is_turned(name: str, stored: str) -> bool:
    """Returns whether PyTorch's array is transposed: not for tables or for other layers."""
    return name != stored and not stored.removesuffix(":0").endswith("/embeddings")


def _find(path: Path) -> Path | None:
    if not path.is_file() or not is_hdf5(path):
        return None
    try:
        return path if any("Embedding-Token" in stored for stored in hdf5_shapes(path)) else None
    except ValueError:  # another container reports the error
        return None


CONTAINER = Container("keras-bert's .h5", 1, _find, open_keras_bert_h5)
