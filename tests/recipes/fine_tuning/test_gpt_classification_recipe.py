"""The recipe that fine-tunes a GPT to classify, from files to an export, and wrong input."""

import functools
import json
import runpy
import sys
from pathlib import Path

import pytest
from checks import says

import keras_transformers as kt
from keras_transformers.families.gpt.model import gpt
from keras_transformers.runs import execute
from keras_transformers.runs import run as runs
from keras_transformers.tokenizers import BytePairTokenizer

FILE = Path(__file__).parents[3] / "recipes" / "gpt_classification.py"
RECIPE = runpy.run_path(str(FILE))
WORDS = ["good", "great", "fine", "warm", "bad", "dull", "poor", "cold"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Writes a tiny language model, and sentences whose last word determines the label."""
    path = tmp_path_factory.mktemp("gpt")
    rows = [
        f"{'the ' * (i % 4)}film was {word}\t{'yes' if w < 4 else 'no'}"
        for w, word in enumerate(WORDS)
        for i in range(12)
    ]
    (path / "train.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    (path / "dev.tsv").write_text("\n".join(["sentence\tlabel", *rows[::3]]) + "\n")
    tokenizer = BytePairTokenizer.train(rows, path / "vocabulary", vocabulary_size=275)
    model = gpt(
        vocabulary_size=tokenizer.vocabulary_size,
        num_layers=1,
        num_heads=2,
        hidden_dim=16,
        max_sequence_length=24,
    )
    kt.convert.save_weights(model, path / "weights", tokenizer, family="gpt2")
    return path


def train(data, runs_dir, **changes):
    options = {
        "train_file": data / "train.tsv",
        "dev_file": data / "dev.tsv",
        "weights": data / "weights",
        "max_sequence_length": 24,
        "runs_dir": runs_dir,
    }
    return execute(RECIPE["main"], RECIPE["Config"](**(options | changes)))


@pytest.mark.slow
def test_it_learns_both_and_is_served(data, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "export", functools.partial(runs.export, check=False))
    metrics = train(
        data,
        tmp_path,
        test_file=data / "dev.tsv",
        epochs=8,
        batch_size=8,
        learning_rate=1e-2,
        dropout=0.0,
        export=tmp_path / "saved" / "1",
    )
    assert json.loads((tmp_path / "gpt_classification/metrics.json").read_text()) == metrics
    first, *_, last = metrics["epochs"]
    assert metrics["dev_accuracy"] > 0.9
    assert metrics["test_accuracy"] == pytest.approx(metrics["dev_accuracy"])
    assert last["val_token_logits_perplexity"] < first["val_token_logits_perplexity"]
    answers = kt.saved_model.predict(
        tmp_path / "saved" / "1", {"text": ["film was great", "the film was dull"]}
    )
    assert [answer["label"] for answer in answers] == ["yes", "no"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"language_model_weight": -1.0}, "--language-model-weight -1.0 ... 0 or more"),
        ({"model": "gpt2_small"}, "--weights FOLDER ... --model NAME"),
        ({"weights": None, "model": "bert_tiny", "vocabulary": Path()}, "one of ... gpt2_small,"),
        ({"max_sequence_length": 25}, "at most 24, the positions"),
        ({"weights": Path("nowhere")}, "nowhere"),
    ],
)
def test_what_is_refused(data, tmp_path, capsys, changes, said):
    with pytest.raises(SystemExit) as ended:
        train(data, tmp_path, **changes)
    assert ended.value.code == 2
    assert says(capsys.readouterr().err, said)
    assert not list(tmp_path.iterdir())


def test_its_help_speaks_of_gpt(monkeypatch, capsys):
    """Shared options must not mention BERT's files, nor case, which byte pairs keep."""
    monkeypatch.setattr(sys, "argv", [str(FILE), "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(FILE), run_name="__main__")
    assert not ended.value.code
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for words in ("vocab.json", "merges.txt", "list 'gpt*'", "GPT-2's"):
        assert words in shown
    for words in ("vocab.txt", "Hugging Face BERT", "lowercase", "[CLS]"):
        assert words not in shown
