"""Parses a recipe's command line; its help shows each option under the class that declares it."""

import dataclasses
import inspect
import typing
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, TypeVar

import tyro

from keras_transformers.ranges import ranges_in

T = TypeVar("T")


def parse(config_class: type[T], words: Sequence[str] | None = None) -> T:
    """Parses a command line as a configuration.

    The help has the recipe's own options first, then a section for each class it inherits from,
    with the ranges of numbers.

    Args:
        config_class: a dataclass; the comments beside its options and its bases' are their help.
        words: the words after the program's name; those of `sys.argv` by default.

    Raises:
        SystemExit: with status 2 if the words fit no configuration, 0 after `--help`.
    """
    sections = {f"section_{i}": section for i, section in enumerate(_sections(config_class))}
    whole = dataclasses.make_dataclass(
        config_class.__name__, sections.items(), namespace={"__doc__": config_class.__doc__}
    )
    options: Any = tyro.cli(whole, args=words, config=(tyro.conf.OmitArgPrefixes,))
    values: dict[str, Any] = {}
    for name in sections:
        values |= vars(getattr(options, name))
    return config_class(**values)


def _sections(config_class: type) -> Iterator[Any]:
    """Yields a dataclass of each base's own options, under the name of its section."""
    hints = typing.get_type_hints(config_class, include_extras=True)
    left = {field.name: field for field in dataclasses.fields(config_class)}
    for base in config_class.__mro__:
        fields = [left.pop(name) for name in inspect.get_annotations(base) if name in left]
        if not fields:
            continue
        section = dataclasses.make_dataclass(
            base.__name__,
            [(f.name, _with_range(hints[f.name], f), _default(f)) for f in fields],
            kw_only=True,
        )
        # tyro finds the comments in the source by these. From Python 3.12 on, `make_dataclass` sets
        # the module; from 3.13 on, that deletes the line number.
        for name in ("__module__", "__qualname__", "__doc__", "__firstlineno__"):
            if name in vars(base):
                setattr(section, name, vars(base)[name])
        _, _, place = base.__module__.partition("keras_transformers.")
        room = place.rpartition(".")[0]
        title = "own" if base is config_class else f"{room}.{base.__name__}".lstrip(".")
        yield Annotated[section, tyro.conf.arg(name=title)]


def _default(field: dataclasses.Field[Any]) -> Any:
    return dataclasses.field(default=field.default, default_factory=field.default_factory)


def _with_range(hint: Any, field: dataclasses.Field[Any]) -> Any:
    """Returns an annotation whose help also has the range."""
    allowed = [str(limits) for limits in ranges_in(hint) if limits != type(limits)()]
    if not allowed or field.default is dataclasses.MISSING:
        return hint
    return Annotated[
        hint,
        tyro.conf.arg(help_behavior_hint=lambda default: f"({allowed[0]}; default: {default})"),
    ]
