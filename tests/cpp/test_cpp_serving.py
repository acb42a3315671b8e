"""Every export in a C++ program that loads it as TF Serving does, without Python."""

import importlib.util
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tiny
from tensorflow.core.protobuf import named_tensor_pb2

import keras_transformers as kt
from keras_transformers.saved_model.checks.check import differences
from keras_transformers.saved_model.description import read_metadata
from keras_transformers.saved_model.examples import stored_examples

pytestmark = pytest.mark.cpp
SAVED_MODELS = Path(__file__).parents[2] / "saved_models"


@pytest.fixture(scope="session")
def program(tmp_path_factory) -> Path:
    """Built against the libraries in TensorFlow's own wheel."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler: apt install g++")
    libraries = Path(tf.sysconfig.get_lib())
    target = tmp_path_factory.mktemp("cpp") / "run_examples"
    command = [
        *(compiler, "-O0", "-w", *tf.sysconfig.get_compile_flags()),
        *(str(Path(__file__).with_name("run_examples.cc")), "-o", str(target)),
        *(f"-L{libraries}", "-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2"),
        *(f"-Wl,-rpath,{libraries}", "-Wl,--allow-shlib-undefined"),
    ]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[-3000:]
    return target


def op_libraries() -> list[str]:
    """tensorflow-text's ops, which TF Serving has built in."""
    folder = Path(importlib.util.find_spec("tensorflow_text").origin).parent
    return sorted(map(str, folder.glob("python/ops/_*.so")))


def record(content: bytes) -> bytes:
    return struct.pack("<Q", len(content)) + content


def records(content: bytes):
    while content:
        (length,) = struct.unpack_from("<Q", content)
        yield content[8 : 8 + length]
        content = content[8 + length :]


def tensors(arrays) -> bytes:
    protos = [
        named_tensor_pb2.NamedTensorProto(name=name, tensor=tf.make_tensor_proto(array))
        for name, array in arrays.items()
    ]
    return b"".join(map(record, [b"%d" % len(protos), *(p.SerializeToString() for p in protos)]))


def answers(content: bytes):
    """Yields (error, name -> array) of each call."""
    parts = records(content)
    for error in parts:
        protos = [
            named_tensor_pb2.NamedTensorProto.FromString(next(parts))
            for _ in range(int(next(parts)))
        ]
        yield error.decode("utf-8", "replace"), {p.name: tf.make_ndarray(p.tensor) for p in protos}


def run(program, folder, calls, tmp_path) -> list:
    content = [record(name.encode()) + tensors(inputs) for name, inputs in calls]
    (tmp_path / "calls").write_bytes(b"".join(content))
    command = [program, folder, tmp_path / "calls", tmp_path / "answers", *op_libraries()]
    process = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        env={"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"},
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return list(answers((tmp_path / "answers").read_bytes()))


def assert_answers_as_stored(program, folder, tmp_path):
    metadata = read_metadata(folder)
    examples = [
        (name, example)
        for name in metadata["signatures"]
        for example in stored_examples(metadata, name)
    ]
    assert examples
    found = run(program, folder, [(name, e["inputs"]) for name, e in examples], tmp_path)
    assert len(found) == len(examples)
    for (name, example), (error, outputs) in zip(examples, found, strict=True):
        assert error == "", name
        assert list(differences(outputs, example["outputs"], metadata["tolerance"])) == [], name


@pytest.mark.parametrize("task", tiny.TASKS)
def test_every_export_answers_in_cpp(task, program, tmp_path):
    assert_answers_as_stored(program, tiny.exported(task), tmp_path)


def test_a_corpus_is_searched_in_cpp(program, tmp_path):
    export = kt.export(tiny.searcher(), tmp_path / "export", check=False)
    assert_answers_as_stored(program, export, tmp_path)


@pytest.mark.parametrize("make", [tiny.wide_mask_filler, tiny.wide_generator])
def test_matrices_in_panels_answer_in_cpp(make, program, tmp_path):
    assert_answers_as_stored(program, kt.export(make(), tmp_path / "export", check=False), tmp_path)


@pytest.mark.parametrize("name", ["fill_mask_en", "sentiment_en", "translate_de_en"])
def test_the_exports_in_the_repository_answer_in_cpp(name, program, tmp_path):
    assert_answers_as_stored(program, SAVED_MODELS / name / "1", tmp_path)


def test_what_the_graph_refuses_is_an_error_and_the_next_call_is_answered(program, tmp_path):
    folder = tiny.exported("classification")
    good = next(stored_examples(read_metadata(folder), "classify"))
    bad = {"inputs": np.array([b"\xff no record"], dtype=object)}
    calls = [("classify", bad), ("classify", good["inputs"])]
    (error, outputs), (no_error, answer) = run(program, folder, calls, tmp_path)
    assert error.startswith("INVALID_ARGUMENT")
    assert outputs == {}
    assert no_error == ""
    assert list(differences(answer, good["outputs"], 1e-5)) == []
