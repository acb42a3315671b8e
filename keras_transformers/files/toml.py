"""Reads TOML files of settings, with errors that name the file, the table and the key."""

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from keras_transformers.files.errors import short_repr

_T = TypeVar("_T")
_TYPES: dict[type, str] = {
    str: "a string",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    list: "an array",
    dict: "a table",
}


class Table:
    """A table of a file, whose values are taken one by one, until `end` refuses the others.

    Args:
        place: the file and the table, for errors, such as "gateway.toml: [tls]".
        values: its content.
        folder: where its relative paths start.
    """

    def __init__(self, place: str, values: Mapping[str, Any], folder: Path) -> None:
        self.place = place
        self._values = dict(values)
        self._folder = folder
        self._taken: list[str] = []

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Table":
        """Returns the table that a whole file is.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is not TOML.
        """
        file = Path(path)
        if not file.is_file():
            what = "not a file" if file.exists() else "no such file"
            raise FileNotFoundError(f"{file}: {what}; check the path")
        try:
            values = tomllib.loads(file.read_text("utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"{file}: not TOML: {error}") from error
        return cls(f"{file}", values, file.absolute().parent)

    def take(self, key: str, kind: type[_T]) -> _T | None:
        """Returns the value of a key; None if the table lacks it.

        Args:
            key: the key.
            kind: str, bool, int, float, list or dict; an integer is a float too.

        Raises:
            ValueError: the value is of another kind.
        """
        self._taken.append(key)
        if key not in self._values:
            return None
        value = self._values.pop(key)
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise self.error(key, f"is {short_repr(value)}: expected {_TYPES[kind]}")
        return value

    def required(self, key: str, kind: type[_T]) -> _T:
        """Returns the value of a key; ValueError if the table lacks it."""
        value = self.take(key, kind)
        if value is None:
            near = difflib.get_close_matches(key, self._values, 1)
            instead = f", instead of {near[0]}" if near else ""
            raise self.error(key, f"is missing: write {key} = ..., {_TYPES[kind]}{instead}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Returns an array of strings; empty if the table lacks it."""
        return self._items(key, str)

    def integers(self, key: str) -> tuple[int, ...]:
        """Returns an array of integers; empty if the table lacks it."""
        return self._items(key, int)

    def names(self, key: str) -> dict[str, str] | None:
        """Returns a table of strings, or an array, whose strings are names of themselves."""
        self._taken.append(key)
        if key not in self._values:
            return None
        self._taken.pop()
        if type(self._values[key]) is list:
            return {text: text for text in self.texts(key)}
        names = self.take(key, dict) or {}
        for name, text in names.items():
            if type(text) is not str:
                raise self.error(f"{key}.{name}", f"is {short_repr(text)}: expected a string")
        return names

    def path(self, key: str) -> Path | None:
        """Returns a path, which starts at the file's folder if it is relative; None for none."""
        text = self.take(key, str)
        return None if text is None else self._folder / text

    def required_path(self, key: str) -> Path:
        """Returns a path, as `path`; ValueError if the table lacks it."""
        return self._folder / self.required(key, str)

    def table(self, key: str) -> "Table | None":
        """Returns a table in this one; None if there is none."""
        values = self.take(key, dict)
        return None if values is None else self._inner(f"[{key}]", values)

    def tables(self, key: str) -> list["Table"]:
        """Returns an array of tables, numbered from 1 in errors; empty if there is none."""
        if type(self._values.get(key)) is dict:
            raise self.error(key, f"is a table, [{key}]: write [[{key}]], one for each")
        return [
            self._inner(f"[[{key}]] {number}", values)
            for number, values in enumerate(self._items(key, dict), 1)
        ]

    def named_tables(self, key: str) -> dict[str, "Table"]:
        """Returns the tables in a table by name, [key.name]; empty if there is none."""
        outer = self.take(key, dict) or {}
        for name, values in outer.items():
            if type(values) is not dict:
                raise self.error(f"{key}.{name}", f"is {short_repr(values)}: expected a table")
        return {name: self._inner(f"[{key}.{name}]", values) for name, values in outer.items()}

    def end(self) -> None:
        """Refuses the keys that were not taken.

        Raises:
            ValueError: there is one.
        """
        for key in self._values:
            raise self.error(key, f"is unknown: the keys are {', '.join(self._taken)}")

    def error(self, key: str, problem: str) -> ValueError:
        """Returns an error about a key: where it is and what is wrong."""
        return ValueError(f"{self.place}: {key} {problem}")

    def _items(self, key: str, kind: type[_T]) -> tuple[_T, ...]:
        items = self.take(key, list) or []
        for item in items:
            if type(item) is not kind:
                wanted = _TYPES[kind]
                raise self.error(key, f"has {short_repr(item)}: expected {wanted} for each item")
        return tuple(items)

    def _inner(self, name: str, values: Mapping[str, Any]) -> "Table":
        place = f"{self.place}{' ' if self.place.endswith(']') else ': '}{name}"
        return Table(place, values, self._folder)
