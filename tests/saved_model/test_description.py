import json
import shutil

import pytest
import tensorflow as tf

from keras_transformers.saved_model.description import (
    METADATA_FILE,
    describe,
    lines,
    read_metadata,
)
from keras_transformers.saved_model.manifest import Provenance, record


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """A SavedModel that is not ours: x -> 2 x."""
    folder = tmp_path_factory.mktemp("foreign") / "1"
    module = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def double(x):
        return {"y": 2 * x}

    tf.saved_model.save(module, str(folder), signatures={"serving_default": double})
    return folder


def test_an_export_is_described_from_its_files(exported):
    told = describe(exported.parent)
    assert json.loads(json.dumps(told)) == told
    assert (told["path"], told["task"]) == (str(exported), "classification")
    assert told["num_bytes"] == sum(f.stat().st_size for f in exported.rglob("*") if f.is_file())
    assert told["warm_up"] is False
    signature = told["signatures"]["classify"]
    assert signature["method_name"] == "tensorflow/serving/classify"
    assert signature["examples"] == 3
    text = "\n".join(lines(told))
    assert "model              bert_classifier, " in text
    assert "-> padding_mask bool (?, ?)" in text
    assert "<- scores float32 (?, 2)" in text
    assert "TokenEmbedding(" in text


def test_where_it_comes_from_is_read_from_the_manifest_beside_it(exported, tmp_path):
    folder = shutil.copytree(exported, tmp_path / "model" / "1")
    provenance = Provenance("make it", "0" * 40, {"accuracy on nothing": 0.5}, "data", "licence")
    record(folder, provenance)
    told = describe(folder)
    assert told["provenance"]["scores"] == {"accuracy on nothing": 0.5}
    assert "files" not in told["provenance"]
    text = "\n".join(lines(told))
    assert f"commit             {'0' * 40}" in text
    assert "score              0.5: accuracy on nothing" in text


def test_of_others_exports_the_signatures_are_reported(foreign):
    told = describe(foreign)
    signature = told["signatures"]["serving_default"]
    assert signature["inputs"] == {"x": {"dtype": "float32", "shape": [None, 2]}}
    assert signature["outputs"] == {"y": {"dtype": "float32", "shape": [None, 2]}}
    assert signature["examples"] == 0
    assert "not an export of this package" in next(lines(told))
    assert set(told["signatures"]) == {"serving_default"}


def test_damage_is_reported_with_its_place(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such path"):
        describe(tmp_path / "nowhere")
    folder = tmp_path / "1"
    (folder / "assets.extra").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(b"\xff nothing")
    with pytest.raises(ValueError, match=r"saved_model.pb: not a SavedModel"):
        describe(folder)
    (folder / "saved_model.pb").write_bytes(b"")
    with pytest.raises(ValueError, match=r"has graphs tagged \[\], but servers load"):
        describe(folder)
    for content, text in (
        ("{", r"not JSON \(.*export the model again"),
        ("[]", "a JSON list, expected an object; export"),
        ('{"signatures": 1}', "no signatures; export"),
        ('{"format": "1"}', "format '1', expected a number; export"),
    ):
        (folder / "assets.extra" / "keras_transformers.json").write_text(content)
        with pytest.raises(ValueError, match=rf"keras_transformers.json: {text}"):
            read_metadata(folder)


def test_a_newer_format_is_refused_with_the_remedy(exported, tmp_path):
    folder = shutil.copytree(exported, tmp_path / "1")
    file = folder / METADATA_FILE
    metadata = json.loads(file.read_text("utf-8"))
    assert metadata["format"] == 1
    file.write_text(json.dumps(metadata | {"format": 2, "signatures": "elsewhere"}), "utf-8")
    with pytest.raises(ValueError, match=rf"{file}: format 2, .* up to 1: .*--upgrade"):
        describe(folder)
    del metadata["format"]  # as in saved_models
    file.write_text(json.dumps(metadata), "utf-8")
    assert describe(folder)["task"] == "classification"
