"""The translation recipe, from files to an export, and what it says to wrong input."""

import gzip
import importlib.util
import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from checks import newest_state

pytest.importorskip("sacrebleu", reason="needs sacrebleu: pip install -e .[translation]")
pytest.importorskip("matplotlib", reason="needs matplotlib: pip install -e .[translation]")

RECIPE = Path(__file__).parents[2] / "recipes" / "translation.py"
WORDS = {
    "ein": "a",
    "Hund": "dog",
    "Mann": "man",
    "schläft": "sleeps",
    "rennt": "runs",
    "und": "and",
}


@pytest.fixture
def folder(tmp_path):
    """Sentences of a language of six words, and their translations word by word."""
    german = list(WORDS)
    sources = [
        f"{german[i % 6]} {german[i // 6 % 6]} {german[i // 36 % 6]} {' '.join(german[: i % 5])}."
        for i in range(216)
    ]
    targets = [" ".join(WORDS[w] for w in s.strip(".").split()) + "." for s in sources]
    for split, rows in (("train", slice(None)), ("val", slice(0, 12)), ("test", slice(12, 24))):
        (tmp_path / f"{split}.de").write_text("\n".join(sources[rows]) + "\n", "utf-8")
        with gzip.open(tmp_path / f"{split}.en.gz", "wt", encoding="utf-8") as file:
            file.write("\n".join(targets[rows]) + "\n")
    return tmp_path


def run(monkeypatch, folder, **changes):
    values = {
        "data": folder,
        "test_split": "test",
        "vocabulary_size": 300,
        "max_sequence_length": 32,
        "epochs": 2,
        "batch_tokens": 1024,
        "warmup_steps": 4,
        "num_beams": 2,
        "runs_dir": folder / "runs",
    } | changes
    options = []
    for name, value in values.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, dict):
            options += [flag, *(str(part) for pair in value.items() for part in pair)]
        else:
            options += [flag] if value is True else [f"{flag}={value}"]
    monkeypatch.setattr(sys, "argv", [str(RECIPE), *options])
    runpy.run_path(str(RECIPE), run_name="__main__")


def test_files_to_figures(folder, monkeypatch, capsys):
    run(monkeypatch, folder)
    printed = capsys.readouterr().out
    assert "215 of 216 pairs kept" in printed
    metrics = json.loads((folder / "runs" / "translation" / "metrics.json").read_text())
    assert metrics["parameters"] == 1_325_568 + 300 * 128
    assert metrics["steps"] % 2 == 0 < metrics["steps"]
    assert [epoch["epoch"] for epoch in metrics["epochs"]] == [1, 2]
    assert metrics["epochs"][1]["loss"] < metrics["epochs"][0]["loss"]
    for name in ("val BLEU, last, greedy", "test BLEU, average of 2, beam, lower-cased"):
        assert 0.0 <= metrics[name] <= 100.0
    scores = {name: metrics[f"val BLEU, {name}, beam"] for name in ("last", "average of 2")}
    assert scores[metrics["chosen"]] == max(scores.values())
    assert "tok:13a" in metrics["signature"]
    by_length = metrics["test BLEU by source words"]
    assert sum(row["sentences"] for row in by_length) == 12
    assert all(0.0 <= row["bleu"] <= 100.0 for row in by_length)
    names = {path.name for path in (folder / "runs" / "translation").iterdir()}
    assert names >= {"best.weights.h5", "last.weights.h5", "chosen.weights.h5", "config.json"}
    events = (folder / "runs" / "translation" / "tensorboard" / "samples").iterdir()
    written = b"".join(path.read_bytes() for path in events)
    assert b"translations" in written
    assert b"\x89PNG" in written, "pictures of the attention"


@pytest.mark.slow
def test_files_to_an_export(folder, monkeypatch):
    export = folder / "saved" / "1"
    run(monkeypatch, folder, epochs=1, export=export, ema=0.9, bpe_dropout=0.1)
    assert (export / "saved_model.pb").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "signatures"),
    [
        ({"model": "seq2seq_multi30k"}, {"serving_default", "n_best", "attend"}),
        ({"model": "seq2seq_multi30k_no_attention"}, {"serving_default", "n_best"}),
    ],
    ids=["attention", "none"],
)
def test_recurrent_models(folder, monkeypatch, options, signatures):
    """The same recipe, the same export; pictures only of what there is to see."""
    export = folder / "saved" / "1"
    run(monkeypatch, folder, epochs=1, num_beams=3, export=export, **options)
    described = json.loads((export / "assets.extra" / "keras_transformers.json").read_text())
    assert set(described["signatures"]) == signatures
    events = (folder / "runs" / "translation" / "tensorboard" / "samples").iterdir()
    written = b"".join(path.read_bytes() for path in events)
    assert (b"\x89PNG" in written) == ("attend" in signatures)


@pytest.mark.slow
def test_teacher_forcing_decays_over_all_epochs(folder, monkeypatch):
    options = {"teacher_forcing": 0.5, "teacher_forcing_decay": "linear"}
    run(monkeypatch, folder, model="seq2seq_multi30k", **options)
    metrics = json.loads((folder / "runs" / "translation" / "metrics.json").read_text())
    steps = metrics["steps"]
    last_updates = (steps // 2 - 1, steps - 1)
    assert [epoch["teacher_forcing"] for epoch in metrics["epochs"]] == pytest.approx(
        [1 - 0.5 * update / steps for update in last_updates]
    )
    assert np.isfinite(metrics["epochs"][1]["loss"])


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"ema": 0.9}], ids=["plain", "ema"])
def test_a_stopped_run_goes_on(folder, monkeypatch, options):
    """As if it had not stopped: the same weights in the end."""
    from keras_transformers.runs.resume.callback import Resume

    finished = []
    for name, stops in (("whole", []), ("stopped", [1])):
        with monkeypatch.context() as patch:
            if stops:  # the process ends behind the first epoch's checkpoint
                write = Resume.on_epoch_end

                def stop(self, epoch, logs=None, write=write):
                    write(self, epoch, logs)
                    raise KeyboardInterrupt

                patch.setattr(Resume, "on_epoch_end", stop)
                with pytest.raises(KeyboardInterrupt):
                    run(patch, folder, name=name, epochs=2, **options)
        if stops:
            run(monkeypatch, folder, name=name, epochs=2, resume=True, **options)
        else:
            run(monkeypatch, folder, name=name, epochs=2, **options)
        state = newest_state(folder / "runs" / name)
        finished.append([value for key, value in state.items() if key.startswith("variable_")])
    for whole, stopped in zip(*finished, strict=True):
        np.testing.assert_allclose(whole, stopped, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": "nowhere"}, "neither nowhere/train.de.gz nor nowhere/train.de exists"),
        ({"test_split": "test_1999"}, "test_1999.de exists; check the directory"),
        ({"batch_tokens": 16}, "batch_tokens"),
        ({"model": "bert_tiny"}, "model 'bert_tiny' is no encoder-decoder: take a Transformer or"),
        ({"model_options": {"depth": 3}}, "transformer_tiny takes no argument 'depth'"),
        ({"model_options": {"dropout": 0.5}}, "--model-options dropout: the recipe has it by its"),
        ({"teacher_forcing": 0.5}, "transformer_tiny takes no argument 'teacher_forcing'"),
        ({"model": "seq2seq_multi30k", "teacher_forcing": 1.5}, "teacher_forcing=1.5 is no ratio"),
        (
            {"model": "seq2seq_multi30k", "model_options": {"attention": "sideways"}},
            "attention='sideways' is unknown: take dot, general, additive, location or None",
        ),
        ({"vocabulary_size": 20}, "vocabulary_size"),
        ({"model": "transformer_gigantic"}, "transformer_gigantic"),
    ],
)
def test_wrong_input_ends_with_one_line_and_status_2(folder, monkeypatch, capsys, changes, message):
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, folder, **changes)
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.splitlines()[-1].startswith("error: ")
    assert message in error


def absent(name, package=None, find=importlib.util.find_spec):
    return None if name in ("matplotlib", "sacrebleu") else find(name, package)


def test_a_missing_package_is_seen_before_the_training(folder, monkeypatch, capsys):
    from keras_transformers.runs import run as runs

    monkeypatch.setattr(runs.importlib.util, "find_spec", absent)
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, folder)
    assert stopped.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "matplotlib, sacrebleu not installed: pip install 'keras-transformers[transl" in error
    assert not (folder / "runs").exists()


def test_unequal_files_are_named_with_their_counts(folder, monkeypatch, capsys):
    with (folder / "val.de").open("a", encoding="utf-8") as file:
        file.write("ein Hund .\n")
    with pytest.raises(SystemExit):
        run(monkeypatch, folder)
    assert "val.de has 13 lines" in capsys.readouterr().err
    assert not (folder / "runs").exists(), "nothing is left behind"


@pytest.mark.slow
def test_a_loss_that_is_nan_ends_the_run(folder, monkeypatch, capsys):
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, folder, learning_rate=1e30, clip_norm=1e30, warmup_steps=0)
    assert stopped.value.code == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: loss is nan at step")
    run_folder = folder / "runs" / "translation"
    assert not (run_folder / "chosen.weights.h5").exists()
