"""Finds and reads TensorFlow's checkpoints, PREFIX.index and PREFIX.data-*.

Variables have their own names in TensorFlow 1's checkpoints. Those of TensorFlow 2 are keyed by a
path through objects; the object graph, stored among the arrays, has the names.
"""

import itertools
import logging
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformers.convert.containers.arrays import is_possible_shape
from keras_transformers.convert.containers.leveldb_table import table_values
from keras_transformers.dependencies import graph_errors
from keras_transformers.files.errors import short_repr

__all__: list[str] = []

_logger = logging.getLogger(__name__)

_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VALUE = "VARIABLE_VALUE"
# Keys of the optimizer and other training state.
_TRAINING = re.compile(r"(.*/)?(optimizer|\.OPTIMIZER_SLOT)/.*")
_LATEST = re.compile(r'^model_checkpoint_path: *"([^"]*)"', re.MULTILINE)


def checkpoints_at(path: Path) -> list[Path]:
    """Returns the prefixes of the checkpoints at a path, without ".index".

    Args:
        path: a folder, a prefix such as ".../model.ckpt-60", or one of its files.
    """
    if path.is_dir():
        return sorted(file.with_suffix("") for file in path.glob("*.index"))
    prefix = path.with_name(re.sub(r"\.(index|data-\d+-of-\d+)$", "", path.name))
    return [prefix] if index_of(prefix).is_file() else []


def checkpoint_prefix(path: Path) -> Path:
    """Returns the prefix of the checkpoint to read; of several, the one in the file `checkpoint`.

    Args:
        path: see `checkpoints_at`.

    Raises:
        FileNotFoundError: there is no checkpoint.
        ValueError: there are several, and no file says which to use.
    """
    prefixes = checkpoints_at(path)
    if not prefixes:
        raise FileNotFoundError(
            f"{path} has no checkpoint, such as model.ckpt-1000.index with its .data-* beside it"
        )
    if len(prefixes) == 1:
        return prefixes[0]
    latest = _latest(path)
    names = ", ".join(prefix.name for prefix in prefixes)
    chosen = next((prefix for prefix in prefixes if prefix.name == latest), None)
    if chosen is None:
        why = f"its file checkpoint names {latest!r}" if latest else "it has no file checkpoint"
        raise ValueError(
            f"{path} has the checkpoints {names}, and {why}: pass the one to load as the path, "
            f"such as {prefixes[-1]}"
        )
    _logger.info("%s has %s: using %s, named in its file checkpoint", path, names, latest)
    return chosen


def is_object_based(prefix: Path) -> bool:
    """Returns whether a checkpoint is TensorFlow 2's; ValueError if it is damaged."""
    return _GRAPH.encode() in index_of(prefix).read_bytes()


def index_mentions(path: Path, mark: bytes) -> bool:
    """Returns whether a TensorFlow 2 checkpoint has names that contain this mark.

    Args:
        path: see `checkpoints_at`; of several checkpoints, the first is searched.
        mark: part of a name. In an index, names omit the start that they share with the previous
            name.
    """
    prefixes = checkpoints_at(path)[:1]
    return any(
        is_object_based(prefix) and mark in index_of(prefix).read_bytes() for prefix in prefixes
    )


def _latest(folder: Path) -> str:
    """Returns the name of the checkpoint in a folder's file `checkpoint`; "" if there is none."""
    file = folder / "checkpoint"
    if not file.is_file():
        return ""
    match = _LATEST.search(file.read_text(encoding="utf-8", errors="replace"))
    # It may be a path from another machine or operating system.
    return re.split(r"[/\\]", match[1])[-1] if match else ""


def index_of(prefix: Path) -> Path:
    """Returns the file that lists a checkpoint's variables."""
    return prefix.with_name(f"{prefix.name}.index")


@dataclass(frozen=True)
class StoredVariables:
    """The variables in a checkpoint of either kind; values are read on request.

    Attributes:
        prefix: the checkpoint.
        shapes: key -> shape, for all variables, including the optimizer's.
        dtypes: key -> TensorFlow's type.
        names: for TensorFlow 2's checkpoints, key -> the variable's name, without those of
            optimizers and of variables that are not floating-point; None for TensorFlow 1's.
        attributes: the attribute names in TensorFlow 2's object graph, such as "classifier".
    """

    prefix: Path
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, Any]
    names: dict[str, str] | None = None
    attributes: frozenset[str] = frozenset()

    @classmethod
    def open(cls, prefix: Path) -> "StoredVariables":
        """Reads the contents of a checkpoint; ValueError if it is damaged."""
        with _damage(prefix):
            _check_shapes(prefix)
        with _readable(prefix) as reader:
            shapes = {
                str(key): tuple(shape) for key, shape in reader.get_variable_to_shape_map().items()
            }
            dtypes = dict(reader.get_variable_to_dtype_map())
            if _GRAPH not in shapes:
                return cls(prefix, shapes, dtypes)
            graph = reader.get_tensor(_GRAPH)
            names, attributes = _parsed(graph)
        del shapes[_GRAPH]
        names = {
            key: name
            for key, name in names.items()
            if not _TRAINING.fullmatch(key) and key in shapes and dtypes[key].is_floating
        }
        return cls(prefix, shapes, dtypes, names, attributes)

    def read(self, key: str) -> np.ndarray:
        """Reads an array and verifies its checksum; ValueError if it is damaged."""
        with _readable(self.prefix) as reader:
            array: np.ndarray = np.asarray(reader.get_tensor(key))
        return array


def _check_shapes(prefix: Path) -> None:
    """Raises ValueError if a tensor has an impossible shape, or more elements than the data bytes.

    TensorFlow ends the whole process for the first, and makes an object per string before it finds
    the second.
    """
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import tensor_bundle_pb2

    proto: Any = tensor_bundle_pb2  # created at run time, without types
    parts = [part.stat().st_size for part in prefix.parent.glob(f"{prefix.name}.data-*")]
    most = sum(parts)
    # The first is a header.
    for value in itertools.islice(table_values(index_of(prefix).read_bytes()), 1, None):
        try:
            shape = tuple(axis.size for axis in proto.BundleEntryProto.FromString(value).shape.dim)
        except DecodeError as error:
            raise ValueError(f"its index is damaged: {error}") from error
        if not is_possible_shape(shape):
            raise ValueError(f"a tensor has the impossible shape {short_repr(shape)}")
        if parts and math.prod(shape) > most:  # missing files have an error of their own
            raise ValueError(f"a tensor of shape {short_repr(shape)} in {most} bytes of data")


def _parsed(graph: bytes) -> tuple[dict[str, str], frozenset[str]]:
    """Returns key -> name of the variables in an object graph, and its attribute names."""
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    proto: Any = trackable_object_graph_pb2  # created at run time, without types
    objects = proto.TrackableObjectGraph()
    try:
        objects.ParseFromString(graph)
    except DecodeError as error:
        raise ValueError(f"its object graph is damaged: {error}") from error
    names = {
        value.checkpoint_key: value.full_name or value.checkpoint_key
        for node in objects.nodes
        for value in node.attributes
        if value.name == _VALUE
    }
    attributes = frozenset(child.local_name for node in objects.nodes for child in node.children)
    return names, attributes


@contextmanager
def _readable(prefix: Path) -> Iterator[Any]:
    """Opens a checkpoint with TensorFlow's own reader; its errors become ValueErrors."""
    import tensorflow as tf

    with _damage(prefix, tf.errors.OpError, IndexError, RuntimeError, TypeError):
        yield tf.train.load_checkpoint(str(prefix))


@contextmanager
def _damage(prefix: Path, *kinds: type[Exception]) -> Iterator[None]:
    """Turns errors of these kinds, and ValueErrors, into one that names the checkpoint."""
    caught: tuple[type[Exception], ...] = (ValueError, *kinds)
    try:
        yield
    except caught as error:
        reason = " ".join(graph_errors.sentence(str(error)).split())
        raise ValueError(
            f"{prefix}: not a readable checkpoint ({reason}); it may be truncated: download "
            f"{prefix.name}.index and {prefix.name}.data-* again"
        ) from error
