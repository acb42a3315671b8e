"""Reads files with errors that name the file and line; writes files completely or not at all.

Readers are lazy: they read no further than their caller does. Writers write to a temporary file in
the same folder, flush it to disk and rename it: nobody sees half a file, and a process killed at
any moment leaves none.
"""

import contextlib
import csv
import gzip
import json
import os
import shutil
import uuid
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

FileFormat = Literal["tsv", "csv", "jsonl"]

_DEEPEST_JSON = 100  # Python recurses when it prints; a saved model's layers take about 20 levels
_DEEPEST_FOLDER = 100  # Python recurses when it removes folders
_LONGEST_MESSAGE = 2000
_FORMAT_OF_SUFFIX: dict[str, FileFormat] = {
    ".tsv": "tsv",
    ".txt": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".json": "jsonl",
}


def one_line(error: BaseException) -> str:
    """Returns an error's message in one line that can be printed, shortened if it is very long.

    Python's own errors about files have the form of ours: the file, then what is wrong.

    >>> one_line(FileExistsError(17, "File exists", "a"))
    'a: File exists'
    """
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        place = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        text = f"{place}{error.strerror}"
    if len(text) > _LONGEST_MESSAGE:
        text = f"{text[: _LONGEST_MESSAGE // 2]} ... {text[-_LONGEST_MESSAGE // 2 :]}"
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def file_format(path: str | Path) -> FileFormat:
    """Returns the format that the file's suffix stands for; a final `.gz` does not matter.

    Raises:
        ValueError: the name ends in none of .tsv, .txt, .csv, .jsonl, .json.
    """
    path = Path(path)
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if suffix not in _FORMAT_OF_SUFFIX:
        known = ", ".join(_FORMAT_OF_SUFFIX)
        raise ValueError(
            f"{path}: the name does not say the format ({known}, each also with .gz): "
            "state it as 'tsv', 'csv' or 'jsonl'"
        )
    return _FORMAT_OF_SUFFIX[suffix]


def read_lines(path: str | Path) -> Iterator[str]:
    r"""Yields the lines of a UTF-8 file without their line ends.

    Only `\n` and `\r\n` end a line: U+0085, U+2028 and a lone `\r` are text, so line numbers agree
    with an editor's and parallel files stay parallel. A byte order mark at the start is dropped.

    Args:
        path: a plain file, or a gzipped one with a name that ends in `.gz`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: a line is not UTF-8, or the gzip data are damaged; the message has the line.
    """
    for number, (line, reason) in enumerate(try_lines(path), start=1):
        if reason:
            raise ValueError(f"{path}:{number}: {reason}: convert the file to UTF-8")
        yield line


def try_lines(path: str | Path) -> Iterator[tuple[str, str]]:
    """Yields (line, "") for the lines that `read_lines` yields, ("", why) for those not UTF-8.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the gzip data are damaged; the message has the line.
    """
    path = _checked_file(path)
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        number = 0
        try:
            for number, raw in enumerate(file, start=1):
                # utf-8-sig drops one leading byte order mark; only the first line may carry one.
                try:
                    line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    wrong = f"byte 0x{error.object[error.start]:02x} at byte {error.start + 1}"
                    yield "", f"not UTF-8 ({wrong} of the line)"
                else:
                    yield line.removesuffix("\n").removesuffix("\r"), ""
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(
                f"{path}:{number + 1}: damaged gzip data ({error}): fetch the file again"
            ) from error


def read_table(
    path: str | Path, *, format: Literal["tsv", "csv"]
) -> Iterator[tuple[int, list[str]]]:
    """Yields (number of the row's first line, cells) of a tab- or comma-separated file.

    Tab-separated files have no quoting (csv.QUOTE_NONE), like GLUE's: a quotation mark is text.
    Comma-separated files are quoted as in RFC 4180, and a quoted cell may contain line ends.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: a row is empty, or does not have as many cells as the first row; a quote in a
            comma-separated file is never closed. See also `read_lines`.
    """
    rows = _split_tabs(path) if format == "tsv" else _split_commas(path)
    width = None
    for number, cells in rows:
        width = len(cells) if width is None else width
        if not any(cells):
            raise ValueError(f"{path}:{number}: an empty row; remove it")
        if len(cells) != width:
            hint = "" if format == "tsv" else "; quote a text that holds commas"
            raise ValueError(
                f"{path}:{number}: {len(cells)} columns, the first row has {width}{hint}"
            )
        yield number, cells


def read_objects(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (line number, object) of a JSON Lines file: one JSON object per line.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: a line is not a JSON object. See also `read_lines`.
    """
    for number, line in enumerate(read_lines(path), start=1):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:  # also a number of thousands of digits
            raise ValueError(f"{path}:{number}: not JSON ({error}); one object a line") from error
        if not isinstance(value, dict):
            raise ValueError(
                f"{path}:{number}: a JSON {type(value).__name__}, not an object like "
                '{"text": "...", "label": "..."}; one object a line'
            )
        yield number, value


def _split_tabs(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(read_lines(path), start=1):
        yield number, line.split("\t")


def _split_commas(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    # The reader needs line ends, which are part of a quoted cell that spans lines.
    reader = csv.reader((line + "\n" for line in read_lines(path)), strict=True)
    number = 1
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise ValueError(
                f"{path}:{number}: not comma-separated values ({error}); quote cells with "
                '"..." and double the quotes inside'
            ) from error
        yield number, cells
        number = reader.line_num + 1


def read_json(path: str | Path) -> dict[str, Any]:
    """Reads a file that holds one JSON object.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not JSON, not an object, or nested too deeply for a file of ours.
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
    path = _checked_file(path)
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON ({error})") from error
    if not _depth_is_at_most(_DEEPEST_JSON, value):
        raise ValueError(f"{path}: JSON nested more than {_DEEPEST_JSON} deep")
    return value


def _checked_file(path: str | Path) -> Path:
    path = Path(path)
    if not path.is_file():
        what = "not a file" if path.exists() else "no such file"
        raise FileNotFoundError(f"{path}: {what}; check the path")
    return path


def _depth_is_at_most(depth: int, value: Any) -> bool:
    """Returns whether lists and objects are nested at most so deep; it does not recurse itself."""
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


@contextlib.contextmanager
def replaced(path: str | os.PathLike[str], *, scratch_folder: Path | None = None) -> Iterator[Path]:
    """Yields the path of a file to write, which replaces `path` when the block succeeds.

    Until then, and if the block raises, `path` does not change.

    Args:
        path: the file.
        scratch_folder: a folder on the same disk, where a killed process leaves the unfinished
            file; by default the file's own.

    Raises:
        FileNotFoundError: the folder of the file does not exist.

    Example:
        with replaced("metrics.json") as scratch:
            scratch.write_text("{}")
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise _no_folder(target)
    # It keeps the suffix, by which some writers choose the format.
    scratch = (scratch_folder or target.parent) / f".{uuid.uuid4().hex}-{target.name}"
    try:
        yield scratch
        sync(scratch)
        os.replace(scratch, target)
        sync(target.parent)
    finally:
        scratch.unlink(missing_ok=True)


def check_new(path: str | os.PathLike[str]) -> Path:
    """Returns the path of a file or folder to be written, after checking that it can be.

    Raises:
        FileExistsError: the path exists.
        FileNotFoundError: its parent folder does not.
    """
    path = Path(path)
    if path.exists():
        raise FileExistsError(f"{path} exists: remove it, or choose another name")
    if not path.parent.is_dir():
        raise _no_folder(path)
    return path


def _no_folder(path: Path) -> FileNotFoundError:
    return FileNotFoundError(f"{path.parent}: no such folder for {path.name}: create it first")


def check_writable(folder: str | os.PathLike[str]) -> None:
    """Checks that a folder, which need not exist yet, can be created and written; leaves nothing.

    Raises:
        OSError: it cannot; the message names the folder and the reason.
    """
    nearest = Path(folder).absolute()
    while not os.path.lexists(nearest):
        nearest = nearest.parent
    probe = nearest / f".{uuid.uuid4().hex}"
    try:
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        where = "" if nearest == Path(folder).absolute() else f"{nearest}: "
        raise type(error)(
            f"{folder}: cannot be written ({where}{error.strerror}): allow it, or choose another "
            "place"
        ) from error


def write_lines(path: str | os.PathLike[str], lines: Iterable[str]) -> None:
    r"""Replaces a file by these lines in UTF-8; a line must not contain `\n`."""
    with replaced(path) as scratch:
        scratch.write_text("".join(f"{line}\n" for line in lines), "utf-8", newline="\n")


def write_json(path: str | os.PathLike[str], value: Any, *, indent: int | None = 2) -> None:
    """Replaces a file by JSON, with `str(...)` of values that JSON cannot represent."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    with replaced(path) as scratch:
        scratch.write_text(text + "\n", encoding="utf-8")


@contextlib.contextmanager
def new_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a temporary folder, renamed to `path` if the block succeeds and removed otherwise.

    Raises:
        FileExistsError: `path` exists.
    """
    target = Path(path).absolute()
    if os.path.lexists(target):
        raise FileExistsError(f"{target} exists: give another folder, or remove it")
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.parent / f".{uuid.uuid4().hex}-{target.name}"
    scratch.mkdir()  # not tempfile.mkdtemp, whose folders other users cannot read
    try:
        yield scratch
        sync_tree(scratch)
        os.rename(scratch, target)
        sync(target.parent)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def entries(folder: Path) -> Iterator[tuple[Path, Literal["file", "folder", "link", "other"]]]:
    """Yields what is in a folder and in the folders inside it, sorted; follows no link.

    Yields:
        A path that starts with `folder`, and whether it is a plain file, a folder, a link (to a
        file, a folder or nothing) or something else, such as a pipe, that might block whoever opens
        it. A folder comes before what is in it.

    Raises:
        OSError: a folder cannot be read.
        ValueError: folders are nested more than 100 deep.
    """
    folders = [(folder, 0)]
    while folders:
        parent, depth = folders.pop()
        if depth > _DEEPEST_FOLDER:
            raise ValueError(
                f"{folder}: folders nested more than {_DEEPEST_FOLDER} deep: remove them"
            )
        with os.scandir(parent) as found:
            children = sorted(found, key=lambda child: child.name)
        for child in children:
            path = Path(child.path)
            if child.is_symlink():
                yield path, "link"
            elif child.is_dir():
                yield path, "folder"
                folders.append((path, depth + 1))
            else:
                yield path, "file" if child.is_file() else "other"


def check_plain(folder: Path) -> None:
    """Checks that a folder has nothing but plain files and folders in it.

    Raises:
        ValueError: it has a link, a pipe or the like, or is nested too deeply.
    """
    for path, kind in entries(folder):
        if kind == "link":
            raise ValueError(
                f"{path} is a link to {os.readlink(path)}: put the file or folder itself there"
            )
        if kind == "other":
            raise ValueError(f"{path} is neither a file nor a folder: remove it")


def sync_tree(folder: Path) -> None:
    """Flushes a folder and every file in it to disk."""
    for path, kind in entries(folder):
        if kind in ("file", "folder"):
            sync(path)
    sync(folder)


def sync(path: Path) -> None:
    """Flushes a file, or a folder's list of names, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:  # a full disk, for which the system names no file
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        os.close(descriptor)
