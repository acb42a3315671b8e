"""ELMo's pretraining recipe, from text to weights, and its errors on wrong input."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from checks import newest_state, says
from recipe_runs import error_of, killed_after, run, write_documents

import keras_transformers as kt
from keras_transformers.families.elmo.model import elmo
from keras_transformers.tokenizers.characters import CharacterTokenizer
from keras_transformers.tokenizers.word_vocabulary import WordVocabulary

FILTERS = (1, 6), (3, 8)

error_of = functools.partial(error_of, "pretrain_elmo")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pretrain_elmo")
    write_documents(folder)
    return folder


def options(folder, **changes):
    return {
        "data": folder / "text.txt",
        "dev_fraction": 0.2,
        "lstm_dim": 24,
        "projection_dim": 12,
        "max_characters": 10,
        "epochs": 3,
        "steps_per_epoch": 12,
        "batch_size": 8,
        "window_length": 16,
        "num_sampled": 10,
        "learning_rate": 2e-2,
        "kneser_ney_order": 3,
        "runs_dir": folder / "runs",
    } | changes


def trained(*flags, **given):
    words = [str(number) for pair in FILTERS for number in pair]
    return run("pretrain_elmo", "--filters", *words, *flags, **given)


@pytest.fixture(scope="module")
def outcome(folder):
    """A run, and beside it what a kill after its second epoch leaves."""
    with killed_after(2, folder=folder / "runs/pretrain_elmo"):
        return trained(**options(folder, export=folder / "saved/1"))


@pytest.mark.slow
def test_a_run_learns_in_both_directions(outcome):
    assert "42 documents" not in outcome.printed  # each part is counted separately
    metrics = outcome.metrics
    assert [epoch["epoch"] for epoch in metrics["epochs"]] == [1, 2, 3]
    assert metrics["steps"] == 36
    first, *_, last = metrics["epochs"]
    for direction in ("forward", "backward"):
        name = f"dev_{direction}_perplexity"
        assert metrics[name] == last[f"val_{direction}_loss_perplexity"]
        assert 1 < metrics[name] < first[f"val_{direction}_loss_perplexity"]
        assert metrics[name] < metrics["dev_perplexity, unigram"]
        # Three words determine a text this simple.
        assert 1 < metrics[f"{name}, Kneser-Ney"] < 0.5 * metrics["dev_perplexity, unigram"]
    assert last["val_log_probability"] > first["val_log_probability"]
    assert metrics["dev_unknown_words"] == 0


@pytest.mark.slow
def test_weights_and_export_are_those_of_the_last_epoch(outcome, folder):
    """They load into a model built from the files beside them, and answer like the export."""
    weights = outcome.folder / "weights"
    assert WordVocabulary.read(weights / "vocabulary.txt").words[3:5] == ["the", "."]
    encoder = elmo(**kt.convert.read_elmo_options(weights / "options.json"), dropout=0.0)
    kt.convert.load_elmo(encoder, weights / "weights.hdf5")
    assert encoder.count_params() == outcome.metrics["parameters"]
    exported = tf.saved_model.load(str(folder / "saved/1")).signatures["serving_default"]
    answer = exported(text=tf.constant(["the cat is near ."]))
    ids = CharacterTokenizer(max_characters=10)(tf.constant(["the cat is near ."]))
    expected = encoder(ids)["layer_outputs"][:, 1:-1]
    np.testing.assert_allclose(answer["vectors"], expected, atol=1e-5)


@pytest.mark.slow
def test_a_run_that_was_killed_ends_as_one_that_was_not(outcome, folder, capsys):
    runs = folder / "runs"
    outcome.folder.rename(runs / "whole")
    (runs / "killed-2").rename(outcome.folder)
    assert not (outcome.folder / "metrics.json").exists()
    resumed = trained("--resume", **options(folder))
    assert [epoch["epoch"] for epoch in resumed.metrics["epochs"]] == [1, 2, 3]
    whole, stopped = newest_state(runs / "whole"), newest_state(outcome.folder)
    assert whole.keys() == stopped.keys()
    for name in whole.keys() - {"state"}:
        # Not bit for bit: TensorFlow's sums depend on threads and addresses.
        np.testing.assert_allclose(whole[name], stopped[name], rtol=0, atol=1e-5)
    changed = options(folder, filters=FILTERS, learning_rate=1e-3, resume=True)
    assert "learning_rate was 0.02, is 0.001; pass the same" in error_of(capsys, **changed)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": "none.txt"}, "none.txt: no such file"),
        ({"corpora": ("brown",)}, "brown.zip"),
        ({"dev_fraction": 1}, "--dev-fraction 1 ... above 0 and below 1"),
        ({"vocabulary": "none.txt"}, "none.txt: no such file"),
        ({"vocabulary_size": 3}, "--vocabulary-size 3 ... <S>, </S>, <UNK> ... 3"),
        ({"min_frequency": 9999}, "words occurs 9999 times"),
        ({"max_characters": 2}, "--max-characters 2 ... at least 3"),
        ({"projection_dim": 25}, "--projection-dim 25 is above --lstm-dim 24"),
        ({"num_sampled": 0}, "--num-sampled 0 ... 1 or more"),
        ({"epochs": 0}, "--epochs 0 ... 1 or more"),
        ({"window_length": 1}, "--window-length 1: nothing to predict"),
        ({"batch_size": 0}, "--batch-size 0 ... 1 or more"),
    ],
)
def test_wrong_input_ends_with_one_line_and_status_2(folder, tmp_path, capsys, changes, message):
    paths = {
        name: tmp_path / value for name, value in changes.items() if name in ("data", "vocabulary")
    }
    changed = options(folder, filters=FILTERS, runs_dir=tmp_path / "runs") | changes | paths
    assert says(error_of(capsys, **changed), message)
    assert not (tmp_path / "runs").exists()
