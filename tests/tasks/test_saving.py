"""Pipelines in folders; the tests of each task check that it is restored exactly."""

import json
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
from pretrained_models import lively_classifier
from safetensors.numpy import load_file, save_file

import keras_transformers as kt
from keras_transformers.pipelines import TextClassifier
from keras_transformers.tasks.weights import saving

# It imports nothing else that loading might need.
LOADED = """
import json, sys
import keras_transformers as kt
print(json.dumps(kt.load(sys.argv[1]).rows({"text": json.loads(sys.argv[2])})))
"""


@pytest.mark.slow
def test_another_process_gives_the_same_answers(pipelines, tmp_path):
    fill, texts = pipelines("fill_mask"), ["a [MASK] film", "", "very bad [MASK]!"]
    arguments = str(fill.save(tmp_path / "saved")), json.dumps(texts)
    process = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments], capture_output=True, check=True
    )
    assert json.loads(process.stdout.splitlines()[-1]) == fill.rows({"text": texts})


@pytest.fixture
def folder(pipelines, tmp_path):
    return pipelines("classification").save(tmp_path / "saved")


def test_what_lies_in_the_folder(pipelines, folder):
    names = {file.name for file in folder.iterdir()}
    assert names == {"pipeline.json", "model.json", "model.safetensors", "vocab.txt"}
    assert saving.is_pipeline(folder)
    assert not saving.is_pipeline(folder.parent)
    description = json.loads((folder / "pipeline.json").read_text())
    assert description["task"] == "classification"
    assert description["config"]["labels"] == ["negative", "positive"]


def test_a_folder_is_never_overwritten_nor_left_half_written(pipelines, folder, monkeypatch):
    before = (folder / "pipeline.json").read_bytes()
    with pytest.raises(FileExistsError, match="saved exists"):
        pipelines("regression").save(folder)
    assert (folder / "pipeline.json").read_bytes() == before

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr("safetensors.numpy.save_file", fail)
    with pytest.raises(OSError, match="no space left"):
        pipelines("regression").save(folder.parent / "new")
    assert [file.name for file in folder.parent.iterdir()] == ["saved"]


@pytest.mark.slow
def test_how_a_model_was_trained_is_not_saved(tokenizer, tmp_path):
    def loss(wanted, found):
        return keras.losses.sparse_categorical_crossentropy(wanted, found, from_logits=True)

    model = lively_classifier()
    model.compile(optimizer="adam", loss={"logits": loss})
    pipeline = TextClassifier(model, tokenizer, ["a", "b"])
    again = kt.load(pipeline.save(tmp_path / "saved"))
    assert not again.model.compiled
    assert again("a film") == pipeline("a film")


@pytest.mark.parametrize("name", ["pipeline.json", "model.json", "model.safetensors", "vocab.txt"])
def test_a_file_is_missing(folder, name):
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=name):
        kt.load(folder)


@pytest.mark.parametrize(
    ("name", "changes", "text"),
    [
        ("pipeline.json", {"format": 2}, "format 2.* reads 1: update"),
        ("pipeline.json", {"class": "Poet"}, "no pipeline 'Poet'.*update"),
        ("pipeline.json", {"class": None}, "no entry 'class'"),
        ("model.json", {"class_name": "Poet", "registered_name": "Poet"}, "cannot make this model"),
    ],
)
def test_what_another_version_wrote(folder, name, changes, text):
    description = json.loads((folder / name).read_text()) | changes
    kept = {key: value for key, value in description.items() if value is not None}
    (folder / name).write_text(json.dumps(kept))
    with pytest.raises(ValueError, match=text):
        kt.load(folder)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("pipeline.json", {"tokenizers": []}),
        ("pipeline.json", {"tokenizers": {"tokenizer": "WordPiece"}}),
        ("pipeline.json", {"class": 5}),
        ("pipeline.json", {"class": "results"}),
        ("pipeline.json", {"config": []}),
        ("pipeline.json", {"config": {"nobody": 1}}),
        ("model.json", {"config": 5}),
        ("model.json", {"class_name": 5, "registered_name": 5}),
        ("model.json", None),
    ],
)
def test_entries_of_another_type(folder, name, changes):
    description = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps({} if changes is None else description | changes))
    with pytest.raises(ValueError, match=rf"{name}: .*save the pipeline again"):
        kt.load(folder)


def test_a_size_that_no_weight_has_takes_no_memory(folder):
    file, size = folder / "model.json", '"intermediate_dim": '
    text = file.read_text()
    assert f"{size}32" in text
    file.write_text(text.replace(f"{size}32", f"{size}{2**40}"))
    with pytest.raises(ValueError, match=r"model\.json: intermediate_dim=1099511627776 is larger"):
        kt.load(folder)


@pytest.mark.parametrize("name", ["pipeline.json", "model.json", "model.safetensors"])
def test_a_file_is_cut(folder, name):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=name):
        kt.load(folder)


def test_weights_of_another_model(pipelines, folder, tmp_path):
    other = pipelines("regression").save(tmp_path / "other")
    shutil.copy(other / "model.safetensors", folder)
    with pytest.raises(ValueError, match=r"not the weights of 'bert_classifier': .*score_dense"):
        kt.load(folder)
    other = pipelines("pairs").save(tmp_path / "another")
    shutil.copy(other / "model.safetensors", folder)
    with pytest.raises(ValueError, match=r"\(8, 3\),.*\(8, 2\)"):
        kt.load(folder)


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (np.nan, "float32", "with NaN or infinity: logits/bias .*1 of 2: save"),
        (-np.inf, "float16", "with NaN or infinity: logits/bias .*1 of 2: save"),
        (1, "int32", "not floating-point: logits/bias is int32: save"),
    ],
)
def test_weights_that_are_no_numbers(folder, value, dtype, text):
    file = folder / "model.safetensors"
    arrays = load_file(file)
    bias = arrays["logits/bias"].astype(dtype)
    bias[1] = value
    save_file(arrays | {"logits/bias": bias}, file)
    with pytest.raises(ValueError, match=rf"model\.safetensors: {text}.*again"):
        kt.load(folder)
