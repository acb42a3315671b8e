"""Finds families, tasks, formats and models: the package's own and those of other packages.

A module adds a family by its constant `FAMILY`, named models by `MODELS`, a format by `FORMAT`, a
task by `TASK`, its answer by `ANSWER`, and a tokenizer's class by `TOKENIZER`. The package's own
folders are searched for these constants; other packages name such modules or objects as entry
points of the group "keras_transformers", or pass them to `register`. No list names them all.
"""

import functools
import importlib
import importlib.metadata
import logging
import re
import sys
import threading
import traceback
import types
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["register"]

GROUP = "keras_transformers"


class _Kind(NamedTuple):
    """What a constant names: the attribute with its name, and where this package defines it.

    An entry point whose object is such a constant is loaded only for it, and for what it `brings`.
    """

    name: str
    places: tuple[str, ...]
    brings: tuple[str, ...] = ()


_KINDS = {
    "ANSWER": _Kind("task", ("tasks.*.answer",)),
    "CONTAINER": _Kind("contents", ("convert.*.*", "families.*.*")),
    "FAMILY": _Kind("model_type", ("families.*.files",), brings=("MODELS",)),
    # The first that recognises a folder reads it: the special ones come before the general ones.
    "FORMAT": _Kind("contents", ("tasks.*.files", "families.*.*", "convert.formats.*")),
    "MODELS": _Kind("name", ("families.*.model",)),  # a mapping
    "TASK": _Kind("name", ("tasks.*.task",)),
    "TOKENIZER": _Kind("__name__", ()),  # a class; the package's own are in its room
    "entry_of": _Kind("__module__", ("families.*.model",)),
}

_PLAIN = ("TOKENIZER", "entry_of")  # a class and a function, which do not say what they are

_logger = logging.getLogger(__name__)


class Member(NamedTuple):
    """A family, a task and so on, and where it comes from, for messages."""

    constant: str
    value: Any
    source: str

    @property
    def name(self) -> str:
        """The name, of which there may be one for a constant."""
        return str(getattr(self.value, _KINDS[self.constant].name))


# What each entry point adds, once it is loaded, and each call of `register`.
_additions: dict[object, tuple[Member, ...]] = {}
_lock = threading.Lock()
_this_thread = threading.local()


def register(*things: Any) -> None:
    """Makes families, tasks, formats and models of another package known in this process.

    `load`, `fit`, `list_models`, `export`, the commands and the client then treat them as the
    package's own. A package that is to be known once it is installed names them as entry points
    of the group "keras_transformers" instead.

    Args:
        *things: each a `convert.Family`, which has models, a `tasks.Task`, which has an answer, a
            `convert.Format`, a `models.Entry`, or a module that has them as `FAMILY`, `TASK`,
            `FORMAT` or `MODELS`, or the class of a tokenizer as `TOKENIZER`.

    Raises:
        TypeError: one is nothing of these.
        ValueError: its name is taken; a model has another number of parameters than its entry
            says; or a task, its answer and its pipeline have different names. Nothing is
            registered then.

    Example:
        kt.register(acme_models.FAMILY)
    """
    caller = traceback.extract_stack(limit=2)[0]
    source = f"register(...) in {caller.filename}, line {caller.lineno}"
    members = [member for thing in things for member in _members(thing, source)]
    for constant in {member.constant for member in members}:
        additions(constant)  # whose names are taken too
    _add(object(), members)


def values(constant: str) -> Iterator[Any]:
    """Yields the values of a constant, such as every `FAMILY`.

    The package's own come first: who finds what it looks for among them imports no other package.

    Raises:
        ValueError: two have one name, or one fails the checks of `register`.
    """
    yield from own(constant)
    yield from additions(constant)


def own(constant: str) -> list[Any]:
    """Returns this package's values of a constant."""
    return [member.value for member in _own(constant)]


def additions(constant: str) -> list[Any]:
    """Returns the values that other packages add, without the package's own; see `values`."""
    loading = _this_thread.__dict__.setdefault("loading", set())
    for point in entry_points(GROUP):
        kind = _KINDS.get(point.attr)
        may_bring = kind is None or constant in (point.attr, *kind.brings)
        # A package that asks for a family while it is imported gets those of other packages.
        if may_bring and point not in _additions and point not in loading:
            loading.add(point)
            try:
                _load(point)
            finally:
                loading.remove(point)
    return [member.value for member in _added() if member.constant == constant]


def entry_points(group: str) -> tuple[EntryPoint, ...]:
    """Returns the entry points of a group that can be imported now, of all installed packages."""
    return _entry_points(group, tuple(sys.path))


def source_of(point: EntryPoint) -> str:
    """Returns the package and name of an entry point, for messages."""
    package = f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"
    return f"{package} (entry point {point.name} = {point.value})"


@functools.cache
def _own(constant: str) -> tuple[Member, ...]:
    modules = [name for place in _KINDS[constant].places for name in _modules(place, constant)]
    constants = {name: vars(importlib.import_module(name)).get(constant) for name in modules}
    return tuple(
        Member(constant, part, name)
        for name, value in constants.items()
        if value is not None
        for part in (value.values() if isinstance(value, Mapping) else [value])
    )


def _modules(place: str, constant: str) -> list[str]:
    """Returns the names of the modules that define a constant, in a place as "families.*.files".

    The other modules there are not imported: on JAX they could import TensorFlow.
    """
    package = Path(__file__).parent
    files = sorted(package.glob(f"{place.replace('.', '/')}.py"))
    definition = re.compile(rf"^(?:def )?{constant}\b", re.MULTILINE)
    return [
        ".".join([package.name, *file.relative_to(package).with_suffix("").parts])
        for file in files
        if definition.search(file.read_text("utf-8"))
    ]


@functools.cache
def _entry_points(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    return tuple(importlib.metadata.entry_points(group=group))  # which searches sys.path


def _load(point: EntryPoint) -> None:
    """Adds what an entry point names, or nothing if it cannot be imported."""
    source = source_of(point)
    try:
        addition = point.load()
    except Exception as error:  # whatever another package's import raises
        with _lock:
            is_first = point not in _additions
            _additions[point] = ()
        if is_first:
            _logger.warning("%s is left out: it cannot be imported: %r", source, error)
        return
    _add(point, _members(addition, source, point.attr))


def _members(addition: Any, source: str, constant: str = "") -> list[Member]:
    """Returns all that an addition brings, after checking it.

    Args:
        addition: what another package names.
        source: where it does, for messages.
        constant: its name there.

    Raises:
        TypeError, ValueError: see `register`.
    """
    place = source
    try:
        members = [Member(*part, source) for part in _parts(addition, constant)]
        for member in members:
            place = f"{source}: {member.constant} {member.name!r}"
            if hasattr(member.value, "check"):
                member.value.check()
    except (AttributeError, TypeError, ValueError) as error:
        raise type(error)(f"{place}: {error}") from error
    return members


def _parts(addition: Any, constant: str) -> Iterator[tuple[str, Any]]:
    """Yields (constant, value) for all that an addition brings."""
    if constant in _PLAIN:
        yield constant, addition
    elif isinstance(addition, types.ModuleType):
        constants = [name for name in _KINDS if name in vars(addition)]
        if not constants:
            raise TypeError(f"{addition.__name__} has none of {', '.join(_KINDS)}")
        for name in constants:
            yield from _parts(vars(addition)[name], name)
    elif isinstance(addition, Mapping):
        for value in addition.values():
            yield from _parts(value, "")
    elif hasattr(addition, "registered_as") and not isinstance(addition, type):
        yield from addition.registered_as()
    else:
        what = f"the class {addition.__name__}" if isinstance(addition, type) else repr(addition)
        raise TypeError(
            f"{what:.100} cannot be registered: pass a Family, a Task, a Format or an Entry (not "
            f"its class), or a module with one of {', '.join(_KINDS)}"
        )


def _add(key: object, members: Iterable[Member]) -> None:
    """Adds members, all or none; ValueError if the name of one is taken."""
    members = list(members)
    constants = {member.constant for member in members}
    taken = [member for constant in constants for member in _own(constant)]  # may import modules
    with _lock:
        names = {(member.constant, member.name): member for member in [*taken, *_added()]}
        for member in members:
            other = names.setdefault((member.constant, member.name), member)
            if other.value is not member.value:
                raise ValueError(
                    f"{member.constant} {member.name!r} is registered twice, by {other.source} and "
                    f"by {member.source}: rename one, or leave one out"
                )
        new = [member for member in members if member in names.values()]
        _additions.setdefault(key, tuple(new))


def _added() -> list[Member]:
    """Returns what has been loaded from entry points that can still be imported, and registered."""
    points = entry_points(GROUP)
    return [
        member
        for key, members in list(_additions.items())
        if not isinstance(key, EntryPoint) or key in points
        for member in members
    ]
