"""What a reader of files promises: it takes a damaged file or refuses it by name, in one error.

Files that are small and claim much are in `test_hostile_files`.
"""

import dataclasses
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mutation import damaged_bytes, damaged_json, search

from keras_transformers.runs.weights_files import WeightsFileError

LONGEST = 30  # seconds of processor time for one file
SEEDS = Path(__file__).parent / "seeds"


@dataclasses.dataclass(frozen=True)
class Reader:
    """A function that reads one kind of file.

    Attributes:
        file: the file's name within a folder.
        original: a valid file's contents.
        read: reads the file.
        is_json: whether to damage the values of its JSON too.
        others: files beside it that an error may name instead: the two do not fit.
        examples: how many damaged files the default run tries.
    """

    file: str
    original: Callable[[], bytes]
    read: Callable[[Path], Any]
    is_json: bool = False
    others: tuple[str, ...] = ()
    examples: int = 25


def text(*lines: str) -> Callable[[], bytes]:
    return lambda: "\n".join(lines).encode()


def as_json(value: Any) -> Callable[[], bytes]:
    return lambda: json.dumps(value).encode()


def written(write: Callable[[Path], Any], name: str = "file") -> Callable[[], bytes]:
    """The contents of a file of this name that a function writes."""

    def original() -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder, name))
            return Path(folder, name).read_bytes()

    return original


def refusal(reader: Reader, path: Path) -> str | None:
    """The message with which a reader refuses a file; None if it takes the file."""
    try:
        reader.read(path)
    except (ValueError, FileNotFoundError, WeightsFileError) as error:
        return str(error)
    return None


def check_reader(name: str, reader: Reader, folder: Path, seconds: float) -> None:
    """Damages a file in many ways; fails if the reader breaks its promise for one of them."""
    path = folder / reader.file
    path.parent.mkdir(parents=True, exist_ok=True)
    original = reader.original()
    path.write_bytes(original)
    assert refusal(reader, path) is None

    def check(data: bytes) -> None:
        path.write_bytes(data)
        start = time.process_time()
        message = refusal(reader, path)
        assert time.process_time() - start < LONGEST
        assert message is None or any(file in message for file in (path.name, *reader.others))

    kept = [file.read_bytes() for file in sorted((SEEDS / name).glob("*"))]
    for data in kept:
        check(data)
    inputs = damaged_bytes([original, *kept])
    if reader.is_json:
        inputs |= damaged_json([original])
    search(name, inputs, check, seconds, examples=reader.examples)
