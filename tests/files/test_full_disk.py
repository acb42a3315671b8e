"""A disk that is full while a pipeline is written: the error names the place, and nothing stays."""

import contextlib
import errno
import os
import resource
from collections.abc import Iterator

import pytest
import tiny

import keras_transformers as kt
from keras_transformers.files import new_folder, replaced


@contextlib.contextmanager
def disk_of(num_bytes: int) -> Iterator[None]:
    """Files may have only this many bytes, for every library that writes them."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture(scope="module")
def classify():
    return tiny.pipeline("classification")


@pytest.mark.parametrize(
    ("write", "num_bytes"),
    [
        (kt.save, 10),
        (kt.save, 2000),
        (lambda pipeline, folder: kt.save(pipeline, folder, format="huggingface"), 2000),
        (lambda pipeline, folder: kt.export(pipeline, folder, check=False), 2000),
    ],
    ids=["vocabulary", "weights", "huggingface", "export"],
)
def test_what_is_written_is_named(write, num_bytes, classify, tmp_path):
    with disk_of(num_bytes), pytest.raises(OSError, match="File too large") as raised:
        write(classify, tmp_path / "mine")
    assert raised.value.errno == errno.EFBIG
    assert raised.value.filename.startswith(str(tmp_path / "mine"))
    assert not list(tmp_path.iterdir())


class OtherError(Exception):
    """What a library raises whose errors are its own."""


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("kind", [OtherError, OSError, RuntimeError])
def test_errors_of_any_library_name_the_file(kind, number, tmp_path):
    reason = os.strerror(number)
    error = OSError(number, reason) if kind is OSError else kind(f"I/O error: {reason} (28)")
    file, folder = tmp_path / "a.bin", tmp_path / "mine"
    with pytest.raises(OSError, match=reason) as raised, replaced(file):
        raise error
    assert (raised.value.errno, raised.value.filename) == (number, str(file))
    whole = new_folder(folder)
    with pytest.raises(OSError, match=reason) as raised, whole as new, replaced(new / "b.bin"):
        raise error
    assert (raised.value.errno, raised.value.filename) == (number, str(folder / "b.bin"))
    assert not list(tmp_path.iterdir())


def test_other_errors_pass(tmp_path):
    with pytest.raises(OtherError, match="no file"), replaced(tmp_path / "a.bin"):
        raise OtherError("no file")
