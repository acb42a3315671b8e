"""ELMo's pretraining recipe, from text to weights, and what it says to wrong input."""

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from checks import newest_state

import keras_transformers as kt
from keras_transformers.models.elmo import elmo
from keras_transformers.runs.resume.callback import Resume
from keras_transformers.tokenizers.word_vocabulary import WordVocabulary

RECIPE = Path(__file__).parents[2] / "recipes" / "pretrain_elmo.py"
WORDS = ["cat", "dog", "bird", "ship", "rain", "tree", "house"]


@pytest.fixture
def folder(tmp_path):
    """Forty-two documents, each about two of seven things."""
    pairs = [(one, other) for one in WORDS for other in WORDS if one != other]
    documents = [
        "\n".join(f"the {one} is near the {other} {'again ' * (i % 3)}." for i in range(3 + k % 4))
        for k, (one, other) in enumerate(pairs)
    ]
    (tmp_path / "text.txt").write_text("\n\n".join(documents) + "\n", "utf-8")
    return tmp_path


def options(folder, **changes):
    """The command's words, with `changes` made to them."""
    values = {
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
    return [
        *(f"--{name.replace('_', '-')}={value}" for name, value in values.items()),
        *("--filters", "1", "6", "3", "8"),
    ]


def run(monkeypatch, arguments):
    monkeypatch.setattr(sys, "argv", [str(RECIPE), *arguments])
    runpy.run_path(str(RECIPE), run_name="__main__")


def run_and_stop(monkeypatch, arguments, last_epoch):
    """Runs, and stops as if killed, once the state of that epoch is on disk."""
    write = Resume.on_epoch_end

    def stop(self, epoch, logs=None):
        write(self, epoch, logs)
        if epoch + 1 == last_epoch:
            raise KeyboardInterrupt

    with monkeypatch.context() as stopping:
        stopping.setattr(Resume, "on_epoch_end", stop)
        with pytest.raises(KeyboardInterrupt):
            run(stopping, arguments)


def test_text_to_weights_with_a_stop_in_between(folder, monkeypatch, capsys):
    arguments = options(folder, export=folder / "saved/1")
    run_and_stop(monkeypatch, arguments, last_epoch=2)
    assert not (folder / "runs/pretrain_elmo/metrics.json").exists()
    assert "42 documents" not in capsys.readouterr().out  # those of both parts are told apart

    run(monkeypatch, [*arguments, "--resume"])
    run_folder = folder / "runs" / "pretrain_elmo"
    metrics = json.loads((run_folder / "metrics.json").read_text())
    assert [epoch["epoch"] for epoch in metrics["epochs"]] == [1, 2, 3]
    assert metrics["steps"] == 36
    first, *_, last = metrics["epochs"]
    for direction in ("forward", "backward"):
        name = f"dev_{direction}_perplexity"
        assert metrics[name] == last[f"val_{direction}_loss_perplexity"]
        assert 1 < metrics[name] < first[f"val_{direction}_loss_perplexity"]
        assert metrics[name] < metrics["dev_perplexity, unigram"]
        # A text this simple is known from three words.
        assert 1 < metrics[f"{name}, Kneser-Ney"] < 0.5 * metrics["dev_perplexity, unigram"]
    assert last["val_log_probability"] > first["val_log_probability"]
    assert metrics["dev_unknown_words"] == 0

    # The weights load into a model that is built by what lies beside them, and are the last ones.
    weights = run_folder / "weights"
    assert WordVocabulary.read(weights / "vocabulary.txt").words[3:5] == ["the", "."]
    encoder = elmo(**kt.convert.read_elmo_options(weights / "options.json"), dropout=0.0)
    kt.convert.load_elmo(encoder, weights / "weights.hdf5")
    assert encoder.count_params() == metrics["parameters"]
    exported = tf.saved_model.load(str(folder / "saved/1")).signatures["serving_default"]
    answer = exported(text=tf.constant(["the cat is near ."]))
    from keras_transformers.tokenizers.characters import CharacterTokenizer

    ids = CharacterTokenizer(max_characters=10)(tf.constant(["the cat is near ."]))
    expected = encoder(ids)["layer_outputs"][:, 1:-1]
    np.testing.assert_allclose(answer["vectors"], expected, atol=1e-5)

    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, [*options(folder, learning_rate=1e-3), "--resume"])
    assert stopped.value.code == 2
    assert "learning_rate was 0.02, is 0.001; give the same" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_was_stopped_ends_as_one_that_was_not(folder, monkeypatch):
    run(monkeypatch, options(folder, name="whole"))
    arguments = options(folder, name="stopped")
    run_and_stop(monkeypatch, arguments, last_epoch=1)
    run(monkeypatch, [*arguments, "--resume"])
    whole, stopped = (newest_state(folder / "runs" / name) for name in ("whole", "stopped"))
    assert whole.keys() == stopped.keys()
    for name in whole.keys() - {"state"}:
        # Not bit by bit: TensorFlow's sums depend on threads and addresses.
        np.testing.assert_allclose(whole[name], stopped[name], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": "none.txt"}, "none.txt: no such file"),
        ({"corpora": "brown"}, "brown.zip"),
        ({"dev_fraction": 1}, "held_out_share"),
        ({"vocabulary": "none.txt"}, "none.txt: no such file"),
        ({"vocabulary_size": 3}, "vocabulary_size=3: <S>, </S>, <UNK> take 3"),
        ({"min_frequency": 9999}, "no word occurs 9999 times"),
        ({"max_characters": 2}, "max_characters=2: a word needs at least 3 ids"),
        ({"projection_dim": 25}, "projection_dim=25 is above lstm_dim=24"),
        ({"num_sampled": 0}, "num_sampled=0"),
        ({"epochs": 0}, "total_steps is 0"),
        ({"window_length": 1}, "window_length=1: one token is read"),
        ({"batch_size": 0}, "batch_size is 0"),
    ],
)
def test_wrong_input_ends_with_one_line_and_status_2(folder, monkeypatch, capsys, changes, message):
    arguments = options(folder, **changes)
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, arguments)
    assert stopped.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ")
    assert message in error
    assert not (folder / "runs").exists()
