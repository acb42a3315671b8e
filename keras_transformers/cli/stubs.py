"""Writes the type stubs of the package and its rooms; rooms also read their names from them.

    python -m keras_transformers.cli.stubs      # `make stubs`; a test compares the files

A room exposes every module in its folder, the names in their `__all__`, and the public names of
its sub-rooms, except names that several of them have. A new file needs no entry in a list:
`make stubs` finds it. The package's own stub has the factories of all models with their
arguments, and the type that `load` returns for each task.
"""

import ast
import inspect
import pkgutil
import types
import typing
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras

import keras_transformers as kt
from keras_transformers import registry
from keras_transformers.files.writing import write_lines  # its room may have no stub yet

PACKAGE = Path(kt.__file__).parent
_HEADER = "# Written by `make stubs`."
_STUB = "__init__.pyi"


def stubs() -> Iterator[tuple[Path, list[str]]]:
    """Yields each stub and its lines, those of rooms first, because rooms need their stub."""
    for file in sorted(PACKAGE.rglob("__init__.py")):
        if "open_room(" in file.read_text(encoding="utf-8"):
            yield file.with_suffix(".pyi"), [_HEADER, "", *_room(file.parent)]
    yield PACKAGE / _STUB, [_HEADER, "", *_package()]


def _room(room: Path) -> Iterator[str]:
    modules = _modules(room)
    for module in modules:
        yield f"from . import {module} as {module}"
    for place in _constant(room / "__init__.py", "MODULES") or ():
        *parents, module = place.split(".")
        if "*" not in place:
            yield f"from {'.'.join(['keras_transformers', *parents])} import {module} as {module}"
        else:  # a family's file is known by the family's name
            for file in _files(place):
                yield f"from {_dotted(file.parent)} import {module} as {file.parent.name}"
    for module, names in modules.items():
        for name, place in sorted(names.items()):
            if name not in modules:
                yield f"from .{module}{place} import {name} as {name}"
    places = _constant(room / "__init__.py", "SHOWS") or ()
    files = [file for place in places for file in _files(place) if file.parent != room]
    times = Counter(name for file in files for name in public_names(file))
    for file in files:
        for name in sorted(public_names(file)):
            if times[name] == 1:
                yield f"from {_dotted(file.with_suffix(''))} import {name} as {name}"


def _files(place: str) -> list[Path]:
    """Returns the files of modules such as "tasks.*.head", in the order of their names."""
    files = PACKAGE.glob(f"{place.replace('.', '/')}.py")
    return sorted(file for file in files if file.name != "__init__.py")


def _dotted(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).parts)


def _modules(room: Path) -> dict[str, dict[str, str]]:
    """Returns module -> its public names -> their place below it: "" or ".sub.module".

    A room that lists what it `SHOWS` does not show the names of its sub-rooms.
    """
    shown: dict[str, dict[str, str]] = {}
    sub_rooms = []
    for module in pkgutil.iter_modules([str(room)]):
        if not module.ispkg:
            shown[module.name] = dict.fromkeys(public_names(room / f"{module.name}.py"), "")
        elif _constant(room / "__init__.py", "SHOWS") is not None:
            shown[module.name] = {}
        else:
            sub_rooms.append(module.name)
            shown[module.name] = {
                name: f".{inner}{place}"
                for inner, names in _modules(room / module.name).items()
                for name, place in names.items()
            }
    times = Counter(name for names in shown.values() for name in names)
    for sub_room in sub_rooms:
        shown[sub_room] = {name: p for name, p in shown[sub_room].items() if times[name] == 1}
    return shown


def public_names(file: Path) -> tuple[str, ...]:
    """Returns the names in a module's `__all__`, without importing the module."""
    return _constant(file, "__all__") or ()


def _constant(file: Path, name: str) -> tuple[str, ...] | None:
    """Returns the strings of a module's constant; None if it has no such constant."""
    for node in ast.parse(file.read_bytes()).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if ast.unparse(target) == name:
                return tuple(ast.literal_eval(node.value))
    return None


def _package() -> Iterator[str]:
    imports: set[str] = set()
    factories = [
        f"def {entry.name}({_parameters(entry.factory, imports)}) -> "
        f"{_annotation(inspect.signature(entry.factory).return_annotation, imports)}: ..."
        for entry in registry.own("MODELS")  # which needs the models' rooms
    ]
    verbs = [*_load(imports), _fit(imports)]
    yield from sorted(imports)
    rooms = [room.name for room in pkgutil.iter_modules([str(PACKAGE)])]
    for name in sorted(rooms):
        yield f"from . import {name} as {name}"
    for name, module in vars(kt)["_NAMES"].items():
        if name not in ("load", "fit"):
            yield f"from .{module} import {name} as {name}"
    yield from ("", "__version__: str", "")
    yield from verbs
    yield from factories


def _load(imports: set[str]) -> Iterator[str]:
    """Yields `load` for each task, with its options and its pipeline, and for any task."""
    from keras_transformers.tasks.pipeline import Pipeline

    imports |= {"import os", "from typing import Literal, overload"}
    every: dict[str, set[str]] = {}
    for task in registry.own("TASK"):
        if task.made_by:
            continue
        options = {
            option: _annotation(parameter.annotation, imports)
            for option, parameter in task.options.items()
        }
        for option, annotation in options.items():
            every.setdefault(option, set()).update(annotation.split(" | "))
        yield from _overload(f'Literal["{task.name}"]', options, task.pipeline, imports)
    union = {option: " | ".join(sorted(parts)) for option, parts in every.items()}
    yield from _overload("str | None = None", union, Pipeline, imports)


def _overload(
    kind: str, options: Mapping[str, str], pipeline: type, imports: set[str]
) -> Iterator[str]:
    imports.add(f"from {pipeline.__module__} import {pipeline.__name__}")
    arguments = ", ".join(f"{name}: {annotation} = ..." for name, annotation in options.items())
    path = "str | os.PathLike[str]"
    yield "@overload"
    yield (
        f"def load(path: {path}, *, pipeline: {kind}, adapter: {path} | None = None, {arguments}) "
        f"-> {pipeline.__name__}: ..."
    ).replace(", )", ")")


def _fit(imports: set[str]) -> str:
    """Returns `fit` with the options of all tasks."""
    from keras_transformers.fitting.fit import fit, option_names

    imports.add("import keras")
    options: dict[str, str] = {}
    trainers = [trainer for task in registry.own("TASK") if (trainer := task.trainer())]
    trainers += [few for trainer in trainers if (few := trainer.few_shot())]
    for trainer in trainers:
        hints = typing.get_type_hints(trainer.fit_options())
        for name in sorted(option_names(trainer)):
            options[name] = _annotation(hints[name], imports)
    signature = inspect.signature(fit)
    hints = typing.get_type_hints(fit)
    named = {
        name: f"{name}: {_annotation(hints[name], imports)}"
        + ("" if parameter.default is parameter.empty else " = ...")
        for name, parameter in signature.parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD
    }
    positional = [
        named.pop(name)
        for name, parameter in signature.parameters.items()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    others = [
        f"{name}: {annotation} = ..."
        for name, annotation in options.items()
        if name not in signature.parameters
    ]
    arguments = ", ".join([*positional, "*", *named.values(), *others])
    return f"def fit({arguments}) -> {_annotation(hints['return'], imports)}: ..."


def _parameters(factory: Any, imports: set[str]) -> str:
    parts = (
        f"{parameter.name}: {_annotation(parameter.annotation, imports)} = ..."
        for parameter in inspect.signature(factory).parameters.values()
    )
    return ", ".join(["*", *parts])


def _annotation(annotation: Any, imports: set[str]) -> str:
    """Returns an annotation as written in a stub, and adds the imports that it needs."""
    if annotation is None or annotation is types.NoneType:
        return "None"
    if annotation is Any:
        imports.add("from typing import Any")
        return "Any"
    if isinstance(annotation, list):  # the arguments of a Callable
        return f"[{', '.join(_annotation(argument, imports) for argument in annotation)}]"
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        imports.add("from typing import Literal")
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if origin in (typing.Union, types.UnionType):
        return " | ".join(_annotation(argument, imports) for argument in arguments)
    if origin is not None:
        inner = ", ".join("..." if a is ... else _annotation(a, imports) for a in arguments)
        return f"{_annotation(origin, imports)}[{inner}]"
    module = annotation.__module__
    if module == "builtins":
        return annotation.__name__
    if module.partition(".")[0] == "keras":
        imports.add("import keras")
        room = "callbacks." if issubclass(annotation, keras.callbacks.Callback) else ""
        return f"keras.{room}{annotation.__name__}"
    imports.add(f"from {module} import {annotation.__name__}")
    return annotation.__name__


def main() -> None:
    """Writes every stub, and removes those of deleted rooms."""
    written = set()
    for file, lines in stubs():
        write_lines(file, lines)
        written.add(file)
    for file in set(PACKAGE.rglob(_STUB)) - written:
        file.unlink()


if __name__ == "__main__":
    main()
