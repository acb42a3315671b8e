"""Finds families, tasks, formats and models: the package's own and those of other packages.

A module adds a family by its constant `FAMILY`, named models by `MODELS`, a format by `FORMAT`, and
a task by `TASK` and its `ANSWER`. The package's own folders are searched for these constants; other
packages name such modules or objects as entry points of the group "keras_transformers", or pass
them to `register`. No list names them all.
"""

import functools
import importlib
import importlib.metadata
import logging
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["register"]

GROUP = "keras_transformers"


class _Kind(NamedTuple):
    """Where this package defines a constant, and the attribute of its value that names it."""

    places: tuple[str, ...]
    name: str = ""


_KINDS = {
    "ANSWER": _Kind(("tasks.*.answer",), "task"),
    "CONTAINER": _Kind(("convert.*.*", "families.*.*")),
    "FAMILY": _Kind(("families.*.files",), "model_type"),
    # The first that recognises a folder reads it: the special ones come before the general ones.
    "FORMAT": _Kind(("tasks.*.files", "families.*.*", "convert.formats.*"), "contents"),
    "MODELS": _Kind(("families.*.model",)),  # a mapping by name
    "TASK": _Kind(("tasks.*.task",), "name"),
    "entry_of": _Kind(("families.*.model",)),
}

_logger = logging.getLogger(__name__)


class Member(NamedTuple):
    """The value of a constant, and where it comes from, for messages."""

    value: Any
    source: str


_registered: list[tuple[str, Member]] = []


def register(*things: Any) -> None:
    """Makes families, tasks, formats and models of another package known in this process.

    `load`, `fit`, `list_models`, `export`, the commands and the client then treat them as the
    package's own. A package that is to be known once it is installed names them as entry points
    of the group "keras_transformers" instead.

    Args:
        *things: each a `convert.Family`, a `tasks.Task`, a `convert.Format`, a `models.Entry`,
            or a module that has them as `FAMILY`, `TASK`, `FORMAT` or `MODELS`.

    Raises:
        TypeError: one is nothing of these.
        ValueError: its name is taken, or a model has another number of parameters than its entry
            says; nothing is registered then.

    Example:
        kt.register(acme_models.FAMILY)
    """
    pairs = [pair for thing in things for pair in _members(thing, _source(thing))]
    for constant, member in pairs:
        _check_names(constant, [*members(constant), member])
    _registered.extend(pairs)


def values(constant: str) -> list[Any]:
    """Returns the values of a constant, such as every `FAMILY`: the package's own first.

    Raises:
        ValueError: two other packages use one name.
    """
    return [member.value for member in members(constant)]


def members(constant: str) -> list[Member]:
    """Returns the values of a constant with their sources; see `values`."""
    return [*_own(constant), *additions(constant)]


def additions(constant: str) -> list[Member]:
    """Returns the values that other packages add, with their sources, without the package's own."""
    return [member for name, member in (*_entry_points(), *_registered) if name == constant]


@functools.cache
def _own(constant: str) -> tuple[Member, ...]:
    modules = [name for place in _KINDS[constant].places for name in _modules(place)]
    places = ((name, importlib.import_module(name)) for name in modules)
    return tuple(
        Member(getattr(module, constant), name)
        for name, module in places
        if hasattr(module, constant)
    )


def _modules(place: str) -> list[str]:
    """Returns the names of the package's modules in a place such as "families.*.files"."""
    package = Path(__file__).parent
    files = sorted(package.glob(f"{place.replace('.', '/')}.py"))
    return [
        ".".join([package.name, *file.relative_to(package).with_suffix("").parts])
        for file in files
        if file.name != "__init__.py"
    ]


@functools.cache
def _entry_points() -> tuple[tuple[str, Member], ...]:
    """Returns what installed packages register; one that cannot be imported is left out.

    Raises:
        ValueError: two packages use one name, or a model's entry has a wrong count.
    """
    pairs: list[tuple[str, Member]] = []
    for point in importlib.metadata.entry_points(group=GROUP):
        package = point.dist.name if point.dist else "an unknown package"
        source = f"{package} (entry point {point.name} = {point.value})"
        try:
            addition = point.load()
        except Exception as error:  # whatever another package's import raises
            _logger.warning("%s is left out: it cannot be imported: %r", source, error)
            continue
        pairs += _members(addition, source)
    for constant in {name for name, _ in pairs}:
        others = [member for name, member in pairs if name == constant]
        _check_names(constant, [*_own(constant), *others])
    return tuple(pairs)


def _members(addition: Any, source: str) -> Iterator[tuple[str, Member]]:
    """Yields (constant, member) for all that an addition brings, after checking it.

    Raises:
        TypeError, ValueError: see `register`.
    """
    if isinstance(addition, types.ModuleType):
        constants = {name: getattr(addition, name) for name in _KINDS if hasattr(addition, name)}
    else:
        constants = {"": addition}
    brought: dict[str, Any] = {}
    for constant, value in constants.items():
        whole = value.registered_as() if hasattr(value, "registered_as") else {constant: value}
        brought |= whole
    if brought.keys() - _KINDS.keys() or not brought:
        raise TypeError(
            f"{source}: a {type(addition).__name__} cannot be registered: pass a Family, a Task, a "
            f"Format, an Entry, or a module with one of {', '.join(sorted(_KINDS))}"
        )
    for constant, value in brought.items():
        for part in value.values() if isinstance(value, Mapping) else [value]:
            if hasattr(part, "check_count"):
                try:
                    part.check_count()
                except ValueError as error:
                    raise ValueError(f"{source}: {error}") from error
        yield constant, Member(value, source)


def _check_names(constant: str, members: Iterable[Member]) -> None:
    """Raises ValueError if two members have one name; the message names the sources of both."""
    sources: dict[str, str] = {}
    for value, source in members:
        attribute = _KINDS[constant].name
        names = value if isinstance(value, Mapping) else [getattr(value, attribute, "")]
        for name in filter(None, names):
            if name in sources:
                raise ValueError(
                    f"{constant} {name!r} is registered twice, by {sources[name]} and by {source}: "
                    "rename one, or uninstall its package"
                )
            sources[name] = source


def _source(addition: Any) -> str:
    module = getattr(addition, "__module__", None) or getattr(addition, "__name__", "")
    return f"register({module or type(addition).__name__})"
