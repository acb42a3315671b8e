"""Reads the weights in an HDF5 file, by path, and nothing else in the file."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

__all__: list[str] = []

_OPTIMIZER = "optimizer_weights/"
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_ENDS = (".h5", ".hdf5")


def is_hdf5(file: Path) -> bool:
    """Returns whether a file is HDF5, by its name or its first bytes."""
    if file.suffix in _ENDS:
        return True
    with file.open("rb") as opened:
        return opened.read(len(_SIGNATURE)) == _SIGNATURE


def hdf5_shapes(file: Path) -> dict[str, tuple[int, ...]]:
    """Returns path -> shape of every array except an optimizer's.

    Raises:
        ValueError: the file is damaged, or has arrays whose values are not in it.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    most = file.stat().st_size

    def visit(path: str, item: Any) -> None:
        if hasattr(item, "dtype") and not path.startswith(_OPTIMIZER):
            # A few bytes can describe an array of any size, or one whose values are elsewhere.
            if item.dtype.kind != "f" or item.nbytes > most or item.external or item.is_virtual:
                raise ValueError(f"{path} of shape {item.shape} holds no weights of this file")
            shapes[path] = tuple(item.shape)

    with _opened(file) as opened:
        opened.visititems(visit)  # does not follow links
    return shapes


def read_hdf5(file: Path, path: str) -> np.ndarray:
    """Reads one array; ValueError if its part of the file is damaged."""
    with _opened(file) as opened:
        array: np.ndarray = opened[path][...]
    return array


def hdf5_attributes(file: Path) -> Mapping[str, Any]:
    """Returns the attributes of a file's root; ValueError if the file is damaged."""
    with _opened(file) as opened:
        return dict(opened.attrs)


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[Any]:
    import h5py

    try:
        with h5py.File(file, "r") as opened:
            yield opened
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:  # all from h5py
        raise ValueError(
            f"{file}: cannot be read as HDF5 weights ({error}): download or save it again"
        ) from error
