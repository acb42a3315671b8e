"""Recipes, stopped in the middle of an epoch, resume bit for bit."""

import json
import shutil
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf
from checks import newest_state
from recipe_runs import error_of, run, save_encoder, write_documents

import keras_transformers as kt
from keras_transformers.runs.resume.callback import Resume
from keras_transformers.tokenizers import BytePairTokenizer

PEOPLE = [(w, v, c) for w in ("ann", "bob") for v in ("lives", "works") for c in ("bonn", "rome")]
STOPPED_AT = 8  # updates, early in the second epoch


@pytest.fixture(autouse=True)
def deterministic_operations():
    """Operations must be deterministic, as bits are compared."""
    from tensorflow.python.util import _pywrap_determinism

    tf.config.experimental.enable_op_determinism()
    yield
    _pywrap_determinism.enable(False)


def encoder(folder):
    words = ["ann", "bob", "lives", "works", "in", "bonn", "rome", "where", "?", "."]
    return {
        "weights": save_encoder(folder, words),
        "max_sequence_length": 16,
        "learning_rate": 1e-3,
    }


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
    return encoder(folder) | sentences(folder) | {"batch_size": 5, "recompute": True}


def fasttext_classification(folder):
    return sentences(folder) | {"batch_size": 5, "num_buckets": 50}


def glue(folder):
    rows = [f"{w} {v} in {c} .\t{int(c == 'bonn')}" for _ in range(9) for w, v, c in PEOPLE]
    (folder / "train.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    files = {"train_file": folder / "train.tsv", "dev_file": folder / "train.tsv"}
    return encoder(folder) | files | {"task": "sst2", "batch_size": 15}


def tagging(folder):
    return encoder(folder) | conll(folder) | {"batch_size": 15}


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
    return encoder(folder) | files | windows


def multiple_choice(folder):
    rows = [
        {"text": f"{w} {v} in", "choices": [c, w, "?", ". ."][: 2 + i % 3], "label": 0}
        for i, (w, v, c) in enumerate(PEOPLE * 9)
    ]
    (folder / "choices.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    files = {"train_file": folder / "choices.jsonl", "dev_file": folder / "choices.jsonl"}
    return encoder(folder) | files | {"batch_size": 15}


def gpt_classification(folder):
    texts = [" ".join(person) for person in PEOPLE]
    weights = folder / "weights"
    tokenizer = BytePairTokenizer.train(texts, weights, vocabulary_size=262)
    shape = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "max_sequence_length": 40}
    model = kt.models.gpt.gpt(vocabulary_size=tokenizer.vocabulary_size, **shape)
    kt.convert.save_gpt(model, weights / "model.safetensors")
    kt.convert.save_gpt_config(model, weights / "config.json")
    options = {"weights": weights, "max_sequence_length": 40, "batch_size": 5}
    return options | sentences(folder)


def elmo_tagging(folder):
    encoder = kt.models.elmo.elmo(
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


def pretrain_electra(folder):
    write_documents(folder)
    shape = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "generator_size": 0.5}
    text = {"data": folder / "text.txt", "vocabulary_size": 120, "length": 16, "dev_fraction": 0.2}
    return shape | text | {"steps_per_epoch": 5, "batch_size": 8, "dupe_factor": 1}


def stop(patch, *, by_signal, folder):
    """Ends training as a scheduler does, or copies what kill -9 would leave at that moment."""
    continue_training = Resume.on_train_batch_end

    def end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == STOPPED_AT:
            if by_signal:
                signal.raise_signal(signal.SIGTERM)
            else:
                shutil.copytree(folder, folder.with_name("killed"))
        continue_training(self, batch, logs)

    patch.setattr(Resume, "on_train_batch_end", end)


def figures(folder):
    """Returns the run's figures without times."""
    metrics = json.loads((folder / "metrics.json").read_text())
    del metrics["seconds"]
    for epoch in metrics["epochs"]:
        assert epoch.pop("tokens_per_second") > 0
        assert 0 < epoch.pop("mfu") < 1
    return metrics


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "by_signal"),
    [
        (classification, False),
        (image_classification, True),
        (gpt_classification, False),
        (tagging, True),
        (feature_based, False),
        (question_answering, False),
        (multiple_choice, True),
        (glue, False),
        (elmo_tagging, False),
        (fasttext_classification, False),
        (pretrain_electra, False),
    ],
)
def test_a_run_that_was_stopped_ends_with_the_same_bits(
    tmp_path, monkeypatch, capsys, make, by_signal
):
    keras.utils.set_random_seed(0)
    recipe, folder = make.__name__, tmp_path / "runs" / "run"
    options = {
        "epochs": 2,
        "checkpoint_every": 3,
        "peak_flops": 1e12,
        "runs_dir": folder.parent,
        "name": folder.name,
    } | make(tmp_path)
    whole = folder.with_name("whole")
    with monkeypatch.context() as stopping:
        if by_signal:
            run(recipe, **options)
            folder.rename(whole)
            stop(stopping, by_signal=True, folder=folder)
            with pytest.raises(SystemExit) as ended:
                run(recipe, **options)
            assert ended.value.code == 75
        else:
            stop(stopping, by_signal=False, folder=folder)
            run(recipe, **options)
            folder.rename(whole)
            folder.with_name("killed").rename(folder)
    assert not (folder / "metrics.json").exists()
    if make is classification:
        changed = options | {"learning_rate": 0.5, "seed": 1, "resume": True}
        error = error_of(recipe, capsys, **changed)
        assert "learning_rate was 0.001, is 0.5, seed was 0, is 1;" in error
    resumed = run(recipe, "--quiet", "--resume", **options)
    assert f"resuming after 1 epochs and {3 if by_signal else 1} batches" in resumed.printed
    assert figures(folder) == figures(whole)
    expected, found = newest_state(whole), newest_state(folder)
    assert expected.keys() == found.keys()
    for name in expected:
        if name.partition("_")[0] in ("variable", "optimizer"):
            assert expected[name].tobytes() == found[name].tobytes(), name
