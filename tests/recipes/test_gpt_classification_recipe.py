"""The recipe that fine-tunes a GPT to classify, from files to an export, and wrong input."""

import json
import runpy
import sys
from pathlib import Path

import pytest

import keras_transformers as kt
from keras_transformers.models.gpt import gpt
from keras_transformers.tokenizers import BytePairTokenizer

RECIPE = Path(__file__).parents[2] / "recipes" / "gpt_classification.py"
WORDS = ["good", "great", "fine", "warm", "bad", "dull", "poor", "cold"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny language model's folder, and sentences whose last word tells the label."""
    path = tmp_path_factory.mktemp("gpt")
    rows = [
        f"{'the ' * (i % 4)}film was {word}\t{'yes' if w < 4 else 'no'}"
        for w, word in enumerate(WORDS)
        for i in range(12)
    ]
    (path / "train.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    (path / "dev.tsv").write_text("\n".join(["sentence\tlabel", *rows[::3]]) + "\n")
    tokenizer = BytePairTokenizer.train(rows, path / "weights", vocabulary_size=275)
    model = gpt(
        vocabulary_size=tokenizer.vocabulary_size,
        num_layers=1,
        num_heads=2,
        hidden_dim=16,
        max_sequence_length=24,
    )
    kt.convert.save_gpt(model, path / "weights" / "model.safetensors")
    kt.convert.save_gpt_config(model, path / "weights" / "config.json")
    return path


def options(folder, tmp_path, **changes):
    """The command's words, with `changes` made to them; None takes an option away."""
    values = {
        "train_file": folder / "train.tsv",
        "dev_file": folder / "dev.tsv",
        "weights": folder / "weights",
        "max_sequence_length": 24,
        "runs_dir": tmp_path / "runs",
    } | changes
    return [f"--{n.replace('_', '-')}={v}" for n, v in values.items() if v is not None]


def run(monkeypatch, arguments):
    monkeypatch.setattr(sys, "argv", [str(RECIPE), *arguments])
    runpy.run_path(str(RECIPE), run_name="__main__")


def test_it_learns_both_and_is_served(folder, tmp_path, monkeypatch):
    arguments = options(
        folder,
        tmp_path,
        test_file=folder / "dev.tsv",
        epochs=8,
        batch_size=8,
        learning_rate=1e-2,
        dropout=0.0,
        export=tmp_path / "saved" / "1",
    )
    run(monkeypatch, arguments)
    metrics = json.loads((tmp_path / "runs/gpt_classification/metrics.json").read_text())
    first, *_, last = metrics["epochs"]
    assert metrics["dev_accuracy"] > 0.9
    assert metrics["test_accuracy"] == pytest.approx(metrics["dev_accuracy"])
    assert last["val_token_logits_perplexity"] < first["val_token_logits_perplexity"]
    predictor = kt.export.Predictor(tmp_path / "saved" / "1")
    answers = predictor({"text": ["film was great", "the film was dull"]})
    assert [answer["label"] for answer in answers] == ["yes", "no"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"language_model_weight": -1}, "--language-model-weight -1.0: 0 or more"),
        ({"model": "gpt2_small"}, "either --weights FOLDER, or --model NAME"),
        ({"weights": None, "model": "bert_tiny", "vocabulary": "v"}, "take one of gpt_base,"),
        ({"max_sequence_length": 25}, "at most 24, the positions"),
        ({"weights": "nowhere"}, "nowhere"),
    ],
)
def test_what_is_refused(folder, tmp_path, monkeypatch, capsys, changes, said):
    arguments = options(folder, tmp_path, **changes)
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_its_help_speaks_of_gpt(monkeypatch, capsys):
    """What recipes share must not tell it of BERT's files, nor of case, which byte pairs keep."""
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, ["--help"])
    assert not ended.value.code
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for words in ("vocab.json", "merges.txt", "list 'gpt*'", "GPT-2's"):
        assert words in shown
    for words in ("vocab.txt", "Hugging Face BERT", "lowercase", "[CLS]"):
        assert words not in shown
