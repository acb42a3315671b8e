"""The translation recipe, from files to an export, and its errors on wrong input."""

import gzip
import importlib.util
import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from checks import newest_state, says
from recipe_runs import TINY_TRANSFORMER, save_encoder, shown

from keras_transformers.families.transformer.model import num_parameters
from keras_transformers.runs import execute, launching
from keras_transformers.runs.guardrails import NonFiniteLossError
from keras_transformers.runs.resume.callback import Resume

pytest.importorskip("sacrebleu", reason="needs sacrebleu: pip install -e .[translation]")
pytest.importorskip("matplotlib", reason="needs matplotlib: pip install -e .[translation]")

RECIPE = runpy.run_path(str(Path(__file__).parents[2] / "recipes" / "translation.py"))
WORDS = {
    "ein": "a",
    "Hund": "dog",
    "Mann": "man",
    "schläft": "sleeps",
    "rennt": "runs",
    "und": "and",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Sentences of a six-word language, with word-by-word translations."""
    folder = tmp_path_factory.mktemp("translation")
    german = list(WORDS)
    sources = [
        f"{german[i % 6]} {german[i // 6 % 6]} {german[i // 36 % 6]} {' '.join(german[: i % 5])}."
        for i in range(216)
    ]
    targets = [" ".join(WORDS[w] for w in s.strip(".").split()) + "." for s in sources]
    for split, rows in (("train", slice(None)), ("val", slice(0, 12)), ("test", slice(12, 24))):
        (folder / f"{split}.de").write_text("\n".join(sources[rows]) + "\n", "utf-8")
        with gzip.open(folder / f"{split}.en.gz", "wt", encoding="utf-8") as file:
            file.write("\n".join(targets[rows]) + "\n")
    return folder


def train(folder, runs_dir, **changes):
    options = {
        "data": folder,
        "test_split": "test",
        "vocabulary_size": 300,
        "max_sequence_length": 32,
        "epochs": 2,
        "batch_tokens": 1024,
        "warmup_steps": 4,
        "num_beams": 2,
        "runs_dir": runs_dir,
    }
    return execute(RECIPE["main"], RECIPE["Config"](**(options | changes)))


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """Returns the figures of a run of two epochs, and its folder."""
    runs_dir = tmp_path_factory.mktemp("runs")
    options = {"model_options": TINY_TRANSFORMER, "tensorboard_attention": True}
    return train(data, runs_dir, **options), runs_dir / "translation"


@pytest.mark.slow
def test_files_to_figures(trained):
    metrics, folder = trained
    assert json.loads((folder / "metrics.json").read_text()) == metrics
    assert metrics["parameters"] == num_parameters(
        vocabulary_size=300, norm_position="pre", **TINY_TRANSFORMER
    )
    assert metrics["steps"] % 2 == 0 < metrics["steps"]
    assert metrics["target_tokens_per_second"] > 0
    assert [epoch["epoch"] for epoch in metrics["epochs"]] == [1, 2]
    assert metrics["epochs"][1]["loss"] < metrics["epochs"][0]["loss"]
    for name in ("val BLEU, last, greedy", "test BLEU, average of 2, beam, lower-cased"):
        assert 0.0 <= metrics[name] <= 100.0
    assert metrics["epochs"][1]["val_bleu"] == metrics["val BLEU, last, greedy"]
    assert "tok:13a" in metrics["signature"]
    report = json.loads((folder / "report_test.json").read_text("utf-8"))
    chosen = f"test BLEU, {metrics['chosen']}, beam"
    assert report["figures"]["bleu"] == pytest.approx(metrics[chosen])
    by_length = metrics["test BLEU by source words"]
    assert sum(row["sentences"] for row in by_length) == 12
    assert all(0.0 <= row["bleu"] <= 100.0 for row in by_length)


@pytest.mark.slow
def test_the_better_weights_are_chosen_by_val(trained):
    metrics, folder = trained
    scores = {name: metrics[f"val BLEU, {name}, beam"] for name in ("last", "average of 2")}
    assert scores[metrics["chosen"]] == max(scores.values())
    names = {path.name for path in folder.iterdir()}
    assert names >= {"best.weights.h5", "last.weights.h5", "chosen.weights.h5", "config.json"}


@pytest.mark.slow
def test_weights_within_one_epoch_are_averaged(data, tmp_path):
    options = {"average": 2, "average_every": 1, "num_beams": 1, "model_options": TINY_TRANSFORMER}
    metrics = train(data, tmp_path, epochs=1, **options)
    assert 0.0 <= metrics["val BLEU, average of 2, beam"] <= 100.0


@pytest.mark.slow
def test_samples_and_pictures_of_attention_are_written(trained):
    _, folder = trained
    for step in (0, 1):
        found = shown(folder, step=step)
        assert len(found["samples"].split("\n")) == 6
        assert found["attention/cross, all heads"].startswith(b"\x89PNG")


@pytest.mark.slow
def test_files_to_an_export(data, tmp_path):
    export = tmp_path / "saved" / "1"
    options = {"ema": 0.9, "bpe_dropout": 0.1, "accumulate": 2, "model_options": TINY_TRANSFORMER}
    metrics = train(data, tmp_path, epochs=1, export=export, **options)
    assert (export / "saved_model.pb").is_file()
    described = json.loads((export / "assets.extra" / "keras_transformers.json").read_text())
    assert set(described["scores"]) == {
        f"{split} BLEU, {metrics['chosen']}, beam{case}"
        for split in ("val", "test")
        for case in ("", ", lower-cased")
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "signatures"),
    [
        ("seq2seq_multi30k", {"serving_default", "n_best", "attend", "tokenize"}),
        ("seq2seq_multi30k_no_attention", {"serving_default", "n_best", "tokenize"}),
    ],
    ids=["attention", "none"],
)
def test_recurrent_models(data, tmp_path, model, signatures):
    """The same recipe and export; attention pictures only for models with attention."""
    export = tmp_path / "saved" / "1"
    options = {"num_beams": 3, "model": model, "tensorboard_attention": True}
    train(data, tmp_path, epochs=1, export=export, **options)
    described = json.loads((export / "assets.extra" / "keras_transformers.json").read_text())
    assert set(described["signatures"]) == signatures
    found = shown(tmp_path / "translation")
    assert ("attention/cross, all heads" in found) == ("attend" in signatures)


@pytest.mark.slow
def test_teacher_forcing_decays_over_all_epochs(data, tmp_path):
    options = {"teacher_forcing": 0.5, "teacher_forcing_decay": "linear"}
    metrics = train(data, tmp_path, model="seq2seq_multi30k", **options)
    steps = metrics["steps"]
    last_updates = (steps // 2 - 1, steps - 1)
    assert [epoch["teacher_forcing"] for epoch in metrics["epochs"]] == pytest.approx(
        [1 - 0.5 * update / steps for update in last_updates]
    )
    assert np.isfinite(metrics["epochs"][1]["loss"])


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"ema": 0.9}], ids=["plain", "ema"])
def test_a_stopped_run_goes_on(data, tmp_path, monkeypatch, options):
    """Same final weights and BLEU between epochs as without a stop."""
    options = options | {"epochs": 3, "bleu_every": 2, "model_options": TINY_TRANSFORMER}
    whole = train(data, tmp_path, name="whole", **options)
    write = Resume.on_epoch_end

    def stop(self, epoch, logs=None):  # the process ends after the second epoch's checkpoint
        write(self, epoch, logs)
        if epoch == 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Resume, "on_epoch_end", stop)
        with pytest.raises(KeyboardInterrupt):
            train(data, tmp_path, name="stopped", **options)
    stopped = train(data, tmp_path, name="stopped", resume=True, **options)
    for metrics in (whole, stopped):
        first, second, third = (epoch["val_bleu"] for epoch in metrics["epochs"])
        assert (first, second) == (0, third)
    states = [newest_state(tmp_path / name) for name in ("whole", "stopped")]
    assert states[0].keys() == states[1].keys()
    for name in states[0]:
        if name.startswith("variable_"):
            np.testing.assert_allclose(states[0][name], states[1][name], atol=1e-6)


def refused(capsys, *arguments, **changes):
    """Returns the one line with which a program that cannot start ends."""
    with pytest.raises(SystemExit) as stopped:
        train(*arguments, **changes)
    assert stopped.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ")
    return error


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": Path("nowhere")}, "neither nowhere/train.de.gz nor nowhere/train.de exists"),
        ({"test_split": "test_1999"}, "test_1999.de exists"),
        ({"batch_tokens": 16}, "batch_tokens"),
        (
            {"model": "bert_tiny"},
            "model 'bert_tiny' is not an encoder-decoder",
        ),
        ({"model_options": {"depth": 3}}, "transformer_tiny takes no argument 'depth'"),
        (
            {"model_options": {"dropout": 0.5}},
            "--model-options dropout ... the recipe",
        ),
        ({"teacher_forcing": 0.5}, "transformer_tiny takes no argument 'teacher_forcing'"),
        (
            {"model": "seq2seq_multi30k", "teacher_forcing": 1.5},
            "--teacher-forcing 1.5 ... 0 to 1",
        ),
        (
            {"model": "seq2seq_multi30k", "model_options": {"attention": "sideways"}},
            "attention='sideways' ... dot, general, additive, location or None",
        ),
        ({"vocabulary_size": 20}, "--vocabulary-size 20"),
        ({"model": "transformer_gigantic"}, "transformer_gigantic"),
    ],
)
def test_wrong_input_ends_with_one_line_and_status_2(data, tmp_path, capsys, changes, message):
    assert says(refused(capsys, data, tmp_path, **changes), message)


def absent(name, package=None, find=importlib.util.find_spec):
    return None if name == "sacrebleu" else find(name, package)


def test_a_missing_package_is_seen_before_the_training(data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(launching.importlib.util, "find_spec", absent)
    error = refused(capsys, data, tmp_path)
    assert says(error, "sacrebleu ... pip install 'keras-transformers[transl")
    assert not list(tmp_path.iterdir())


def test_unequal_files_are_named_with_their_counts(data, tmp_path, capsys):
    files, runs_dir = tmp_path / "files", tmp_path / "runs"
    files.mkdir()
    for path in data.iterdir():
        (files / path.name).write_bytes(path.read_bytes())
    with (files / "val.de").open("a", encoding="utf-8") as file:
        file.write("ein Hund .\n")
    assert "val.de has 13 lines" in refused(capsys, files, runs_dir)
    assert not runs_dir.exists(), "nothing is left behind"


@pytest.mark.slow
def test_a_loss_that_is_nan_ends_the_run(data, tmp_path):
    with pytest.raises(NonFiniteLossError, match="loss is nan at step"):
        train(data, tmp_path, learning_rate=1e30, clip_norm=1e30, warmup_steps=0)
    assert not (tmp_path / "translation" / "chosen.weights.h5").exists()


@pytest.fixture(scope="module")
def chinese(tmp_path_factory):
    """The same sentences from English to Chinese, which has no spaces."""
    folder = tmp_path_factory.mktemp("chinese")
    words = {"a": "一只", "dog": "狗", "man": "男人", "sleeps": "睡觉", "runs": "跑", "and": "和"}
    english = list(words)
    numbers = [(i % 6, i // 6 % 6, i // 36 % 6, *range(i % 5)) for i in range(216)]
    sources = [" ".join(english[number] for number in several) for several in numbers]
    targets = ["".join(words[w] for w in source.split()) + "。" for source in sources]
    for split, rows in (("train", slice(None)), ("val", slice(0, 12)), ("test", slice(12, 24))):
        for language, texts in (("en", sources), ("zh", targets)):
            text = "\n".join(texts[rows]) + "\n"
            (folder / f"{split}.{language}").write_text(text, "utf-8")
    return folder


@pytest.mark.slow
def test_english_to_chinese_with_two_vocabularies(chinese, tmp_path):
    """The toy is learned; BLEU compares characters; the export answers alike."""
    export = tmp_path / "saved" / "1"
    metrics = train(
        chinese,
        tmp_path,
        source_language="en",
        target_language="zh",
        vocabulary_size=290,
        target_vocabulary_size=284,
        model_options=TINY_TRANSFORMER,
        epochs=40,
        patience=40,
        bleu_every=20,
        dropout=0.0,
        export=export,
    )
    assert metrics["epochs"][-1]["val_bleu"] > 50
    assert "tok:zh" in metrics["signature"]
    one = num_parameters(vocabulary_size=290, norm_position="pre", **TINY_TRANSFORMER)
    assert metrics["parameters"] == one + 284 * TINY_TRANSFORMER["hidden_dim"]
    names = {path.name for path in (tmp_path / "translation").iterdir()}
    assert names >= {"vocabulary.model", "target_vocabulary.model"}
    served = tf.saved_model.load(str(export)).signatures["serving_default"]
    found = served(text=tf.constant(["a dog runs"]))["translation"].numpy()[0].decode()
    assert set(found) <= set("一只狗男人睡觉跑和。")


@pytest.mark.slow
def test_a_pretrained_encoder_begins_and_a_stopped_run_goes_on(data, tmp_path, monkeypatch):
    """BERT's layers and vocabulary for sources, a new decoder with a vocabulary for targets."""
    weights = save_encoder(tmp_path, [*WORDS, ".", *"einhudmasclärft", "##e"])
    options = {
        "encoder_weights": weights,
        "lowercase": False,
        "vocabulary_size": 280,
        "model_options": {"num_decoder_layers": 1},
    }
    whole = train(data, tmp_path, name="whole", export=tmp_path / "saved" / "1", **options)
    assert whole["epochs"][1]["loss"] < whole["epochs"][0]["loss"]
    assert not (tmp_path / "whole" / "vocabulary.model").exists()
    assert (tmp_path / "whole" / "target_vocabulary.model").is_file()
    write = Resume.on_epoch_end

    def stop(self, epoch, logs=None):
        write(self, epoch, logs)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Resume, "on_epoch_end", stop)
        with pytest.raises(KeyboardInterrupt):
            train(data, tmp_path, name="stopped", **options)
    train(data, tmp_path, name="stopped", resume=True, **options)
    states = [newest_state(tmp_path / name) for name in ("whole", "stopped")]
    assert states[0].keys() == states[1].keys()
    for name in states[0]:
        if name.startswith("variable_"):
            np.testing.assert_allclose(states[0][name], states[1][name], atol=1e-6)


@pytest.mark.parametrize("changes", [{"model": "transformer_base"}, {"bpe_dropout": 0.1}])
def test_what_does_not_go_with_a_pretrained_encoder(data, tmp_path, capsys, changes):
    message = "--encoder-weights: leave out --model and --bpe-dropout"
    assert message in refused(capsys, data, tmp_path, encoder_weights=data, **changes)


def test_two_vocabularies_share_no_matrix(data, tmp_path, capsys):
    options = {"target_vocabulary_size": 300, "model_options": {"weight_tying": "all"}}
    message = "--model-options weight_tying all: two vocabularies cannot share a matrix"
    assert message in refused(capsys, data, tmp_path, **options)
