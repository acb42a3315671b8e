"""Tagging with ELMo's features, from saved weights to a score, and its errors on wrong input."""

import runpy

import keras
import numpy as np
import pytest
from checks import says
from recipe_runs import error_of, file_of, run

import keras_transformers as kt

TEXT = "Bob B-P\nsaw O\nRome B-L\n\nit O\nrained O\n\nEve B-P\nslept O\nin O\nOslo B-L\n\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("elmo")
    keras.utils.set_random_seed(0)
    encoder = kt.families.elmo.elmo(
        num_layers=1,
        lstm_dim=8,
        projection_dim=6,
        num_highways=1,
        filters=[(1, 4), (3, 8)],
        character_dim=4,
        max_characters=10,
    )
    (folder / "weights").mkdir()
    kt.convert.save_elmo(encoder, folder / "weights/weights.hdf5")
    kt.convert.save_elmo_options(encoder, folder / "weights/options.json")
    (folder / "train.txt").write_text(TEXT * 8, "utf-8")
    (folder / "dev.txt").write_text(TEXT, "utf-8")
    return folder


def options(folder, **changes):
    return {
        "weights": folder / "weights",
        "train_file": folder / "train.txt",
        "dev_file": folder / "dev.txt",
        "units": 8,
        "dropout": 0,
        "epochs": 15,
        "batch_size": 4,
        "learning_rate": 0.05,
        "runs_dir": folder / "runs",
    } | changes


@pytest.mark.slow
def test_saved_weights_to_a_score(folder):
    outcome = run("elmo_tagging", **options(folder, test_file=folder / "dev.txt"))
    metrics = outcome.metrics
    assert outcome.json("report_test.json")["figures"]["entity_f1"] == metrics["test_entity_f1"]
    assert metrics["dev_entity_f1"] == metrics["test_entity_f1"] == metrics["best"] == 1
    assert sum(metrics[f"share_of_layer_{i}"] for i in range(2)) == pytest.approx(1)
    # A mix, a BiLSTM and a head: the encoder is not trained.
    assert metrics["trained_parameters"] == 3 + 2 * (12 + 8 + 1) * 32 + (16 + 1) * 5


def test_random_weights_are_not_those_of_the_file(folder):
    recipe = runpy.run_path(str(file_of("elmo_tagging")))
    trained = recipe["load"](recipe["Config"](**options(folder)))
    changes = {"weights": folder / "weights", "random_weights": True}
    other = recipe["load"](recipe["Config"](**options(folder, **changes)))
    assert other.count_params() == trained.count_params()
    pairs = zip(other.get_weights(), trained.get_weights(), strict=True)
    assert not all(np.array_equal(*pair) for pair in pairs)


@pytest.mark.slow
def test_random_weights_reach_a_score(folder):
    changes = {"weights": folder / "weights", "epochs": 1, "name": "random"}
    metrics = run("elmo_tagging", "--random-weights", **options(folder, **changes)).metrics
    assert 0 <= metrics["dev_entity_f1"] <= 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": "none"}, "none: ... check the path"),
        ({"weights": ""}, "no weights"),
        ({"dev_file": "none.txt"}, "none.txt: no such file"),
        ({"export": "saved"}, "--export ... no pipeline"),
        ({"save": "saved"}, "--save ... no pipeline"),
    ],
)
def test_wrong_input_ends_with_one_line_and_status_2(folder, tmp_path, capsys, changes, message):
    paths = {name: tmp_path / value for name, value in changes.items()}
    changed = options(folder, **{"runs_dir": tmp_path / "runs"} | paths)
    assert says(error_of("elmo_tagging", capsys, **changed), message)
