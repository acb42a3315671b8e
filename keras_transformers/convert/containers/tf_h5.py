"""Reads tf_model.h5 of transformers' TensorFlow classes: a file, or shards with an index.

A user's own Keras 2 model around such a class stores the class's weights in the same way, among
those of its other layers, which keep Keras' names and layout here.
"""

import functools
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from keras_transformers.convert.containers.arrays import Arrays, Container
from keras_transformers.convert.containers.hdf5 import hdf5_shapes, is_hdf5, read_hdf5
from keras_transformers.convert.containers.keras_names import (
    KerasWeight,
    as_pytorch_arrays,
    class_of,
)
from keras_transformers.convert.containers.safetensors import shards_of
from keras_transformers.files import read_json

__all__: list[str] = []

_WHOLE = "tf_model.h5"
_INDEX = "tf_model.h5.index.json"
_SAVED = "model_weights"  # where model.save puts what save_weights puts at the root


def open_tf_h5(path: Path) -> Arrays:
    """Opens a `tf_model.h5`, or the shards that a `tf_model.h5.index.json` lists.

    Raises:
        FileNotFoundError: the file, or a shard, does not exist.
        ValueError: a file is damaged or not HDF5, or the index is damaged.
    """
    if path.suffix == ".json":
        return _open_shards(path)
    shapes = hdf5_shapes(path)
    names, model = _names(shapes)
    weights = {
        stored: KerasWeight(names.get(stored, stored), shape, _reader(path, stored))
        for stored, shape in shapes.items()
    }
    others = [weights.pop(stored) for stored in shapes if stored not in names]
    return as_pytorch_arrays(path, weights.values(), others=others, architecture=class_of(model))


def _open_shards(index: Path) -> Arrays:
    weights = [
        KerasWeight(name, shape, _reader(file, name))
        for file in shards_of(index)
        for name, shape in hdf5_shapes(file).items()
    ]
    # The index puts the model's own name before those of most weights; the shards do not.
    models = sorted({name.partition("/")[0] for name in read_json(index)["weight_map"]})
    classes = [name for model in models if (name := class_of(model))]
    return as_pytorch_arrays(index, weights, architecture=classes[0] if classes else "")


def _reader(file: Path, stored: str) -> Callable[[], np.ndarray]:
    return functools.partial(read_hdf5, file, stored)


def _names(stored: Iterable[str]) -> tuple[dict[str, str], str]:
    """Returns path -> name of each weight of transformers' class, and the model's own name.

    A path consists of a layer of the model, the model's own name, a layer, and the rest:
    `mlm___cls/tf_bert_for_masked_lm/bert/embeddings/...`. If a user's model has a BERT as a layer,
    more parts come before `bert`, and the paths of other layers do not contain it.
    """
    paths = {path: path.removeprefix(f"{_SAVED}/").split("/") for path in stored}
    model = next(
        (parts[1] for parts in paths.values() if parts[:1] == parts[2:3] != parts[1:2]), ""
    )
    below = {
        path: parts[2:] if parts[1:2] == [model] else parts[1:] for path, parts in paths.items()
    }
    outer = next((start for parts in below.values() if (start := _above_encoder(parts))), [])
    names = {
        path: "/".join(parts[len(outer) :])
        for path, parts in below.items()
        if parts and parts[: len(outer)] == outer
    }
    return names, model


def _above_encoder(parts: list[str]) -> list[str]:
    """Returns the parts before `bert/embeddings/word_embeddings`, or another encoder's."""
    for index, pair in enumerate(itertools.pairwise(parts)):
        if pair == ("embeddings", "word_embeddings"):
            return parts[: max(0, index - 1)]
    return []


def _find(path: Path) -> Path | None:
    if path.is_file():
        return path if path.name == _INDEX or is_hdf5(path) else None
    return next((file for name in (_WHOLE, _INDEX) if (file := path / name).is_file()), None)


CONTAINER = Container(_WHOLE, 2, _find, open_tf_h5)
