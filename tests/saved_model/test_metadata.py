import json
import subprocess

import keras
import pytest

from keras_transformers.saved_model import metadata
from keras_transformers.saved_model.description import read_metadata


def test_a_model_is_described_by_its_layers_and_their_options():
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(3, activation="relu")(inputs)
    hidden = keras.layers.Dense(3, activation="relu")(hidden)
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden), name="small")
    told = metadata.of_model(model)["model"]
    assert (told["name"], told["num_parameters"]) == ("small", 15 + 12 + 4)
    assert json.loads(json.dumps(told)) == told
    first, last = told["configuration"]
    assert (first["class"], first["count"], first["options"]["units"]) == ("Dense", 2, 3)
    assert (last["count"], last["options"]["units"]) == (1, 1)
    assert "name" not in first["options"]


def test_a_vocabularys_checksum_is_that_of_a_file_with_a_token_per_line(classify, tmp_path):
    tokenizer = classify.tokenizer
    told = metadata.of_vocabulary([object(), tokenizer])  # the last one writes the answers
    (tmp_path / "vocab.txt").write_text("".join(f"{t}\n" for t in tokenizer.vocabulary), "utf-8")
    output = subprocess.run(
        ["sha256sum", str(tmp_path / "vocab.txt")], capture_output=True, text=True, check=True
    ).stdout
    assert told == {"vocabulary_size": 14, "vocabulary_sha256": output.split()[0]}
    assert metadata.of_vocabulary([]) == metadata.of_vocabulary([object()]) == {}


def test_an_export_tells_its_model_its_scores_and_its_source(classify, exported):
    told = read_metadata(exported)
    assert told["scores"] == {"accuracy on SST-2 dev": 0.91}
    layers = {entry["class"]: entry for entry in told["model"]["configuration"]}
    assert layers["TokenEmbedding"]["options"]["vocabulary_size"] == 14
    assert told["model"]["num_parameters"] == classify.model.count_params()
    assert told["library_versions"]["keras"] == keras.__version__
    assert "commit" in told


@pytest.mark.parametrize(
    "scores", [{"accuracy": float("nan")}, {"": 0.5}, {"accuracy": "0.5"}, {"accuracy": True}]
)
def test_scores_are_named_finite_numbers(scores):
    with pytest.raises(ValueError, match="finite numbers"):
        metadata.checked_scores(scores)


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_commit_is_that_of_a_tracked_folder_alone(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    assert metadata._commit(package) is None  # no repository
    git(tmp_path, "init", "-q")
    (tmp_path / "other").write_text("")
    git(tmp_path, "add", "other")
    git(tmp_path, "commit", "-q", "-m", "one")
    assert metadata._commit(package) is None  # installed inside another repository
    git(tmp_path, "add", "package")
    git(tmp_path, "commit", "-q", "-m", "two")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert metadata._commit(package) == commit
    (package / "__init__.py").write_text("changed = True")
    assert metadata._commit(package) == f"{commit}-dirty"
