"""The pronunciation recipe, from a dictionary to an export, and its errors on wrong input."""

import itertools
import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from checks import newest_state, says
from recipe_runs import TINY_TRANSFORMER

from keras_transformers.families.transformer.model import num_parameters
from keras_transformers.runs import execute
from keras_transformers.runs.resume.callback import Resume
from keras_transformers.tokenizers import SymbolTokenizer

RECIPE = runpy.run_path(str(Path(__file__).parents[2] / "recipes" / "pronunciation.py"))
SOUNDS = {"a": "AE1", "e": "EH1", "k": "K", "l": "L", "s": "S", "t": "T"}


@pytest.fixture(scope="module")
def dictionary(tmp_path_factory):
    """All three-letter words of a language with regular spelling; some have two pronunciations."""
    lines = []
    for letters in itertools.product(SOUNDS, repeat=3):
        sounds = [SOUNDS[letter] for letter in letters]
        lines.append(f"{''.join(letters)} {' '.join(sounds)}")
        if letters[0] == "a":
            lines.append(f"{''.join(letters)}(2) {' '.join(['EH0', *sounds[1:]])}")
    path = tmp_path_factory.mktemp("pronunciation") / "language.dict"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def train(path, runs_dir, **changes):
    options = {
        "dictionary": path,
        "val_fraction": 0.1,
        "max_sequence_length": 8,
        "extra_length": 2,
        "epochs": 2,
        "batch_tokens": 512,
        "warmup_steps": 4,
        "num_beams": 2,
        "runs_dir": runs_dir,
    }
    return execute(RECIPE["main"], RECIPE["Config"](**(options | changes)))


@pytest.fixture(scope="module")
def trained(dictionary, tmp_path_factory):
    """Returns the figures of a run of two epochs, and its folder."""
    runs_dir = tmp_path_factory.mktemp("runs")
    return train(dictionary, runs_dir, model_options=TINY_TRANSFORMER), runs_dir / "pronunciation"


@pytest.mark.slow
def test_a_dictionary_to_figures(trained):
    metrics, _ = trained
    assert sum(metrics["words"].values()) == 216
    # Letters, phonemes without stress and the four special tokens share one matrix.
    shape = {name: value for name, value in TINY_TRANSFORMER.items() if name != "num_heads"}
    assert metrics["parameters"] == num_parameters(
        vocabulary_size=6 + 6 + 4, norm_position="pre", **shape
    )
    first, second = metrics["epochs"]
    assert second["loss"] < first["loss"]
    assert 1 - second["val_phoneme_accuracy"] == metrics["val phoneme error rate, last, greedy"]
    assert 0 <= metrics["test word error rate, last, greedy"] <= 1


@pytest.mark.slow
def test_the_better_weights_are_chosen_by_val_and_kept_with_their_symbols(trained):
    metrics, folder = trained
    rates = {
        name: metrics[f"val phoneme error rate, {name}, beam"] for name in ("last", "average of 2")
    }
    assert rates[metrics["chosen"]] == min(rates.values())
    assert json.loads((folder / "metrics.json").read_text()) == metrics
    symbols = SymbolTokenizer.load(folder).vocabulary[4:]
    assert symbols == [*("AE", "EH", "K", "L", "S", "T"), *"aeklst"]
    names = {path.name for path in folder.iterdir()}
    assert names >= {"best.weights.h5", "chosen.weights.h5", "config.json", "checkpoints"}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["transformer_tiny", "seq2seq_multi30k"])
def test_the_language_is_learned_and_served(dictionary, tmp_path, model):
    export = tmp_path / "saved" / "1"
    rate, epochs = {"transformer_tiny": (5e-3, 60), "seq2seq_multi30k": (1e-3, 25)}[model]
    metrics = train(
        dictionary,
        tmp_path,
        model=model,
        epochs=epochs,
        learning_rate=rate,
        warmup_steps=20,
        label_smoothing=0.0,
        dropout=0.1,
        patience=epochs,
        export=export,
    )
    assert min(metrics[f"test word error rate, {metrics['chosen']}, beam"], 1) < 0.3
    pronounce = tf.saved_model.load(str(export)).signatures["serving_default"]
    found = pronounce(tf.constant(["KEL", "", "tas"]))["translation"].numpy().tolist()
    assert found == [b"K EH L", b"", b"T AE S"]


@pytest.mark.slow
def test_a_stopped_run_goes_on(dictionary, tmp_path, monkeypatch):
    """The final weights are the same as without a stop."""
    options = {"model_options": TINY_TRANSFORMER}
    train(dictionary, tmp_path, name="whole", **options)
    with monkeypatch.context() as patch:
        write = Resume.on_epoch_end

        def stop(self, epoch, logs=None):
            write(self, epoch, logs)
            raise KeyboardInterrupt

        patch.setattr(Resume, "on_epoch_end", stop)
        with pytest.raises(KeyboardInterrupt):
            train(dictionary, tmp_path, name="stopped", **options)
    train(dictionary, tmp_path, name="stopped", resume=True, **options)
    whole, stopped = newest_state(tmp_path / "whole"), newest_state(tmp_path / "stopped")
    assert whole.keys() == stopped.keys()
    for name in whole:
        if name.startswith("variable_"):
            np.testing.assert_allclose(whole[name], stopped[name], atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dictionary": Path("nowhere.dict")}, "nowhere.dict: no such file"),
        ({"val_fraction": 0.0}, "--val-fraction 0.0 ... above 0 and below 1"),
        ({"model": "bert_tiny"}, "model 'bert_tiny' is not an encoder-decoder"),
        (
            {"teacher_forcing": 2.0, "model": "seq2seq_multi30k"},
            "--teacher-forcing 2.0 ... 0 to 1",
        ),
        ({"max_sequence_length": 2}, "no pairs ... 0 of"),
    ],
)
def test_wrong_input_ends_with_one_line_and_status_2(
    dictionary, tmp_path, capsys, changes, message
):
    with pytest.raises(SystemExit) as stopped:
        train(dictionary, tmp_path, **changes)
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.splitlines()[-1].startswith("error: ")
    assert says(error, message)
    assert not list(tmp_path.iterdir()), "nothing is left behind"
