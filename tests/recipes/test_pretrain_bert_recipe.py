"""The pretraining recipe, from text to weights, and what it says to wrong input."""

import json
import runpy
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from checks import newest_state

import keras_transformers as kt
from keras_transformers.models.bert import bert
from keras_transformers.runs.resume.callback import Resume

RECIPE = Path(__file__).parents[2] / "recipes" / "pretrain_bert.py"
WORDS = ["cat", "dog", "bird", "ship", "rain", "tree", "house"]


@pytest.fixture
def folder(tmp_path):
    """Forty-two documents, each about two of seven things."""
    pairs = [(one, other) for one in WORDS for other in WORDS if one != other]
    documents = [
        "\n".join(f"the {one} is near the {other} {'again ' * (i % 3)}." for i in range(3 + i % 4))
        for i, (one, other) in enumerate(pairs)
    ]
    (tmp_path / "text.txt").write_text("\n\n".join(documents) + "\n", "utf-8")
    return tmp_path


def options(folder, **changes):
    """The command's words, with `changes` made to them; None takes an option away."""
    values = {
        "data": folder / "text.txt",
        "dev_fraction": 0.2,
        "vocabulary_size": 120,
        "dupe_factor": 2,
        "num_layers": 1,
        "hidden_dim": 32,
        "epochs": 3,
        "steps_per_epoch": 4,
        "phase_1_length": 16,
        "phase_2_length": 32,
        "batch_size": 8,
        "learning_rate": 5e-3,
        "runs_dir": folder / "runs",
    } | changes
    chosen = {name: value for name, value in values.items() if value is not None}
    return [f"--{name.replace('_', '-')}={value}" for name, value in chosen.items()]


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
    run_and_stop(monkeypatch, options(folder), last_epoch=2)  # between the phases
    assert not (folder / "runs/pretrain_bert/metrics.json").exists()
    printed = capsys.readouterr().out
    assert "train-16: " in printed
    assert "dev-32: " in printed

    run(monkeypatch, [*options(folder), "--resume"])
    run_folder = folder / "runs" / "pretrain_bert"
    metrics = json.loads((run_folder / "metrics.json").read_text())
    assert [epoch["epoch"] for epoch in metrics["epochs"]] == [1, 2, 3]
    assert metrics["steps"] == 12
    last = metrics["epochs"][-1]
    assert {"mask_logits_loss", "next_sentence_logits_loss"} <= last.keys()
    assert metrics["dev_mask_accuracy"] == last["val_mask_logits_accuracy"]
    assert last["val_mask_logits_loss"] < metrics["epochs"][0]["val_mask_logits_loss"]
    assert 0 < metrics["dev_mask_accuracy, unigram"] < 0.5
    assert 1 < metrics["dev_mask_perplexity, unigram"] < 120
    assert 0 <= metrics["dev_next_sentence_accuracy"] <= 1
    assert list((run_folder / "tensorboard/train").iterdir())

    # The weights go into a model that is built by what lies beside them, and are the last ones.
    shape = kt.convert.read_bert_config(run_folder / "weights")
    assert (shape["num_layers"], shape["hidden_dim"], shape["max_sequence_length"]) == (1, 32, 32)
    vocabulary = (run_folder / "weights/vocab.txt").read_text().splitlines()
    assert shape["vocabulary_size"] == len(vocabulary) <= 120
    model = kt.heads.pretrainer(bert(**shape))
    assert model.count_params() == metrics["parameters"]
    kt.convert.load_bert(model, run_folder / "weights")
    loaded = model.get_weights()
    model.load_weights(run_folder / "last.weights.h5")
    for one, other in zip(loaded, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)

    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, [*options(folder, learning_rate=1e-3), "--resume"])
    assert stopped.value.code == 2
    assert "learning_rate was 0.005, is 0.001; give the same" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_goes_on_from_the_weights_of_another(folder, monkeypatch, capsys):
    first = options(folder, phase_2_epochs=0, steps_per_epoch=12)
    run(monkeypatch, first)
    weights = folder / "runs/pretrain_bert/weights"
    records = folder / "runs/pretrain_bert/records"
    more = {"weights": weights, "records": records, "phase_2_epochs": 0, "epochs": 1}
    more |= {"num_layers": None, "hidden_dim": None, "accumulate": 2}
    run(monkeypatch, options(folder, name="more", learning_rate=1e-9, **more))
    before, after = (
        json.loads((folder / "runs" / name / "metrics.json").read_text())
        for name in ("pretrain_bert", "more")
    )
    assert after["dev_mask_perplexity"] == pytest.approx(before["dev_mask_perplexity"], rel=1e-4)
    vocabularies = [
        (folder / f"runs/{n}/weights/vocab.txt").read_text() for n in ("pretrain_bert", "more")
    ]
    assert vocabularies[0] == vocabularies[1]
    with pytest.raises(SystemExit):
        run(monkeypatch, options(folder, name="longer", phase_1_length=32, **more))
    assert "has 16 positions and the examples are of 32 tokens" in capsys.readouterr().err
    assert not (folder / "runs/longer").exists(), "the name is still free"


@pytest.mark.slow
def test_a_run_that_was_stopped_ends_as_one_that_was_not(folder, monkeypatch):
    run(monkeypatch, options(folder, name="whole", epochs=4, phase_2_epochs=2))
    for last_epoch in (1, 3):  # in each of the phases
        arguments = options(folder, name=f"stopped-{last_epoch}", epochs=4, phase_2_epochs=2)
        run_and_stop(monkeypatch, arguments, last_epoch)
        run(monkeypatch, [*arguments, "--resume"])
        whole, stopped = (
            newest_state(folder / "runs" / name) for name in ("whole", f"stopped-{last_epoch}")
        )
        assert whole.keys() == stopped.keys()
        for name in whole.keys() - {"state"}:
            # Not bit by bit: TensorFlow's sums depend on threads and addresses.
            np.testing.assert_allclose(whole[name], stopped[name], rtol=0, atol=1e-6)


@pytest.mark.slow
def test_records_of_another_run_to_an_export(folder, monkeypatch, capsys):
    run(monkeypatch, options(folder, epochs=1, phase_2_epochs=0))
    records = folder / "runs/pretrain_bert/records"
    changes = {"optimizer": "lamb", "precision": "mixed_bfloat16", "export": folder / "saved/1"}
    run(
        monkeypatch,
        [
            *options(
                folder, data=None, records=records, name="2", epochs=1, phase_2_epochs=0, **changes
            ),
            "--no-dynamic-masking",
        ],
    )
    keras.config.set_dtype_policy("float32")
    assert (folder / "saved/1/saved_model.pb").is_file()
    assert not (folder / "runs/2/records").exists()
    capsys.readouterr()
    with pytest.raises(SystemExit):  # made for other lengths
        run(monkeypatch, options(folder, data=None, records=records, name="3"))
    assert "train-32: no such folder of records" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": None}, "give --data, or --records"),
        ({"data": "none.txt"}, "none.txt: no such file"),
        ({"corpora": "brown"}, "brown.zip"),
        ({"data": None, "records": "none"}, "none/vocab.txt: no such file"),
        ({"model": "bert_tinny"}, "--model bert_tinny: take one of bert_tiny"),
        ({"weights": "w", "vocabulary": "v"}, "--weights bring their own vocabulary and shape"),
        (
            {"weights": "none", "num_layers": None, "hidden_dim": None},
            "none does not exist: a Hugging Face BERT folder",
        ),
        ({"accumulate": 0}, "--accumulate 0: not 1 or more"),
        ({"phase_2_epochs": 4}, "--phase-2-epochs 4: not in 0 to 3"),
        ({"learning_rate": 0}, "peak_learning_rate is 0.0"),
        ({"epochs": 0, "phase_2_epochs": 0}, "total_steps is 0"),
        ({"dev_fraction": 1}, "held_out_share"),
        ({"dev_fraction": 1e-9}, "42 and 0 documents"),
        ({"vocabulary_size": 10}, "vocabulary_size=10 is too small"),
        ({"phase_1_length": 4}, "max_sequence_length is 4, must be 5"),
        ({"phase_2_epochs": 0, "hidden_dim": 33}, "multiple of num_heads"),
        ({"phase_2_epochs": 0, "batch_size": 0}, "batch_size=0"),
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"one\ntwo\xff\n", "text.txt:2: not UTF-8"),
        (b"one\n\0\n", "text.txt:2: a NUL byte"),
        (b"", "0 and 0 documents"),
        (b"".join(b"one sentence number %d .\n\n" % i for i in range(40)), "only one sentence"),
    ],
)
def test_bad_text_is_named(folder, monkeypatch, capsys, text, message):
    (folder / "text.txt").write_bytes(text)
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, options(folder))
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
