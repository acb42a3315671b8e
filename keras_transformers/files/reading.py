"""Reads text and JSON, with errors that name the file and line.

Readers are lazy: they only read as far as their caller does.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keras_transformers.files import compression, encodings

__all__ = ["read_json", "read_json_list", "read_lines", "try_lines"]

_DEEPEST_JSON = 100  # Python recurses when it prints; a saved model's layers take about 20 levels


def read_lines(path: str | Path, *, encoding: str = "utf-8") -> Iterator[str]:
    r"""Yields the lines of a text file without their line ends.

    Only `\n` and `\r\n` end a line: U+0085, U+2028 and a lone `\r` are text, so line numbers agree
    with an editor's and parallel files stay parallel. A byte order mark at the start is dropped.

    Args:
        path: a plain file, or a compressed one whose name ends in .gz, .bz2, .xz, .zst or .zip.
        encoding: such as "utf-8", "utf-16", "cp1252" or "latin-1".

    Raises:
        FileNotFoundError: the file does not exist.
        MissingExtraError: a `.zst` file needs the extra `data`.
        ValueError: a line is in another encoding, or the compressed data is damaged; the message
            has the line, and the encoding that fits. Or the encoding is unknown.
    """
    for number, (line, reason) in enumerate(try_lines(path, encoding=encoding), start=1):
        if reason:
            raise ValueError(
                f"{path}:{number}: {reason}: convert the file to UTF-8, or pass encoding=... where "
                "there is such an option"
            )
        yield line


def try_lines(path: str | Path, *, encoding: str = "utf-8") -> Iterator[tuple[str, str]]:
    """Yields (line, "") for the lines that `read_lines` yields, ("", why) for the others.

    Raises:
        FileNotFoundError: the file does not exist.
        MissingExtraError: a `.zst` file needs the extra `data`.
        ValueError: the compressed data is damaged; the message has the line. Or the encoding is
            unknown.
    """
    number = 0
    try:
        with compression.opened(path) as file:
            for row in encodings.decoded_lines(file, encoding):
                number += 1
                yield row
    except compression.DamagedError as error:
        raise compression.DamagedError(f"{path}:{number + 1}", error.reason) from error


def read_json(path: str | Path) -> dict[str, Any]:
    """Reads a file that holds one JSON object.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not JSON, not an object, or nested more deeply than our files are.
    """
    value = _read_any_json(path)
    if not isinstance(value, dict):
        raise ValueError(f"{path}: a JSON {type(value).__name__}, expected an object")
    return value


def read_json_list(path: str | Path) -> list[Any]:
    """Reads a file that holds one JSON list; see `read_json` for the errors."""
    value = _read_any_json(path)
    if not isinstance(value, list):
        raise ValueError(f"{path}: a JSON {type(value).__name__}, expected a list")
    return value


def _read_any_json(path: str | Path) -> Any:
    path = compression.existing(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error})") from error
    return parse_json(text, path)


def parse_json(text: str | bytes, place: object, *, remedy: str = "") -> Any:
    """Parses JSON that a user wrote or downloaded; the result is nested at most 100 deep.

    Args:
        text: the JSON.
        place: where it is, such as `file:3`, for error messages.
        remedy: what to do about text that is not JSON, for error messages.

    Raises:
        ValueError: it is not JSON, or nested more deeply than our files are.
    """
    end = f"; {remedy}" if remedy else ""
    deep = f"{place}: JSON nested more than {_DEEPEST_JSON} deep{end}"
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError(deep) from error
    except ValueError as error:  # also for thousands of digits, and bytes that are not UTF-8
        raise ValueError(f"{place}: not JSON ({error}){end}") from error
    if not _depth_is_at_most(_DEEPEST_JSON, value):
        raise ValueError(deep)
    return value


def _depth_is_at_most(depth: int, value: Any) -> bool:
    """Returns whether lists and objects are nested at most this deep; does not recurse itself."""
    level = [value]
    for _ in range(depth + 1):
        inside = [item for item in level if isinstance(item, list | dict)]
        if not inside:
            return True
        level = [
            child
            for item in inside
            for child in (item.values() if isinstance(item, dict) else item)
        ]
    return False
