"""Makes a room of this package show its modules and the names in their `__all__`."""

import ast
import contextlib
import functools
import importlib
import importlib.util
import pkgutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keras_transformers.extras import needing


def open_room(
    name: str, *, extra: str | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns a room's `__getattr__` and `__dir__`, which import its modules on first use.

    A room shows every module in its folder and the names in their `__all__`, so a new file needs no
    entry in a list elsewhere. It also shows the public names of its sub-rooms, except for names
    that several of them have.

    Args:
        name: the room's `__name__`.
        extra: the extra that installs the room's optional dependencies, for the error message.
    """

    def look_up(attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        modules = _modules(name)
        with needing(extra) if extra else contextlib.nullcontext():
            if attribute in modules:
                return importlib.import_module(f"{name}.{attribute}")
            for module, names in modules.items():
                if attribute in names:
                    return getattr(importlib.import_module(f"{name}.{module}"), attribute)
        raise AttributeError(
            f"module {name!r} has no attribute {attribute!r}; it has {', '.join(show())}"
        )

    def show() -> list[str]:
        modules = _modules(name)
        return sorted({*modules, *(shown for names in modules.values() for shown in names)})

    return look_up, show


@functools.cache
def _modules(room: str) -> dict[str, tuple[str, ...]]:
    """Returns module -> names that the room shows from it, without importing the modules."""
    spec = importlib.util.find_spec(room)
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    shown: dict[str, tuple[str, ...]] = {}
    sub_rooms = []
    for found in pkgutil.iter_modules(places):
        if found.ispkg:
            sub_rooms.append(found.name)
            inner = _modules(f"{room}.{found.name}").values()
            shown[found.name] = tuple(name for names in inner for name in names)
        else:
            shown[found.name] = _all(Path(places[0], f"{found.name}.py"))
    times = Counter(name for names in shown.values() for name in names)
    for sub_room in sub_rooms:
        shown[sub_room] = tuple(name for name in shown[sub_room] if times[name] == 1)
    return shown


def _all(file: Path) -> tuple[str, ...]:
    for node in ast.parse(file.read_bytes()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return tuple(ast.literal_eval(node.value))
    return ()
