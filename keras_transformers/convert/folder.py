"""Opens a folder of weights once, for all that read it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from keras_transformers.convert.containers.arrays import (
    Arrays,
    Container,
    containers_in,
    open_arrays,
)
from keras_transformers.files import read_json

__all__ = ["Folder"]

P = ParamSpec("P")
T = TypeVar("T")


class Folder(os.PathLike[str]):
    """A folder of weights, or a single file or a checkpoint's prefix; each file is read once.

    It is made where a path comes in, and handed down to everything that reads from there. Functions
    that take a path take it too.

    Args:
        path: the folder, file or prefix.
        described_by: the folder with the JSON files, if `path` has only others.

    Attributes:
        path: the folder, file or prefix.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, described_by: "Folder | None" = None
    ) -> None:
        self.path = Path(path)
        self._described_by = described_by
        self._results: dict[Any, Any] = {}

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> "Folder":
        """Returns the folder at a path, or the same one if it is already opened."""
        return path if isinstance(path, Folder) else cls(path)

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    @property
    def directory(self) -> Path:
        """The folder, or the one that the file or checkpoint is in."""
        return self.path if self.path.is_dir() else self.path.parent

    def file(self, name: str) -> Path:
        """Returns the path of a file in the folder; if it is a single file, that one."""
        return self / name if self.path.is_dir() else self.path

    def json(self, name: str, *, missing_ok: bool = False) -> dict[str, Any]:
        """Returns the contents of a JSON file; all callers share them, so none may change them.

        Args:
            name: the file's name.
            missing_ok: whether a file that does not exist counts as an empty object.

        Raises:
            FileNotFoundError: the file does not exist.
            ValueError: it does not hold a JSON object.
        """
        if self._described_by is not None:
            return self._described_by.json(name, missing_ok=missing_ok)
        if missing_ok and not (self / name).is_file():
            return {}
        if name not in self._results:
            self._results[name] = read_json(self / name)
        contents: dict[str, Any] = self._results[name]
        return contents

    @property
    def containers(self) -> tuple[tuple[Container, Path], ...]:
        """The containers of arrays there, with their files, by rank."""
        return self.once(containers_in, self.path)

    @property
    def arrays(self) -> Arrays:
        """The arrays there; see `open_arrays` for the errors."""
        return self.once(open_arrays, self.path, self.containers)

    def once(self, read: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Returns what a function reads with these arguments, which it does only the first time."""
        key = (read, arguments, *options.items())
        if key not in self._results:
            self._results[key] = read(*arguments, **options)
        result: T = self._results[key]
        return result
