"""Decodes lines of text, and suggests an encoding for lines that do not decode."""

import codecs
import io
from collections.abc import Iterator
from typing import BinaryIO

from keras_transformers.files.surrogates import half_of_a_pair

# First bytes of a file -> its format, and the remedy.
_NOT_TEXT = {
    b"\x1f\x8b": "gzip data, so its name must end in .gz",
    b"BZh": "bzip2 data, so its name must end in .bz2",
    b"\xfd7zXZ": "xz data, so its name must end in .xz",
    b"\x28\xb5\x2f\xfd": "Zstandard data, so its name must end in .zst",
    b"PK\x03\x04": "a zip file (.zip) or a workbook (.xlsx), which can be saved as .csv",
    b"\xd0\xcf\x11\xe0": "a workbook (.xls), which can be saved as .csv",
    b"PAR1": "Parquet, so its name must end in .parquet",
}
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def decoded_lines(file: BinaryIO, encoding: str) -> Iterator[tuple[str, str]]:
    r"""Yields (line, "") for each line of a file, ("", why) for those in another encoding.

    Only `\n` and `\r\n` end a line. A byte order mark at the start is dropped.

    Raises:
        ValueError: there is no such encoding.
    """
    check_encoding(encoding)
    lines = _utf8_lines(file) if _is_utf8(encoding) else _other_lines(file, encoding)
    for number, (line, reason) in enumerate(lines):
        if number == 0:
            line = line.removeprefix("\ufeff")
        yield line.removesuffix("\n").removesuffix("\r"), reason


def check_encoding(encoding: str) -> None:
    """Checks the name of an encoding.

    Raises:
        ValueError: Python has no such encoding of text.
    """
    try:
        io.TextIOWrapper(io.BytesIO(), encoding)
    except LookupError as error:
        raise ValueError(
            f"encoding {encoding!r} is unknown; use one such as utf-8, utf-16, cp1252 or latin-1"
        ) from error


def _is_utf8(encoding: str) -> bool:
    return codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")


def _utf8_lines(file: BinaryIO) -> Iterator[tuple[str, str]]:
    for number, raw in enumerate(file):
        if number == 0 and raw.count(b"\0") > len(raw) // 4:
            yield "", f"not UTF-8 (NUL bytes){_fitting(raw)}"
            continue
        try:
            yield raw.decode("utf-8"), ""
        except UnicodeDecodeError as error:
            wrong = f"byte 0x{error.object[error.start]:02x} at byte {error.start + 1} of the line"
            yield "", f"not UTF-8 ({wrong}){_fitting(raw)}"


def _other_lines(file: BinaryIO, encoding: str) -> Iterator[tuple[str, str]]:
    # Bytes cannot be split into lines: in UTF-16 a line end has two.
    text = io.TextIOWrapper(file, encoding, newline="\n")
    try:
        for line in text:
            yield line, half_of_a_pair(line)  # utf-7 and unicode_escape can spell one
    except UnicodeError as error:  # somewhere in the next few kilobytes
        yield "", f"not {encoding} from about here ({error})"
    finally:
        text.detach()


def _fitting(raw: bytes) -> str:
    """Returns a suggestion for a line that is not UTF-8, or ""."""
    for start, what in _NOT_TEXT.items():
        if raw.startswith(start):
            return f", but {what}"
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if raw.startswith(mark):
            return f", but {encoding}"
    if raw.count(b"\0") > len(raw) // 4:
        is_little = raw[1::2].count(0) > raw[::2].count(0)
        return f", but perhaps utf-16-{'le' if is_little else 'be'}"
    if any(char >= "\x80" and char != "\ufffd" for char in raw.decode("utf-8", "replace")):
        return ", as the rest of the line is"
    if sum(byte >= 0x80 for byte in raw) > max(3, 0.3 * len(raw)):
        return ", but an older encoding of its language, such as cp1251, gb18030 or shift_jis"
    try:
        raw.decode("cp1252")
    except UnicodeDecodeError:
        return ", but perhaps latin-1"
    return ", but perhaps cp1252"
