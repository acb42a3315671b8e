"""The language model recipe, from text to weights, and what it says to wrong input."""

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

import keras_transformers as kt
from keras_transformers.models.gpt import gpt
from keras_transformers.runs.resume.callback import Resume
from keras_transformers.tokenizers import BytePairTokenizer

RECIPE = Path(__file__).parents[2] / "recipes" / "language_model.py"
NAMES = ["cat", "dog", "bird", "ship", "rain", "tree", "house"]


@pytest.fixture
def folder(tmp_path):
    """Three hundred lines that a model can learn: what is near the one is far from the other."""
    random = np.random.default_rng(0)
    pairs = [random.permutation(NAMES)[:2] for _ in range(300)]
    lines = [f"the {a} is near the {b} and the {b} is near the {a} .\n" for a, b in pairs]
    (tmp_path / "text.txt").write_text("".join(lines), "utf-8")
    return tmp_path


def options(folder, **changes):
    """The command's words, with `changes` made to them; None takes an option away."""
    values = {
        "data": folder / "text.txt",
        "vocabulary_size": 290,
        "num_layers": 1,
        "num_heads": 2,
        "hidden_dim": 32,
        "length": 16,
        "epochs": 2,
        "batch_size": 16,
        "learning_rate": 1e-2,
        "ngram_order": 3,
        "runs_dir": folder / "runs",
    } | changes
    chosen = {name: value for name, value in values.items() if value is not None}
    words: list[str] = []
    for name, value in chosen.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return words


def run(monkeypatch, arguments):
    monkeypatch.setattr(sys, "argv", [str(RECIPE), *arguments])
    runpy.run_path(str(RECIPE), run_name="__main__")


def test_text_to_weights_with_a_stop_in_between(folder, monkeypatch, capsys):
    write = Resume.on_epoch_end

    def stop(self, epoch, logs=None):
        write(self, epoch, logs)
        raise KeyboardInterrupt

    with monkeypatch.context() as stopping:
        stopping.setattr(Resume, "on_epoch_end", stop)
        with pytest.raises(KeyboardInterrupt):
            run(stopping, options(folder))
    run(monkeypatch, [*options(folder), "--resume"])
    printed = capsys.readouterr().out
    assert "train: 1 documents" in printed
    run_folder = folder / "runs/language_model"
    metrics = json.loads((run_folder / "metrics.json").read_text())
    assert [epoch["epoch"] for epoch in metrics["epochs"]] == [1, 2]
    first, last = metrics["epochs"]
    assert last["val_perplexity"] < first["val_perplexity"]
    assert last["val_log_probability"] == pytest.approx(-np.log(last["val_perplexity"]))
    for name in ("GPT", "Kneser-Ney 3-grams"):
        assert (
            1
            < metrics[f"{name}, perplexity per token"]
            < metrics[f"{name}, perplexity per word"] * 2
        )
        assert 0 < metrics[f"{name}, bits per byte"] < 3
    # The three figures are of one number.
    bits, per_token = (
        metrics[f"GPT, {unit}"] for unit in ("bits per byte", "perplexity per token")
    )
    ngram_bits, ngram = (
        metrics[f"Kneser-Ney 3-grams, {unit}"] for unit in ("bits per byte", "perplexity per token")
    )
    assert bits / ngram_bits == pytest.approx(np.log(per_token) / np.log(ngram), rel=1e-6)

    shape = kt.convert.read_gpt_config(run_folder / "weights")
    assert BytePairTokenizer(run_folder / "weights").vocabulary_size == shape["vocabulary_size"]
    assert (shape["num_layers"], shape["hidden_dim"], shape["max_sequence_length"]) == (1, 32, 16)
    model = gpt(**shape)
    kt.convert.load_gpt(model, run_folder / "weights")
    assert model.count_params() == metrics["parameters"]

    with pytest.raises(SystemExit):
        run(monkeypatch, [*options(folder, learning_rate=1e-3), "--resume"])
    assert "learning_rate was 0.01, is 0.001; give the same" in capsys.readouterr().err


@pytest.mark.slow
def test_wikitext_documents_apart_and_an_export(folder, monkeypatch):
    articles = "".join(f" = {name} = \n \n the {name} is near the rain . \n" * 8 for name in NAMES)
    (folder / "train").write_text(articles, "utf-8")
    arguments = options(
        folder,
        data=folder / "train",
        held_out=folder / "text.txt",
        text_format="wikitext",
        vocabulary_size=270,
        dev_fraction=0.2,
        epochs=1,
        export=folder / "saved/1",
    )
    run(monkeypatch, [*arguments, "--separate-documents"])
    rows = kt.export.predict(folder / "saved/1", {"prompt": ["the"]})
    assert set(rows[0]) == {"text", "num_new_tokens", "log_probability", "finished"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": "none.txt"}, "none.txt: no such file"),
        ({"held_out": "none.txt"}, "none.txt: no such file"),
        ({"held_out_fraction": 1}, "held_out_fraction is 1"),
        ({"dev_fraction": 0}, "held_out_fraction is 0"),
        ({"vocabulary": "none"}, "none: no such folder"),
        ({"vocabulary_size": 5000}, "too little text for vocabulary_size=5000"),
        ({"num_heads": 3}, "multiple of num_heads"),
        ({"length": 100_000}, "has no row of 100000"),
        ({"learning_rate": 0}, "peak_learning_rate is 0.0"),
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
