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
    def places() -> dict[str, str]:
        return _places(Path(file).with_suffix(".pyi"))

    def look_up(attribute: str) -> Any:
        if attribute not in places():
            raise AttributeError(
                f"module {name!r} has no attribute {attribute!r}; it has {', '.join(show())}"
            )
        with needing(extra) if extra else contextlib.nullcontext():
            if place := places()[attribute]:
                return getattr(importlib.import_module(f"{name}.{place}"), attribute)
            return importlib.import_module(f"{name}.{attribute}")

    def show() -> list[str]:
        return sorted(places())

    return look_up, show


def _places(stub: Path) -> dict[str, str]:
    """Returns each name that a stub imports -> the module that defines it; "" for modules."""
    return {
        alias.name: node.module or ""
        for node in ast.parse(stub.read_bytes()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
