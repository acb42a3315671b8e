"""Lets a room of this package expose its modules and public names, imported on first use."""

import ast
import contextlib
import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keras_transformers.dependencies.extras import needing


def open_room(
    name: str, file: str, *, extra: str | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns a room's `__getattr__` and `__dir__`, which import its modules on first use.

    The room's stub, `__init__.pyi`, lists the names, for editors too; `make stubs` writes it.

    Args:
        name: the room's `__name__`.
        file: the room's `__file__`.
        extra: the extra that installs the room's optional dependencies, for the error message.
    """

    @functools.cache
    def places() -> dict[str, tuple[str, str]]:
        return _places(name, Path(file).with_suffix(".pyi"))

    def look_up(attribute: str) -> Any:
        if attribute not in places():
            raise AttributeError(
                f"module {name!r} has no attribute {attribute!r}; it has {', '.join(show())}"
            )
        with needing(extra) if extra else contextlib.nullcontext():
            module, member = places()[attribute]
            if module == name:
                return importlib.import_module(f"{name}.{member}")
            return getattr(importlib.import_module(module), member)

    def show() -> list[str]:
        return sorted(places())

    return look_up, show


def _places(room: str, stub: Path) -> dict[str, tuple[str, str]]:
    """Returns each name that a room's stub imports -> its module, and its name there."""
    return {
        alias.asname or alias.name: (
            ".".join(filter(None, [room, node.module])) if node.level else str(node.module),
            alias.name,
        )
        for node in ast.parse(stub.read_bytes()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
