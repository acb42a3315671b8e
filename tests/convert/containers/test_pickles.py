"""PyTorch's files are read as data, and nothing in them is run."""

import os
import pickle
import shutil
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from left_behind import same_outputs
from safetensors.numpy import save_file

import keras_transformers as kt
from keras_transformers.convert.containers.arrays import open_arrays
from keras_transformers.files import write_json

FILES = Path(__file__).parents[2] / "golden" / "pickles"
FLOATS = b"ctorch\nFloatStorage\n"
REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"
ORDERED = b"ccollections\nOrderedDict\n)R"


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def number(value: int) -> bytes:
    return pickle.dumps(value, 2)[2:-1]


def numbers(values: tuple[int, ...]) -> bytes:
    return pickle.dumps(values, 2)[2:-1]


def storage(size: int, kind: bytes = FLOATS, key: str = "0") -> bytes:
    described = text("storage") + kind + text(key) + text("cpu") + number(size)
    return b"(" + described + b"tQ"


def tensor(
    shape: tuple[int, ...] = (2, 3),
    strides: tuple[int, ...] = (3, 1),
    offset: int = 0,
    stored: bytes = storage(6),
    hooks: bytes = ORDERED,
) -> bytes:
    return (
        REBUILD + b"(" + stored + number(offset) + numbers(shape) + numbers(strides)
        + b"\x89" + hooks + b"tR"
    )  # fmt: skip


def dictionary(value: bytes, key: bytes | None = None) -> bytes:
    return b"\x80\x02}(" + (text("weight") if key is None else key) + value + b"u."


def write_zip(path: Path, described: bytes, **members: bytes) -> Path:
    """Writes a file of torch.save with six numbers, and more members or others."""
    values = np.arange(6, dtype="<f4").tobytes()
    contents = {"data.pkl": described, "version": b"3\n", "data/0": values}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (contents | members).items():
            archive.writestr(f"archive/{name}", content)
    return path


@pytest.fixture
def evil(monkeypatch):
    """A function that a pickle may call, and what it was called with."""
    calls = []
    monkeypatch.setattr(os, "evil", calls.append, raising=False)
    yield calls
    assert not calls, "a pickle has run code"


@pytest.mark.parametrize("name", ["zip", "zip_protocol_4", "legacy"])
def test_tensors_are_those_of_pytorch(name):
    found = open_arrays(FILES / f"{name}.bin")
    wanted = np.load(FILES / "tensors.npz")
    assert list(found) == wanted.files
    for key in found:
        array = found[key]
        assert array.shape == found.shapes[key] == wanted[key].shape
        assert not array.size or not array.flags.writeable
        if key == "torch.bfloat16":
            assert str(array.dtype) == "bfloat16"
            array = array.astype("float32")
        assert array.dtype == wanted[key].dtype
        np.testing.assert_array_equal(array, wanted[key])


def test_a_written_pickle_of_the_tests_is_read(tmp_path):
    found = open_arrays(write_zip(tmp_path / "pytorch_model.bin", dictionary(tensor())))
    np.testing.assert_array_equal(found["weight"], np.arange(6).reshape(2, 3))


def test_attributes_of_the_dictionary_are_left_out():
    assert open_arrays(FILES / "linear.bin").shapes == {"weight": (3, 2), "bias": (3,)}


def test_shards_are_read_by_their_index(tmp_path):
    first, second = (f"pytorch_model-0000{number}-of-00002.bin" for number in (1, 2))
    write_zip(tmp_path / first, dictionary(tensor()))
    shutil.copy(FILES / "legacy.bin", tmp_path / second)
    weight_map = {"weight": first, "row": second}
    write_json(tmp_path / "pytorch_model.bin.index.json", {"weight_map": weight_map})
    found = open_arrays(tmp_path)
    assert len(found) == 1 + len(open_arrays(FILES / "legacy.bin"))
    assert found.shapes["weight"] == (2, 3)
    (tmp_path / first).unlink()
    with pytest.raises(FileNotFoundError, match=f"{first}, which .* lacks"):
        open_arrays(tmp_path)


def test_safetensors_are_taken_where_there_are_both(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"no one opens this")
    save_file({"weight": np.ones(2, "float32")}, tmp_path / "model.safetensors")
    assert open_arrays(tmp_path).shapes == {"weight": (2,)}


def test_other_files_named_bin_are_not_taken_for_pickles(tmp_path):
    file = tmp_path / "model.bin"
    file.write_bytes(struct.pack("<ii", 793712314, 12))
    with pytest.raises(ValueError, match="of unknown format"):
        open_arrays(file)
    (tmp_path / "training_args.bin").write_bytes(b"\x80\x02.")
    with pytest.raises(FileNotFoundError, match="the state of a training .*has no file of weights"):
        open_arrays(tmp_path)


class _Runs:
    """What runs code in Python's own unpickler."""

    def __init__(self, how):
        self.how = how

    def __reduce__(self):
        return self.how


CALL = b"cos\nevil\n"
RUNNING = {
    "REDUCE": CALL + b"(X\x01\x00\x00\x00atR",
    "STACK_GLOBAL": text("os") + text("evil") + b"\x93" + b"(X\x01\x00\x00\x00atR",
    "INST": b"(X\x01\x00\x00\x00aios\nevil\n",
    "OBJ": b"(" + CALL + b"X\x01\x00\x00\x00ao",
    "NEWOBJ": CALL + b"X\x01\x00\x00\x00a\x85\x81",
    "NEWOBJ_EX": CALL + b"X\x01\x00\x00\x00a\x85}\x92",
    "EXT1": b"\x82\x01",
    "EXT2": b"\x83\x01\x00",
    "EXT4": b"\x84\x01\x00\x00\x00",
    "PERSID": b"Pevil\n",
    "BINPERSID": text("evil") + b"Q",
    "BUILD of a function": REBUILD + b"}" + text("__defaults__") + b")sb",
    "BUILD of a class": FLOATS + b"}" + text("dtype") + b"Nsb",
    "BUILD of a tensor": tensor() + b"}" + text("storage") + b"Nsb",
    "REDUCE of a class": FLOATS + b")R",
    "a name with dots": b"ctorch._utils\n_rebuild_tensor_v2.__globals__\n",
    "a module with dots": b"ctorch.os\nsystem\n",
    "getattr": b"cbuiltins\ngetattr\n",
    "of another protocol": b"cposix\nsystem\n(S'true'\ntR",
    "a hook": tensor(hooks=CALL + b"(X\x01\x00\x00\x00atR"),
}


@pytest.mark.parametrize("how", RUNNING)
@pytest.mark.parametrize("kind", ["zip", "stream"])
def test_a_pickle_runs_nothing(tmp_path, evil, how, kind):
    file = tmp_path / "pytorch_model.bin"
    if kind == "zip":
        write_zip(file, dictionary(RUNNING[how]))
    else:
        file.write_bytes(dictionary(RUNNING[how]))
    with pytest.raises(ValueError, match=r"pytorch_model\.bin cannot be read: .*save the weights"):
        open_arrays(file)


def test_a_planted_call_is_named(tmp_path, evil):
    planted = OrderedDict(x=_Runs((os.system, (f"touch {tmp_path / 'EVIL'}",))))
    file = write_zip(tmp_path / "pytorch_model.bin", pickle.dumps(planted, 2))
    with pytest.raises(ValueError, match=r"names 'posix\.system', .* not run: do not open"):
        open_arrays(file)
    pickle.loads(pickle.dumps(planted))  # the trap works
    assert (tmp_path / "EVIL").exists()


@pytest.mark.parametrize(
    ("described", "message"),
    [
        (tensor(shape=(3, 3), stored=storage(6)), "outside its storage of 6"),
        (tensor(offset=1), "outside its storage of 6"),
        (tensor(strides=(4, 1)), "outside its storage of 6"),
        (tensor(shape=(7,), strides=(0,)), "repeats"),
        (tensor(strides=(-3, 1)), "impossible shape"),
        (tensor(offset=-1), "impossible shape"),
        (tensor(shape=(2**63, 3)), "impossible shape"),
        (tensor(shape=(2**62, 2**62), strides=(0, 0)), "impossible shape"),
        (tensor(shape=(0, 2**62, 2**62), strides=(1, 1, 1)), "impossible shape"),
        (tensor(shape=(1,) * 33, strides=(1,) * 33), "impossible shape"),
        (tensor(shape=(2,), strides=(3, 1)), "impossible shape"),
        (tensor(stored=storage(7)), "7 float32.* 24 bytes"),
        (tensor(stored=storage(2**60)), "for which the file has 24 bytes"),
        (tensor(stored=storage(-6)), "not a storage"),
        (tensor(stored=storage(6, b"ctorch\nDoubleStorage\n")), "6 float64, .* has 24 bytes"),
        (tensor(stored=storage(6, b"ctorch\nComplexFloatStorage\n")), r"names 'torch\.Complex"),
        (tensor(stored=storage(6, key="1")), "storage '1', which is missing"),
        (tensor(stored=storage(6, key="../0")), r"storage '\.\./0', which is missing"),
        (number(3), "'weight' .*int.*tensor"),
        (b"}", "'weight' .*dict.*tensor"),
    ],
)  # fmt: skip
def test_a_tensor_lies_within_its_storage(tmp_path, described, message):
    file = write_zip(tmp_path / "pytorch_model.bin", dictionary(described))
    with pytest.raises(ValueError, match=rf"pytorch_model\.bin cannot be read: .*{message}"):
        open_arrays(file)


@pytest.mark.parametrize(
    ("described", "message"),
    [
        (b"\x80\x02]q\x00h\x00a.", "list.* dictionary"),  # a list in itself
        (b"\x80\x02}q\x00" + text("a") + b"h\x00s.", "'a' is a dict"),  # a dictionary in itself
        (b"\x80\x02" + b")" + b"\x85" * 100_000 + b".", "holds a tuple"),  # deeply nested
        (b"\x80\x02)" + b"q\x00h\x00\x86" * 100 + b".", "holds a tuple"),  # 2**100 leaves
        (b"\x80\x02}" + b")" + b"q\x00h\x00\x86" * 100 + b"Ns.", "a tuple as a key"),
        (b"\x80\x02" + b"(" * 100_000 + b".", "is damaged"),
        (b"\x80\x02r\xff\xff\xff\xff.", "is damaged"),
        (b"\x80\x02Nr\xff\xff\xff\xff.", "holds a nonetype"),
        (b"\x80\x02X\xff\xff\xff\xff", "is damaged"),
        (b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f", "is damaged"),
        (b"\x80\x02\x8b\xff\xff\xff\x7f1.", "is damaged"),
        (b"\x80\x02\x8b\xff\xff\x00\x00" + b"\xff" * 65535 + b".", "instruction LONG4"),
        (b"\x80\x02}", "is damaged"),
        (b"\x80\x02h\x05.", "is damaged"),
        (b"\x80\x02a.", "is damaged"),
        (b"\x80\x02}}.", "is damaged"),
        (b"\x80\x02" + b"N" * 10_000_000, "more than"),
    ],
)  # fmt: skip
def test_a_hostile_pickle_costs_nothing(tmp_path, described, message):
    file = write_zip(tmp_path / "pytorch_model.bin", described)
    with pytest.raises(ValueError, match=rf"pytorch_model\.bin cannot be read: .*{message}"):
        open_arrays(file)


def test_numbers_of_another_byte_order_are_refused(tmp_path):
    file = write_zip(tmp_path / "pytorch_model.bin", dictionary(tensor()), byteorder=b"big")
    with pytest.raises(ValueError, match="another byte order"):
        open_arrays(file)
    legacy = (FILES / "legacy.bin").read_bytes()
    assert b"little_endianq\x02\x88" in legacy
    file.write_bytes(legacy.replace(b"little_endianq\x02\x88", b"little_endianq\x02\x89"))
    with pytest.raises(ValueError, match="another byte order"):
        open_arrays(file)


def test_compressed_members_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", dictionary(tensor()))
        archive.writestr("archive/data/0", bytes(24))
    with pytest.raises(ValueError, match=r"'archive/data(\.pkl|/0)' is compressed or encrypted"):
        open_arrays(tmp_path)


@pytest.mark.parametrize("name", ["zip", "legacy"])
def test_a_truncated_file_is_named(tmp_path, name):
    whole = (FILES / f"{name}.bin").read_bytes()
    file = tmp_path / "pytorch_model.bin"
    for size in (0, 1, 3, 100, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"pytorch_model\.bin cannot be read"):
            open_arrays(file)


def test_other_things_that_torch_saves_have_a_remedy():
    with pytest.raises(ValueError, match=r"names 'torch\.nn\.modules\.linear\.Linear'.*state_dict"):
        open_arrays(FILES / "model.bin")
    with pytest.raises(ValueError, match=r"'state_dict' is a dict.*model\.state_dict\(\)"):
        open_arrays(FILES / "training.bin")


@pytest.mark.parametrize(
    "name",
    [
        *("bert_bf16", "bert_cls", "bert_fp16", "bert_mlm", "bert_param", "bert_pre", "bert_qa"),
        *("bert_tok", "distil_cls", "gpt2_lm", "marian", "roberta_mlm", "t5_fast", "t5_slow"),
        "vit_cls",
    ],
)
def test_a_model_has_the_outputs_of_its_original(left_behind, name):
    folder = left_behind(f"hf4_pt/{name}")
    same_outputs(kt.load(folder).model, folder.with_suffix(".npz"))


def test_a_planted_call_in_a_model_is_not_run(left_behind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"names 'posix\.system'"):
        kt.load(left_behind("hf4_pt/bert_evil"))
    assert not list(tmp_path.iterdir())
