"""The language model recipe, from text to weights, and its errors on wrong input."""

import functools
import json
import runpy
from pathlib import Path

import numpy as np
import pytest
from checks import says

import keras_transformers as kt
from keras_transformers.runs import execute
from keras_transformers.runs import run as runs
from keras_transformers.runs.resume.callback import Resume

RECIPE = runpy.run_path(str(Path(__file__).parents[2] / "recipes" / "language_model.py"))
NAMES = ["cat", "dog", "bird", "ship", "rain", "tree", "house"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Writes three hundred lines that a model can learn."""
    random = np.random.default_rng(0)
    pairs = [random.permutation(NAMES)[:2] for _ in range(300)]
    lines = [f"the {a} is near the {b} and the {b} is near the {a} .\n" for a, b in pairs]
    path = tmp_path_factory.mktemp("language_model") / "text.txt"
    path.write_text("".join(lines), "utf-8")
    return path


def train(text, runs_dir, **changes):
    options = {
        "data": (text,),
        "vocabulary_size": 290,
        "num_layers": 1,
        "num_heads": 2,
        "hidden_dim": 32,
        "length": 16,
        "epochs": 2,
        "batch_size": 16,
        "learning_rate": 1e-2,
        "ngram_order": 3,
        "runs_dir": runs_dir,
    }
    return execute(RECIPE["main"], RECIPE["Config"](**(options | changes)))


@pytest.fixture(scope="module")
def trained(text, tmp_path_factory):
    """Returns the figures of a run that was stopped after an epoch and resumed, and its folder."""
    runs_dir = tmp_path_factory.mktemp("runs")
    write = Resume.on_epoch_end

    def stop(self, epoch, logs=None):
        write(self, epoch, logs)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as stopping:
        stopping.setattr(Resume, "on_epoch_end", stop)
        with pytest.raises(KeyboardInterrupt):
            train(text, runs_dir)
    return train(text, runs_dir, resume=True), runs_dir / "language_model"


@pytest.mark.slow
def test_text_to_figures_with_a_stop_in_between(trained):
    metrics, folder = trained
    assert json.loads((folder / "metrics.json").read_text()) == metrics
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
    # All three figures follow from one number.
    bits, per_token = (
        metrics[f"GPT, {unit}"] for unit in ("bits per byte", "perplexity per token")
    )
    ngram_bits, ngram = (
        metrics[f"Kneser-Ney 3-grams, {unit}"] for unit in ("bits per byte", "perplexity per token")
    )
    assert bits / ngram_bits == pytest.approx(np.log(per_token) / np.log(ngram), rel=1e-6)


@pytest.mark.slow
def test_weights_that_can_be_loaded(trained):
    metrics, folder = trained
    shape = kt.families.gpt.FAMILY.read(folder / "weights")
    assert (shape["num_layers"], shape["hidden_dim"], shape["max_sequence_length"]) == (1, 32, 16)
    model, tokenizer = kt.convert.load_language_model(weights=folder / "weights")
    assert tokenizer.vocabulary_size == shape["vocabulary_size"]
    assert model.count_params() == metrics["parameters"]


@pytest.mark.slow
def test_other_options_do_not_resume(trained, text, capsys):
    _, folder = trained
    with pytest.raises(SystemExit):
        train(text, folder.parent, learning_rate=1e-3, resume=True)
    assert "learning_rate was 0.01, is 0.001; pass the same" in capsys.readouterr().err


@pytest.mark.slow
def test_wikitext_documents_apart_and_an_export(text, tmp_path, monkeypatch, capsys):
    articles = "".join(f" = {name} = \n \n the {name} is near the rain . \n" * 8 for name in NAMES)
    (tmp_path / "train").write_text(articles, "utf-8")
    monkeypatch.setattr(runs, "export", functools.partial(runs.export, check=False))
    train(
        text,
        tmp_path,
        data=(tmp_path / "train",),
        held_out=(text,),
        text_format="wikitext",
        vocabulary_size=270,
        dev_fraction=0.2,
        epochs=1,
        separate_documents=True,
        export=tmp_path / "saved/1",
    )
    assert "held_out: 1 documents" in capsys.readouterr().out
    rows = kt.saved_model.predict(tmp_path / "saved/1", {"prompt": ["the"]})
    assert set(rows[0]) == {
        "text", "num_new_tokens", "log_probability", "finished", "num_prompt_tokens"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": (Path("none.txt"),)}, "none.txt: no such file"),
        ({"held_out": (Path("none.txt"),)}, "none.txt: no such file"),
        ({"held_out_fraction": 1}, "--held-out-fraction 1 ... above 0 and below 1"),
        ({"dev_fraction": 0}, "--dev-fraction 0 ... above 0 and below 1"),
        ({"vocabulary": Path("none")}, "--vocabulary none: ... check the path"),
        ({"num_heads": 3}, "multiple of --num-heads"),
        ({"length": 100_000}, "too short ... 100000"),
        ({"learning_rate": 0.0}, "--learning-rate 0.0 ... above 0"),
    ],
)
def test_wrong_input_ends_with_one_line_and_status_2(text, tmp_path, capsys, changes, message):
    with pytest.raises(SystemExit) as stopped:
        train(text, tmp_path, **changes)
    assert stopped.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ")
    assert says(error, message)
