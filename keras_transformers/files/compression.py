"""Opens files that may be compressed, as the suffix of the name says.

The suffixes are `.gz`, `.bz2`, `.xz`, `.zst` (Zstandard, extra `data`), and `.zip` with one file.
"""

import bz2
import contextlib
import errno
import gzip
import io
import lzma
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from keras_transformers.dependencies.extras import optional

SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".zip")

_KINDS = dict(zip(SUFFIXES, ("gzip", "bzip2", "xz", "Zstandard", "zip"), strict=True))
_DAMAGE = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, struct.error, UnicodeError)
# Text rarely shrinks to a twentieth, and a file of this size fits in memory anyway.
_MOST_TIMES, _ALWAYS_ALLOWED = 200, 256 * 2**20
_ZSTANDARD_INPUT = 1024  # bytes, which may become 32 MiB
_NOT_OURS = ("__MACOSX/", ".DS_Store")


class DamagedError(ValueError):
    """Compressed data is damaged, or unpacks to far too much.

    Attributes:
        reason: the problem and the remedy, without the file.
    """

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place}: {reason}")
        self.reason = reason


def existing(path: str | os.PathLike[str]) -> Path:
    """Returns a path after checking that it is a file.

    Raises:
        FileNotFoundError: it is not a file, or does not exist.
    """
    path = Path(path)
    if not path.is_file():
        what = "not a file" if path.exists() else "no such file"
        raise FileNotFoundError(f"{path}: {what}; check the path")
    return path


def without_suffix(name: str) -> str:
    """Returns a file's name without its compression suffix.

    >>> without_suffix("train.csv.bz2"), without_suffix("train.csv")
    ('train.csv', 'train.csv')
    """
    stem, suffix = os.path.splitext(name)
    return stem if suffix.lower() in SUFFIXES else name


def inner_name(path: str | os.PathLike[str]) -> str:
    """Returns the name of the file inside a compressed one, which shows its format.

    This is the name without the compression suffix; for a zip file whose name has no other suffix,
    such as `archive.zip`, it is the name of the file in it.

    Raises:
        FileNotFoundError: the zip file does not exist.
        ValueError: it is damaged, or does not have exactly one file in it.
    """
    path = Path(path)
    name = without_suffix(path.name)
    if path.suffix.lower() == ".zip" and not Path(name).suffix:
        with _unzipped(existing(path)) as (member, _):
            return member
    return name


def compressed_names(path: Path) -> list[Path]:
    """Returns the names that a file has when it is compressed.

    >>> [name.name for name in compressed_names(Path("train.de"))][:2]
    ['train.de.gz', 'train.de.bz2']
    """
    return [Path(f"{path}{suffix}") for suffix in SUFFIXES]


@contextlib.contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yields the decompressed bytes of a file, read only as far as the caller reads.

    Raises:
        FileNotFoundError: the file does not exist.
        MissingExtraError: it is a `.zst` file, and the extra `data` is not installed.
        DamagedError: the compressed data is damaged, or unpacks to more than 256 MiB and 200 times
            its size; raised when the caller reads that far.
        ValueError: a zip file does not have exactly one file in it, or is encrypted.
    """
    path = existing(path)
    suffix = path.suffix.lower()
    with contextlib.ExitStack() as stack:
        if suffix not in SUFFIXES:
            yield stack.enter_context(path.open("rb"))
            return
        if suffix == ".zip":
            _, stream = stack.enter_context(_unzipped(path))
        elif suffix == ".zst":
            stream = _Zstandard(stack.enter_context(path.open("rb")))
        else:
            module: Any = {".gz": gzip, ".bz2": bz2, ".xz": lzma}[suffix]
            stream = stack.enter_context(module.open(path))
        yield cast(BinaryIO, io.BufferedReader(_Checked(path, stream), 2**17))


def check_unpacked(path: Path, num_bytes: int) -> None:
    """Raises DamagedError if a file's data unpacks to far more than files of its kind."""
    if num_bytes > max(_ALWAYS_ALLOWED, _MOST_TIMES * path.stat().st_size):
        raise DamagedError(
            str(path),
            f"unpacks to more than {num_bytes // 2**20:,} MiB, over {_MOST_TIMES} times its size, "
            "as a decompression bomb does: if you trust it, unpack it first",
        )


def check_members(path: Path, archive: zipfile.ZipFile) -> None:
    """Raises DamagedError if the members of a zip file would unpack to far more than its size."""
    check_unpacked(path, sum(member.file_size for member in archive.infolist()))


class _Checked(io.RawIOBase):
    """Reads decompressed bytes, with errors that name the file."""

    def __init__(self, path: Path, stream: Any) -> None:
        self._path, self._stream = path, stream
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        kind = _KINDS[self._path.suffix.lower()]
        try:
            data = self._stream.read(len(buffer))
        except (*_DAMAGE, OSError) as error:
            if not _is_damage(error):
                raise
            raise DamagedError(
                str(self._path), f"damaged {kind} data ({error}): fetch the file again"
            ) from error
        self._count += len(data)
        check_unpacked(self._path, self._count)
        buffer[: len(data)] = data
        return len(data)


def _is_damage(error: Exception) -> bool:
    """Returns whether the data, not the disk, caused an error; a zip file may point anywhere."""
    return not isinstance(error, OSError) or error.errno in (None, errno.EINVAL)


class _Zstandard:
    """Decompresses frames; unlike the package's own reader, it reports a truncated one."""

    def __init__(self, file: BinaryIO) -> None:
        self._package = optional("zstandard", extra="data")
        self._file, self._input, self._output = file, b"", io.BytesIO()
        self._frame: Any = None

    def read(self, size: int) -> bytes:
        while not (data := self._output.read(size)):
            self._input = self._input or self._file.read(_ZSTANDARD_INPUT)
            if not self._input:
                if self._frame is not None:
                    raise EOFError("the last frame is truncated")
                return b""
            if self._frame is None:
                # Frames of `zstd --long` have windows up to 2 GiB.
                decompressor = self._package.ZstdDecompressor(max_window_size=2**31)
                self._frame = decompressor.decompressobj()
            try:
                self._output = io.BytesIO(self._frame.decompress(self._input))
            except self._package.ZstdError as error:
                raise EOFError(str(error)) from error
            self._input = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._frame = None
        return data


@contextlib.contextmanager
def _unzipped(path: Path) -> Iterator[tuple[str, Any]]:
    """Yields the name and the stream of the only file in a zip file."""
    with contextlib.ExitStack() as stack:
        try:
            archive = stack.enter_context(zipfile.ZipFile(path))
            names = [
                name
                for name in archive.namelist()
                if not name.endswith("/") and not any(part in name for part in _NOT_OURS)
            ]
            if len(names) != 1:
                inside = ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")
                raise ValueError(
                    f"{path}: contains {len(names)} files ({inside}); expected one. Unpack it, "
                    "and pass the file"
                )
            stream = stack.enter_context(archive.open(names[0]))
        except (*_DAMAGE, OSError) as error:
            if not _is_damage(error):
                raise
            raise DamagedError(
                str(path), f"damaged zip data ({error}): fetch the file again"
            ) from error
        except (NotImplementedError, RuntimeError) as error:  # other methods, and encryption
            raise ValueError(
                f"{path}: cannot be unpacked ({error}): unpack it yourself first"
            ) from error
        yield names[0], stream
