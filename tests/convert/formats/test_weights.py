"""What lies in a folder is called by its name: what is taken, why, and what is not read."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import keras_transformers as kt
from keras_transformers.convert.formats.weights import look

BERT = {"model_type": "bert", "architectures": ["BertModel"]}


@pytest.mark.parametrize(
    ("name", "start", "message"),
    [
        ("model.onnx", b"\x08\x07", r"ONNX \(model\.onnx\).*onnxruntime"),
        ("flax_model.msgpack", b"x", r"Flax \(flax_model\.msgpack\).*from_flax=True"),
        ("rust_model.ot", b"x", r"Rust's tch"),
        ("openvino_model.xml", b"x", r"OpenVINO"),
        ("model.tflite", b"x", r"TensorFlow Lite"),
        ("adapter_model.bin", b"\x80", r"an adapter of peft.*merge_and_unload"),
        ("training_args.bin", b"PK\x03\x04", r"the state of a training run"),
        ("weights.pt", b"PK\x03\x04", r"a PyTorch file of another name.*pytorch_model\.bin"),
        ("cc.en.vec", b"2 3", r"word vectors as text.*gensim"),
        ("model.pkl", b"\x80", r"a pickle \(model\.pkl\).*not opened"),
    ],
)
def test_what_is_not_read_is_called_by_its_name(tmp_path, name, start, message):
    (tmp_path / name).write_bytes(start)
    with pytest.raises(ValueError, match=rf"^{tmp_path} has {message}"):
        kt.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(BERT))
    with pytest.raises(FileNotFoundError, match=rf"^{tmp_path} has {message}.*no file of weights"):
        kt.load(tmp_path)
    if name != "weights.pt":  # one of the files that are read, given without its folder
        with pytest.raises(ValueError, match=rf"{name} is {message}"):
            kt.load(tmp_path / name)
    if "pickle" not in message and name != "model.pkl":
        assert "pickle" not in str(look(tmp_path))


def test_of_several_files_one_is_taken_and_the_others_are_named(tmp_path, caplog):
    (tmp_path / "config.json").write_text(json.dumps(BERT))
    save_file({"a": np.ones(2, "float32")}, tmp_path / "model.safetensors")
    for name in ("pytorch_model.bin", "flax_model.msgpack"):
        (tmp_path / name).write_bytes(b"x")
    found = look(tmp_path)
    assert [file.name for file in found.weights] == ["model.safetensors", "pytorch_model.bin"]
    assert [other.files for other in found.not_read] == [("flax_model.msgpack",)]
    assert "are model.safetensors, which comes before pytorch_model.bin; not read: Flax" in str(
        found
    )
    with caplog.at_level(logging.INFO), pytest.raises(ValueError, match="config"):
        kt.load(tmp_path)
    assert "which comes before pytorch_model.bin" in caplog.text


def test_a_pointer_of_git_lfs_is_no_damaged_file(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(BERT))
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ValueError, match=r"model\.safetensors is a pointer of Git LFS.*lfs pull"):
        kt.convert.containers.open_arrays(tmp_path)


def test_the_folder_inside_or_around_is_named(tmp_path):
    inner = tmp_path / "bert"
    inner.mkdir()
    save_file({"a": np.ones(2, "float32")}, inner / "model.safetensors")
    with pytest.raises(
        ValueError, match=r"has model.safetensors, but no config.json.*: copy"
    ) as error:
        kt.load(inner)
    assert "expected one of" not in str(error.value)  # the remedy alone, not every known format
    (inner / "config.json").write_text(json.dumps(BERT))
    with pytest.raises(ValueError, match="folders with weights: pass bert"):
        kt.load(tmp_path)
    with pytest.raises(ValueError, match=f"part of a folder, with a config.json: pass {inner}"):
        kt.load(inner / "model.safetensors")


def test_the_variables_of_a_savedmodel_are_no_folder_with_weights(tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(b"x")
    inner = tmp_path / "variables"
    inner.mkdir()
    (inner / "config.json").write_text(json.dumps(BERT))
    save_file({"a": np.ones(2, "float32")}, inner / "model.safetensors")
    with pytest.raises(ValueError, match="has a SavedModel") as error:
        kt.load(tmp_path)
    assert "folders with weights" not in str(error.value)


def test_a_name_of_the_hub_without_its_prefix_is_no_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist: .* or hf://organization/name"):
        kt.load(tmp_path / "bert-base-uncased")


def test_another_family_is_called_by_its_name(tmp_path):
    config = {"model_type": "clip", "architectures": ["CLIPModel"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(
        ValueError, match=r"model_type 'clip' \(CLIPModel\) is unknown; expected"
    ) as refused:
        kt.load(tmp_path)
    page = Path(__file__).parents[3] / "docs/tutorials/a_family_in_a_day.md"
    title = page.read_text("utf-8").splitlines()[0].removeprefix("# ")
    assert f'tutorial "{title}"' in str(refused.value)
