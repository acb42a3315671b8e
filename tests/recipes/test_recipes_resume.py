"""Recipes that fine-tune, stopped in the middle of an epoch: the bits of a run that was not."""

import json
import runpy
import signal
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from checks import newest_state

import keras_transformers as kt
from keras_transformers.models.elmo import elmo
from keras_transformers.models.gpt import gpt
from keras_transformers.runs.resume.callback import Resume
from keras_transformers.tokenizers import BytePairTokenizer

RECIPES = Path(__file__).parents[2] / "recipes"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PEOPLE = [(w, v, c) for w in ("ann", "bob") for v in ("lives", "works") for c in ("bonn", "rome")]
STOPPED_AT = 8  # updates; the second epoch of five or so has begun
BERT = {"model": "bert_tiny", "max_sequence_length": 16, "learning_rate": 1e-3}


@pytest.fixture(autouse=True)
def deterministic_operations():
    """`Resume` asks for them where bits are compared."""
    from tensorflow.python.util import _pywrap_determinism

    tf.config.experimental.enable_op_determinism()
    yield
    _pywrap_determinism.enable(False)


def vocabulary(folder):
    words = ["ann", "bob", "lives", "works", "in", "bonn", "rome", "where", "?", "."]
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *words]) + "\n")
    return {"vocabulary": folder / "vocab.txt"}


def sentences(folder):
    rows = [f"{w} {v} in {c} .{' .' * (i % 3)}\t{c}" for i in range(9) for w, v, c in PEOPLE]
    (folder / "train.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    return {"train_file": folder / "train.tsv", "dev_file": folder / "train.tsv"}


def conll(folder):
    blocks = [f"{w} B-PER\n{v} O\nin O\n{c} B-LOC\n" for w, v, c in PEOPLE]
    (folder / "train.txt").write_text("\n".join(blocks * 9))
    return {"train_file": folder / "train.txt", "dev_file": folder / "train.txt"}


def classification(folder):
    # 24 different sentences are left of 72.
    return BERT | vocabulary(folder) | sentences(folder) | {"batch_size": 5}


def glue(folder):
    rows = [f"{w} {v} in {c} .\t{int(c == 'bonn')}" for _ in range(9) for w, v, c in PEOPLE]
    (folder / "train.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    files = {"train_file": folder / "train.tsv", "dev_file": folder / "train.tsv"}
    return BERT | vocabulary(folder) | files | {"task": "sst2", "batch_size": 15}


def tagging(folder):
    return BERT | vocabulary(folder) | conll(folder) | {"batch_size": 15}


def feature_based(folder):
    return tagging(folder) | {"layers": "1", "units": 8}


def question_answering(folder):
    paragraphs = []
    for number, (w, v, c) in enumerate(PEOPLE * 9):
        context = f"{w} {v} in {c} ."
        answers = [{"text": c, "answer_start": context.index(c)}]
        questions = [{"id": f"q{number}", "question": "where ?", "answers": answers}]
        paragraphs.append({"context": context, "qas": questions})
    (folder / "squad.json").write_text(
        json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]})
    )
    files = {"train_file": folder / "squad.json", "dev_file": folder / "squad.json"}
    windows = {"doc_stride": 4, "max_question_length": 4, "batch_size": 15}
    return BERT | vocabulary(folder) | files | windows


def gpt_classification(folder):
    texts = [" ".join(person) for person in PEOPLE]
    weights = folder / "weights"
    tokenizer = BytePairTokenizer.train(texts, weights, vocabulary_size=262)
    shape = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "max_sequence_length": 40}
    model = gpt(vocabulary_size=tokenizer.vocabulary_size, **shape)
    kt.convert.save_gpt(model, weights / "model.safetensors")
    kt.convert.save_gpt_config(model, weights / "config.json")
    options = {"weights": weights, "max_sequence_length": 40, "batch_size": 5}
    return options | sentences(folder)


def elmo_tagging(folder):
    encoder = elmo(
        lstm_dim=4, projection_dim=4, num_highways=1, filters=[(1, 4)], max_characters=10
    )
    (folder / "weights").mkdir()
    kt.convert.save_elmo(encoder, folder / "weights/weights.hdf5")
    kt.convert.save_elmo_options(encoder, folder / "weights/options.json")
    return conll(folder) | {"weights": folder / "weights", "units": 4, "batch_size": 15}


def image_classification(folder):
    random = np.random.default_rng(0)
    for name, count in (("train", 80), ("t10k", 20)):
        for kind, array in (
            ("images-idx3", random.integers(0, 256, (count, 4, 4))),
            ("labels-idx1", np.arange(count) % 2),
        ):
            sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
            data = bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()
            (folder / f"{name}-{kind}-ubyte").write_bytes(data)
    shape = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "batch_size": 15}
    return {"data": folder, **shape}


def run(monkeypatch, recipe, options, *flags):
    values = {"epochs": 2, "checkpoint_every": 3, "peak_flops": 1e12} | options
    words = [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]
    monkeypatch.setattr(sys, "argv", [recipe, *words, *flags])
    runpy.run_path(str(RECIPES / f"{recipe}.py"), run_name="__main__")


def stop(monkeypatch, *, by_signal):
    """Ends training as kill -9 would, or as a scheduler does, who waits until all is saved."""
    go_on = Resume.on_train_batch_end

    def end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == STOPPED_AT:
            if not by_signal:
                raise KeyboardInterrupt
            signal.raise_signal(signal.SIGTERM)
        go_on(self, batch, logs)

    monkeypatch.setattr(Resume, "on_train_batch_end", end)


def figures(folder):
    """What the run says of its model; times left out."""
    metrics = json.loads((folder / "metrics.json").read_text())
    del metrics["seconds"]
    for epoch in metrics["epochs"]:
        assert epoch.pop("tokens_per_second") > 0
        assert 0 < epoch.pop("mfu") < 1
    return metrics


@pytest.mark.parametrize(
    ("make", "by_signal"),
    [
        (classification, False),
        (image_classification, True),
        *(
            pytest.param(make, by_signal, marks=pytest.mark.slow)
            for make, by_signal in (
                (gpt_classification, False),
                (tagging, True),
                (feature_based, False),
                (question_answering, True),
                (glue, False),
                (elmo_tagging, True),
            )
        ),
    ],
)
def test_a_run_that_was_stopped_ends_with_the_same_bits(
    tmp_path, monkeypatch, capsys, make, by_signal
):
    keras.utils.set_random_seed(0)
    recipe = make.__name__
    options = make(tmp_path) | {"runs_dir": tmp_path / "runs"}
    run(monkeypatch, recipe, options | {"name": "whole"})
    stopped = options | {"name": "stopped"}
    with monkeypatch.context() as stopping:
        stop(stopping, by_signal=by_signal)
        with pytest.raises((KeyboardInterrupt, SystemExit)) as ended:
            run(stopping, recipe, stopped)
    assert not by_signal or ended.value.code == 75
    assert not (tmp_path / "runs/stopped/metrics.json").exists()
    capsys.readouterr()
    if make is classification:
        with pytest.raises(SystemExit) as refused:
            run(monkeypatch, recipe, stopped | {"learning_rate": 0.5, "seed": 1}, "--resume")
        assert refused.value.code == 2
        assert "learning_rate was 0.001, is 0.5, seed was 0, is 1;" in capsys.readouterr().err
    run(monkeypatch, recipe, stopped, "--quiet", "--resume")
    batches = 3 if by_signal else 1
    assert f"going on after 1 epochs and {batches} batches" in capsys.readouterr().out
    assert figures(tmp_path / "runs/stopped") == figures(tmp_path / "runs/whole")
    whole, again = (newest_state(tmp_path / "runs" / name) for name in ("whole", "stopped"))
    assert whole.keys() == again.keys()
    for name in whole:
        if name.partition("_")[0] in ("variable", "optimizer"):
            assert whole[name].tobytes() == again[name].tobytes(), name
