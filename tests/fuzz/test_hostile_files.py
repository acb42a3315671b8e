"""Small files that claim much are refused by name, in little time and memory.

Each is read in a process with limits: a reader that believes a file fails the test.
"""

import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from bounds import bounded
from reader import Reader, refusal
from test_hostile_pickles import DOUBLED, TENSOR, as_stream, as_zip, pickled
from tf_table import tensor, write_index

from keras_transformers.convert.containers.arrays import open_arrays
from keras_transformers.convert.formats.weights import find_weights
from keras_transformers.data.tables.reading import read_objects
from keras_transformers.files import read_json

GGUF, SAFETENSORS, PICKLE = "model.gguf", "model.safetensors", "pytorch_model.bin"
INDEX, TABLE = "bert_model.ckpt.index", "data.jsonl"
ARRAY, BYTE, TEXT = (gguf.GGUFValueType[name] for name in ("ARRAY", "UINT8", "STRING"))
F32 = gguf.GGMLQuantizationType.F32


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def gguf_file(*parts: bytes, num_tensors: int = 0, num_fields: int = 1) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, num_tensors, num_fields) + b"".join(parts)


def gguf_array(kind: int, count: int, values: bytes = b"") -> bytes:
    return gguf_file(text("tokens"), struct.pack("<IIQ", ARRAY, kind, count), values)


def gguf_tensor(*sizes: int) -> bytes:
    described = struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, F32, 0)
    return gguf_file(text("token_embd.weight"), described, bytes(64), num_tensors=1, num_fields=0)


def safetensors(shape: str, *, kind: str = "F32", size: int = 0) -> bytes:
    header = f'{{"a": {{"dtype": "{kind}", "shape": {shape}, "data_offsets": [0, {size}]}}}}'
    return struct.pack("<Q", len(header)) + header.encode() + bytes(size)


def fasttext_file() -> bytes:
    """A quantized matrix in 2^30 parts of one number."""
    original = (Path(__file__).parents[1] / "golden/fasttext/pruned.ftz").read_bytes()
    dim = struct.unpack_from("<i", original, 8)[0]
    width = original.index(struct.pack("<iii", dim, -(-dim // 2), 2))
    return original[:width] + struct.pack("<4i", 2**30, 2**30, 1, 1) + original[width + 16 :]


def nested(depth: int) -> bytes:
    return b'{"text":' + b"[" * depth + b"]" * depth + b"}"


def npz_member(header: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()


def npz_file(header: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("cls.npy", npz_member(header))
        archive.writestr("a.txt", "not an array")
    return file.getvalue()


def read_weights(path: Path) -> None:
    dict(open_arrays(path))


def read_gguf(path: Path) -> None:
    dict(open_arrays(path))


def read_checkpoint(path: Path) -> None:
    path.with_name("bert_model.ckpt.data-00000-of-00001").write_bytes(bytes(64))
    dict(open_arrays(path.with_suffix("")))


def read_table(path: Path) -> None:
    list(read_objects(path))


FILES: dict[str, tuple[str, Callable[[], bytes], Callable[[Path], Any]]] = {
    "a version that holds itself": (
        PICKLE, lambda: as_stream(b"\x80\x02}.", version=pickled(DOUBLED)), read_weights,
    ),
    "a magic number that holds itself": (
        PICKLE, lambda: as_stream(b"\x80\x02}.", magic=pickled(DOUBLED)), read_weights,
    ),
    "a system that holds itself": (
        PICKLE, lambda: as_stream(b"\x80\x02}.", system=pickled(DOUBLED)), read_weights,
    ),
    "a tensor that holds itself": (
        PICKLE, lambda: as_zip(b"\x80\x02}(X\x01\x00\x00\x00a" + DOUBLED + b"u."), read_weights,
    ),
    "a storage that holds itself": (
        PICKLE, lambda: as_zip(b"\x80\x02(" + DOUBLED + b"tQ."), read_weights,
    ),
    "a shape that holds itself": (
        PICKLE,
        lambda: as_zip(b"\x80\x02" + TENSOR.replace(b"K\x02K\x03\x86", DOUBLED) + b"."),
        read_weights,
    ),
    "a pickle of lists": (PICKLE, lambda: as_zip(b"\x80\x02" + b"]" * (8 << 20)), read_weights),
    "an array of 2^60 bytes": (GGUF, lambda: gguf_array(BYTE, 2**60), read_gguf),
    "2,000,000 bytes": (GGUF, lambda: gguf_array(BYTE, 2 * 10**6, bytes(2 * 10**6)), read_gguf),
    "300,000 empty texts": (
        GGUF, lambda: gguf_array(TEXT, 300_000, bytes(2_400_000)), read_gguf,
    ),
    "more values than a vocabulary": (
        GGUF, lambda: gguf_array(BYTE, 10**7, bytes(10**7)), read_gguf,
    ),
    "2^40 fields": (GGUF, lambda: gguf_file(num_fields=2**40), read_gguf),
    "2^40 tensors": (GGUF, lambda: gguf_file(num_tensors=2**40, num_fields=0), read_gguf),
    "a size that wraps": (GGUF, lambda: gguf_tensor(2**62 + 1, 4), read_gguf),
    "no numbers, in 2^62 columns": (
        SAFETENSORS, lambda: safetensors(f"[0, {2**62}]"), read_weights,
    ),
    "no numbers, in 2^64 columns": (
        SAFETENSORS, lambda: safetensors(f"[0, {2**64 - 1}]"), read_weights,
    ),
    "a tensor of 70 axes": (
        SAFETENSORS, lambda: safetensors(str([1] * 70), size=4), read_weights,
    ),
    "floats of an unknown kind": (
        SAFETENSORS, lambda: safetensors("[4]", kind="F8_E8M0", size=4), read_weights,
    ),
    "a header nested 100,000 deep": (
        SAFETENSORS, lambda: safetensors("[" * 100_000), read_weights,
    ),
    "an index with a negative size": (INDEX, lambda: write_index(tensor(-5)), read_checkpoint),
    "an index with too many numbers": (
        INDEX, lambda: write_index(tensor(2**62, 2**62)), read_checkpoint,
    ),
    "an index with 300 axes": (INDEX, lambda: write_index(tensor(*[1] * 300)), read_checkpoint),
    "an index with 2^28 texts": (
        INDEX, lambda: write_index(tensor(2**28, kind="DT_STRING")), read_checkpoint,
    ),
    "a quantized matrix of 2^30 parts": ("model.ftz", fasttext_file, find_weights),
    "an array with a nested header": (
        "vit.npz", lambda: npz_file("(" * 9000), find_weights,
    ),
    "one array instead of an archive": (
        "vit.npz", lambda: npz_member("{'descr': '<f4', 'fortran_order': False, 'shape': (0,)}\n"),
        find_weights,
    ),
    "an array of 2^50 numbers": (
        "vit.npz",
        lambda: npz_file(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({2**50},)}}\n"),
        find_weights,
    ),
    "nested JSON": ("config.json", lambda: nested(5000), read_json),
    "texts nested 5,000 deep": (TABLE, lambda: nested(5000), read_table),
    "texts nested 200 deep": (TABLE, lambda: nested(200), read_table),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_claims_much_is_refused(name, tmp_path):
    file, make, read = FILES[name]
    path = tmp_path / file
    path.write_bytes(make())
    message = bounded(lambda: refusal(Reader(file, bytes, read), path))
    assert message is not None
    assert file.removesuffix(".index") in message
    assert len(message) < 1000


def test_the_index_of_a_checkpoint_may_have_what_fits(tmp_path):
    (tmp_path / INDEX).write_bytes(write_index(tensor(2, 2)))
    read_checkpoint(tmp_path / INDEX)


def test_a_table_that_unpacks_to_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("keras_transformers.files.compression._ALWAYS_ALLOWED", 2**16)
    np.savez_compressed(tmp_path / "vit.npz", cls=np.zeros(2**20, "float32"))
    message = refusal(Reader("vit.npz", bytes, find_weights), tmp_path / "vit.npz")
    assert message is not None
    assert all(part in message for part in ("vit.npz", "4 MiB", "bomb"))
