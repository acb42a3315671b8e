"""Reads named arrays from a file or folder of any kind.

A container is a way to store arrays: safetensors, HDF5, a pickle, a checkpoint. It returns them
under the names, and in the layout, of Hugging Face's PyTorch classes, so every family can read
every container without code of its own. A module in this folder registers its container by
defining `CONTAINER`; no list names it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformers import registry
from keras_transformers.convert.containers.not_read import POINTER, not_read_in

__all__ = ["Arrays", "Container", "open_arrays"]

_MOST_DIMENSIONS = 32  # NumPy 1's limit
_MOST_BYTES = 2**63 - 1


def is_possible_shape(shape: Sequence[Any]) -> bool:
    """Returns whether a shape from a file can be an array's, also if the array is empty.

    NumPy rejects an array without elements whose other sizes would overflow.
    """
    return (
        len(shape) <= _MOST_DIMENSIONS
        and all(type(size) is int and size >= 0 for size in shape)
        and math.prod(size or 1 for size in shape) <= _MOST_BYTES // 8
    )


@dataclass(frozen=True)
class Arrays(Mapping[str, np.ndarray]):
    """Arrays by name, each read on request.

    Attributes:
        source: the file or folder that holds them, for error messages.
        shapes: name -> shape.
        read: takes a name; returns the array, with the file's dtype. Its caller owns a writeable
            array, so that a variable can take over its memory; others are read-only. ValueError if
            that part of the file is damaged.
        architecture: the class that wrote them, such as "BertForTokenClassification", if the
            container says so; "" otherwise.
        lend: like `read`, but all calls use the same memory; None if it is no different.
    """

    source: Path
    shapes: Mapping[str, tuple[int, ...]]
    read: Callable[[str], np.ndarray]
    architecture: str = ""
    lend: Callable[[str], np.ndarray] | None = None

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.shapes:
            raise KeyError(name)
        return self.read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def lent(self, name: str) -> np.ndarray:
        """Returns an array to copy from, which the next one that is lent may overwrite."""
        return (self.lend or self.read)(name)

    @classmethod
    def of(cls, source: Path, arrays: Mapping[str, np.ndarray]) -> "Arrays":
        """Wraps arrays that are already in memory."""
        shapes = {name: array.shape for name, array in arrays.items()}
        return cls(source, shapes, lambda name: _read_only(arrays[name]))

    def renamed(self, rename: Callable[[str], str]) -> "Arrays":
        """Returns the same arrays under other names.

        Raises:
            ValueError: two arrays would have the same name.
        """
        names: dict[str, str] = {}
        for name in self.shapes:
            new = rename(name)
            if new in names:
                raise ValueError(
                    f"{self.source}: {names[new]} and {name} are both {new}: remove one of them"
                )
            names[new] = name
        shapes = {new: self.shapes[name] for new, name in names.items()}
        return replace(
            self,
            shapes=shapes,
            read=lambda new: self.read(names[new]),
            lend=lambda new: self.lent(names[new]),
        )

    def without(self, *names: str) -> "Arrays":
        """Returns all arrays except these."""
        kept = {name: shape for name, shape in self.shapes.items() if name not in names}
        return replace(self, shapes=kept)

    def including(self, name: str, array: np.ndarray) -> "Arrays":
        """Returns the arrays with one added or replaced."""
        shapes = {**self.shapes, name: array.shape}
        view = _read_only(array)
        return replace(
            self,
            shapes=shapes,
            read=lambda wanted: view if wanted == name else self.read(wanted),
            lend=lambda wanted: view if wanted == name else self.lent(wanted),
        )


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True)
class Container:
    """A way to store named arrays.

    Attributes:
        contents: the kind of file, for error messages, such as "model.safetensors".
        rank: of several containers in a folder, the one with the lowest rank is used.
        find: takes a folder or file; returns the file of this kind there, or None. It looks at
            names and at most the first bytes.
        open: takes the file from `find`; reads names and shapes. FileNotFoundError if a part is
            missing, ValueError if one is damaged.
    """

    contents: str
    rank: int
    find: Callable[[Path], Path | None]
    open: Callable[[Path], Arrays]

    def registered_as(self) -> Iterator[tuple[str, Any]]:
        """Yields (constant, value) for all that registering it registers."""
        yield "CONTAINER", self


def open_arrays(path: Path, containers: Sequence[tuple[Container, Path]] | None = None) -> Arrays:
    """Opens the arrays in a file or folder; reads no values yet.

    Args:
        path: a file, or a folder with a file of a known kind; if there are several, the first by
            `rank` is used. Also a checkpoint's prefix, which is not a file.
        containers: what `containers_in` yields for it, if already known.

    Raises:
        FileNotFoundError: the path does not exist, the folder has no file of a known kind, or a
            part is missing.
        ValueError: a file is damaged or of an unknown kind.
    """
    for container, file in containers_in(path) if containers is None else containers:
        for other in not_read_in(file) if file.is_file() else []:
            if other.contents == POINTER:
                raise ValueError(f"{file} is {other}")
        return container.open(file)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: pass a file or folder of weights")
    kinds = ", ".join(container.contents for container in all_containers())
    others = "; ".join(map(str, not_read_in(path)))
    if path.is_file():
        what = f"it is {others}" if others else f"expected one of {kinds}"
        raise ValueError(f"{path}: a file of unknown format; {what}")
    has = f"{path} has {others}. It " if others else f"{path} "
    raise FileNotFoundError(f"{has}has no file of weights that can be read here, such as {kinds}")


def containers_in(path: Path) -> tuple[tuple[Container, Path], ...]:
    """Returns the containers in a folder, or that of a file, with their files, by rank."""
    files = ((container, container.find(path)) for container in all_containers())
    return tuple((container, file) for container, file in files if file is not None)


def all_containers() -> tuple[Container, ...]:
    """Returns every registered container, by rank."""
    return tuple(sorted(registry.values("CONTAINER"), key=lambda container: container.rank))
