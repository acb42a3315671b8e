"""No pickle runs code or takes more than its file's size: instructions in any order, of any kind.

`test_damaged_models` damages files that PyTorch wrote. Here every file is hostile: valid
instructions, also those that call, import and build, with the names of functions that must not run.
"""

import io
import os
import struct
import tracemalloc
import zipfile

import pytest
from hypothesis import strategies as st
from mutation import search
from reader import Reader, refusal

from keras_transformers.convert.containers.arrays import open_arrays

NAMES = (
    *("os evil", "posix evil", "builtins eval", "builtins getattr", "torch._utils os.evil"),
    *("collections OrderedDict", "torch Size", "torch FloatStorage", "torch BFloat16Storage"),
    *("torch._utils _rebuild_tensor", "torch._utils _rebuild_tensor_v2"),
    *("torch._utils _rebuild_parameter", "torch._utils _rebuild_parameter_with_state"),
)
TEXTS = ("", "0", "storage", "cpu", "weight", "os", "evil", "__class__", "__setstate__", "é\ud800")
SIZES = (0, 1, 2, 3, 6, 7, -1, 255, 2**31 - 1, -(2**31))
LARGE = (2**32, 2**63 - 1, 2**63, 2**64, -(2**63), 2**2000)


def _text(value: str) -> bytes:
    encoded = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def _large(value: int) -> bytes:
    encoded = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(encoded)]) + encoded


STORAGE = (
    b"(" + _text("storage") + b"ctorch\nFloatStorage\n" + _text("0") + _text("cpu") + b"K\x06tQ"
)
TENSOR = (
    b"ctorch._utils\n_rebuild_tensor_v2\n(" + STORAGE + b"K\x00K\x02K\x03\x86K\x03K\x01\x86\x89"
    b"ccollections\nOrderedDict\n)RtR"
)
# A tuple that holds itself twice, 60 deep: printing it would never end.
DOUBLED = b")" + b"q\x00h\x00\x86" * 60


def pickled(*items: bytes) -> bytes:
    return b"\x80\x02" + b"".join(items) + b"."


ITEMS = st.one_of(
    st.just(DOUBLED),
    st.sampled_from(NAMES).map(lambda name: b"c" + name.replace(" ", "\n").encode() + b"\n"),
    st.sampled_from(NAMES).map(lambda name: b"i" + name.replace(" ", "\n").encode() + b"\n"),
    st.sampled_from(TEXTS).map(_text),
    st.sampled_from(SIZES).map(lambda value: b"J" + struct.pack("<i", value)),
    st.sampled_from(LARGE).map(_large),
    st.sampled_from([STORAGE, TENSOR, b"}(" + _text("a") + TENSOR + b"u"]),
    st.sampled_from(
        [b"0", b"1", b"2", b"(", b")", b"]", b"}", b"N", b"\x88", b"t", b"\x85", b"\x86"]
    ),
    st.sampled_from(
        [b"R", b"b", b"o", b"\x81", b"\x92", b"\x93", b"Q", b"a", b"e", b"s", b"u", b"d", b"l"]
    ),
    st.sampled_from([b"q\x00", b"h\x00", b"q\x01", b"h\x01", b"r\xff\xff\xff\xff", b"\x94"]),
    st.sampled_from(
        [b"\x82\x01", b"\x83\x01\x00", b"P0\n", b"\x95" + b"\xff" * 8, b"\x97", b"\x98"]
    ),
    st.sampled_from(
        [b"X\xff\xff\xff\xff", b"\x8d" + b"\xff" * 8, b"\x8b\xff\xff\xff\x7f", b"I9\n"]
    ),
)
PICKLES = st.lists(ITEMS, max_size=25).map(lambda items: pickled(*items))


def as_zip(described: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", described)
        archive.writestr("archive/data/0", bytes(24))
    return file.getvalue()


MAGIC, VERSION = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", b"\x80\x02M\xe9\x03."
SYSTEM = b"\x80\x02}" + _text("little_endian") + b"\x88s."


def as_stream(
    described: bytes, magic: bytes = MAGIC, version: bytes = VERSION, system: bytes = SYSTEM
) -> bytes:
    keys = b"\x80\x02]" + _text("0") + b"a."
    return magic + version + system + described + keys + struct.pack("<q", 6) + bytes(24)


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Reads a file; fails if it runs code, takes memory, or is refused without its name."""
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr(os, "evil", lambda *given: calls.append(given), raising=False)
    path = tmp_path / "pytorch_model.bin"
    reader = Reader(path.name, bytes, lambda path: dict(open_arrays(path)))

    def check(contents: bytes) -> str | None:
        path.write_bytes(contents)
        tracemalloc.start()
        try:
            message = refusal(reader, path)
            assert tracemalloc.get_traced_memory()[1] < 10 << 20
        finally:
            tracemalloc.stop()
        assert not calls
        assert message is None or path.name in message
        return message

    return check


@pytest.mark.parametrize("written", [as_zip, as_stream])
def test_no_pickle_runs_code_or_takes_memory(check, seconds, written):
    assert check(written(b"\x80\x02}(" + _text("weight") + TENSOR + b"u.")) is None
    files = PICKLES.map(written)
    search(f"hostile pickles ({written.__name__})", files, check, seconds, examples=100)


def test_the_pickles_before_the_tensors_do_neither(check, seconds):
    parts = [PICKLES | st.just(part) for part in (b"\x80\x02}.", MAGIC, VERSION, SYSTEM)]
    files = st.builds(as_stream, *parts)
    search("hostile pickles (stream's start)", files, check, seconds, examples=100)
