"""Rewrites the library's errors for users of a command line."""

import re
import shlex
from collections.abc import Iterable, Sequence

_VALUE = r"'[^']*'|\"[^\"]*\"|\.\.\.|[\w.+-]*\w"

# The columns of a table, as in `fit`.
_COLUMNS = re.compile(r"(?<![\w.-])columns=\{((?:'\w+': (?:'[^']*'|\d+)(?:, )?)+)\}")
_COLUMN = re.compile(r"'(\w+)': ('[^']*'|\d+)")


def as_options(message: str, names: Iterable[str]) -> str:
    """Writes the arguments in a message as a command's options.

    Args:
        message: the library's error message, which writes arguments as name=value.
        names: the command's options under their Python names; other arguments stay as they are.

    >>> names = ["text_column", "label_column", "overwrite"]
    >>> as_options("a.csv:1: pass text_column='my text', label_column=2", names)
    "a.csv:1: pass --text-column 'my text' --label-column 2"
    >>> as_options("README.md exists: overwrite=True replaces it", names)
    'README.md exists: --overwrite replaces it'
    >>> as_options("pass columns={'text': 'body'}", names), as_options(
    ...     "pass columns={'text': 'body'}", ["columns"]
    ... )
    ('pass --text-column body', 'pass --columns text=body')
    """
    names = list(names)
    message = _COLUMNS.sub(lambda match: _columns(match, names), message)
    alternatives = "|".join(map(re.escape, names))
    argument = re.compile(rf"(?<![\w.-])({alternatives})=({_VALUE})(?:, (?=(?:{alternatives})=))?")
    return argument.sub(_option, message) if alternatives else message


def _option(match: re.Match[str]) -> str:
    option, value = f"--{match[1].replace('_', '-')}", match[2]
    if value[0] in "\"'":
        value = shlex.quote(value[1:-1])
    end = " " if match[0].endswith(", ") else ""
    return f"{option}{'' if value == 'True' else f' {value}'}{end}"


def _columns(match: re.Match[str], names: Sequence[str]) -> str:
    """Returns a mapping of columns as options: one of all columns, or one for each."""
    pairs = {name: shlex.quote(value.strip("'")) for name, value in _COLUMN.findall(match[1])}
    if "columns" in names:
        return f"--columns {' '.join(f'{name}={value}' for name, value in pairs.items())}"
    if not {f"{name}_column" for name in pairs} <= {*names}:
        return match[0]
    return " ".join(f"--{name.replace('_', '-')}-column {value}" for name, value in pairs.items())
