"""The pretraining recipe, from text to weights, and its errors on wrong input."""

import functools
import re
import runpy

import keras
import numpy as np
import pytest
from checks import newest_state, says
from recipe_runs import RECIPES, error_of, killed_after, run, shown, write_documents

import keras_transformers as kt
from keras_transformers.data.pretraining import PretrainingSets
from keras_transformers.families.bert.model import bert

run = functools.partial(run, "pretrain_bert")
error_of = functools.partial(error_of, "pretrain_bert")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pretrain_bert")
    write_documents(folder)
    return folder


def options(folder, **changes):
    return {
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


@pytest.fixture(scope="module")
def records(folder):
    """The examples of the first phase, as a run writes them before it trains."""
    recipe = runpy.run_path(str(RECIPES / "pretrain_bert.py"))
    config = recipe["Config"](**options(folder))
    config.make(config.read(), folder / "records", lengths=[16])
    return folder / "records"


@pytest.fixture(scope="module")
def outcome(folder):
    """A run of two phases, and beside it what a kill between them leaves."""
    with killed_after(2, folder=folder / "runs/pretrain_bert"):
        return run(**options(folder))


@pytest.mark.slow
def test_a_run_learns_in_two_phases(outcome):
    assert "train-16: " in outcome.printed
    assert "dev-32: " in outcome.printed
    metrics = outcome.metrics
    assert [epoch["epoch"] for epoch in metrics["epochs"]] == [1, 2, 3]
    assert metrics["steps"] == 12
    last = metrics["epochs"][-1]
    assert {"mask_logits_loss", "next_sentence_logits_loss"} <= last.keys()
    assert metrics["dev_mask_accuracy"] == last["val_mask_logits_accuracy"]
    assert last["val_mask_logits_loss"] < metrics["epochs"][0]["val_mask_logits_loss"]
    assert 0 < metrics["dev_mask_accuracy, unigram"] < 0.5
    assert 1 < metrics["dev_mask_perplexity, unigram"] < 120
    assert 0 <= metrics["dev_next_sentence_accuracy"] <= 1
    assert list((outcome.folder / "tensorboard/train").iterdir())
    assert all("answer: tokens" in shown(outcome.folder, step=i)["samples"] for i in range(3))


@pytest.mark.slow
def test_masked_tokens_alone_are_learned_without_next_sentence(folder, tmp_path):
    short = {"epochs": 1, "steps_per_epoch": 2, "phase_2_epochs": 0, "runs_dir": tmp_path}
    metrics = run(**options(folder, no_next_sentence=True, **short)).metrics
    (epoch,) = metrics["epochs"]
    assert epoch["loss"] == pytest.approx(epoch["mask_logits_loss"], rel=1e-6)


@pytest.mark.slow
def test_always_mask_reaches_the_masks_of_training(folder, tmp_path, monkeypatch):
    asked = []

    def batches(self, *args, **options):
        asked.append(options["always_mask"])
        return make(self, *args, **options)

    make = PretrainingSets.batches
    monkeypatch.setattr(PretrainingSets, "batches", batches)
    short = {"epochs": 1, "steps_per_epoch": 1, "phase_2_epochs": 0, "runs_dir": tmp_path}
    run(**options(folder, always_mask=True, **short))
    assert asked == [True]


@pytest.mark.slow
def test_the_weights_go_into_a_model_built_by_what_lies_beside_them(outcome):
    """The weights are those of the last epoch."""
    weights = outcome.folder / "weights"
    shape = kt.families.bert.FAMILY.read(weights)
    assert (shape["num_layers"], shape["hidden_dim"], shape["max_sequence_length"]) == (1, 32, 32)
    vocabulary = (weights / "vocab.txt").read_text().splitlines()
    assert shape["vocabulary_size"] == len(vocabulary) <= 120
    model = kt.heads.pretrainer(bert(**shape))
    assert model.count_params() == outcome.metrics["parameters"]
    kt.convert.load_weights(model, weights)
    loaded = model.get_weights()
    model.load_weights(outcome.folder / "last.weights.h5")
    for one, other in zip(loaded, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def resume(folder, whole, killed, **changes):
    """Continues a killed run in `folder`; moves the undisturbed one to `whole`."""
    if not whole.exists():
        folder.rename(whole)
    else:
        folder.rename(folder.with_name(f"before-{killed.name}"))
    killed.rename(folder)
    assert not (folder / "metrics.json").exists()
    resumed = run("--resume", **changes)
    expected, found = newest_state(whole), newest_state(folder)
    assert expected.keys() == found.keys()
    for name in expected.keys() - {"state"}:
        # Not bit for bit: TensorFlow's sums depend on threads and addresses.
        np.testing.assert_allclose(expected[name], found[name], rtol=0, atol=1e-6)
    return resumed


@pytest.mark.slow
def test_a_run_that_was_killed_between_the_phases_ends_as_one_that_was_not(outcome, folder, capsys):
    runs = folder / "runs"
    resumed = resume(outcome.folder, runs / "whole", runs / "killed-2", **options(folder))
    assert [epoch["epoch"] for epoch in resumed.metrics["epochs"]] == [1, 2, 3]
    error = error_of(capsys, **options(folder, learning_rate=1e-3, resume=True))
    assert "learning_rate was 0.005, is 0.001; pass the same" in error


@pytest.mark.slow
@pytest.mark.parametrize("pack", [None, True])
def test_a_run_that_was_killed_in_either_phase_ends_as_one_that_was_not(folder, tmp_path, pack):
    changes = options(folder, runs_dir=tmp_path, name="run", epochs=4, phase_2_epochs=2, pack=pack)
    with killed_after(1, 3, folder=tmp_path / "run"):
        run(**changes)
    for epoch in (1, 3):
        resume(tmp_path / "run", tmp_path / "whole", tmp_path / f"killed-{epoch}", **changes)


@pytest.mark.slow
def test_a_run_goes_on_from_the_weights_of_another(folder, tmp_path, capsys):
    given = functools.partial(options, folder, runs_dir=tmp_path, phase_2_epochs=0)
    before = run(**given(name="before", steps_per_epoch=12))
    more = {
        "weights": before.folder / "weights",
        "records": before.folder / "records",
        "epochs": 1,
        "num_layers": None,
        "hidden_dim": None,
        "accumulate": 2,
    }
    after = run(**given(name="after", learning_rate=1e-9, **more))
    name = "dev_mask_perplexity"
    assert after.metrics[name] == pytest.approx(before.metrics[name], rel=1e-4)
    vocabularies = [(one.folder / "weights/vocab.txt").read_text() for one in (before, after)]
    assert vocabularies[0] == vocabularies[1]
    error = error_of(capsys, **given(name="longer", phase_1_length=32, **more))
    assert says(error, "16 positions ... 32 tokens")
    assert not (tmp_path / "longer").exists(), "the name is still free"


@pytest.mark.slow
def test_a_modern_bert_learns_masked_tokens_goes_on_and_is_fine_tuned(folder, tmp_path, capsys):
    given = functools.partial(
        options, folder, runs_dir=tmp_path, model="modern_bert_tiny", mask_probability=0.3
    )
    before = run(**given(name="before", steps_per_epoch=12, static_shapes=1))
    assert "dev_next_sentence_accuracy" not in before.metrics
    first, *_, last = before.metrics["epochs"]
    assert last["val_loss"] < first["val_loss"]
    files = [PretrainingSets.open(_sets(before.folder), 32)[i].num_predictions for i in (0, 1)]
    assert files == [10, 5]  # 30 % of 32 tokens, and BERT's 15 %
    more = {
        "weights": before.folder / "weights",
        "records": before.folder / "records",
        "num_layers": None,
        "hidden_dim": None,
        "phase_2_epochs": 0,
        "phase_1_length": 32,
    }
    after = run(**given(name="after", epochs=1, learning_rate=1e-9, **more))
    name = "dev_mask_perplexity"
    assert after.metrics[name] == pytest.approx(before.metrics[name], rel=1e-4)
    fill = kt.load(after.folder / "weights", pipeline="fill_mask")
    assert fill.max_sequence_length == 32
    assert fill.model.count_params() == after.metrics["parameters"]
    assert type(fill.tokenizer).__name__ == "WordPieceTokenizer"
    kt.load(after.folder / "weights", pipeline="classification", labels=["bad", "good"])
    for changes, message in (
        ({"pack": True}, "with segments and both pretraining heads"),
        (
            {"mask_probability": 0.5, "data": None},
            "room for 10 predictions .* of 32 tokens are 16: make the rec",
        ),
    ):
        error = error_of(capsys, **given(name="wrong", epochs=1, **more) | changes)
        assert re.search(message, error)


def _sets(folder):
    records = folder / "records"
    return PretrainingSets(records, kt.tokenizers.WordPieceTokenizer(records / "vocab.txt"))


@pytest.mark.slow
def test_records_of_another_run_to_an_export(folder, tmp_path, capsys):
    given = functools.partial(options, folder, runs_dir=tmp_path, epochs=1, phase_2_epochs=0)
    records = run(**given(name="1")).folder / "records"
    changes = {"optimizer": "lamb", "precision": "mixed_bfloat16", "export": tmp_path / "saved/1"}
    run("--no-dynamic-masking", **given(name="2", data=None, records=records, **changes))
    keras.config.set_dtype_policy("float32")
    assert (tmp_path / "saved/1/saved_model.pb").is_file()
    assert not (tmp_path / "2/records").exists()
    other_lengths = {"epochs": 3, "phase_2_epochs": 1, "data": None, "records": records}
    error = error_of(capsys, **given(name="3") | other_lengths)
    assert "train-32: no such folder of records" in error


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": None}, "--data FILE ... --records FOLDER"),
        ({"data": "none.txt"}, "none.txt: no such file"),
        ({"corpora": ("brown",)}, "brown.zip"),
        ({"data": None, "records": "none"}, "none/vocab.txt: no such file"),
        ({"model": "bert_tinny"}, "--model bert_tinny: use one of bert_tiny"),
        ({"model": "albert_base"}, "such as bert_l4_h128; or one of distilbert_base,"),
        ({"weights": "w", "vocabulary": "v"}, "--weights ... its own vocabulary"),
        (
            {"weights": "none", "num_layers": None, "hidden_dim": None},
            "none: ... check the path",
        ),
        ({"accumulate": 0}, "--accumulate 0 ... 1 or more"),
        ({"always_mask": True, "dynamic_masking": False}, "leave out --no-dynamic-masking"),
        ({"phase_2_epochs": 4}, "--phase-2-epochs 4: give 0 to 3"),
        ({"dev_fraction": 1}, "--dev-fraction 1 ... above 0 and below 1"),
        ({"dev_fraction": 1e-9}, "42 and 0 documents"),
        ({"vocabulary_size": 10}, "--vocabulary-size 10 is too small"),
        ({"phase_1_length": 4}, "max_sequence_length=4: must be 5"),
    ],
)
def test_wrong_input_ends_with_one_line_and_status_2(folder, tmp_path, capsys, changes, message):
    paths = {
        name: tmp_path / value
        for name, value in changes.items()
        if name in ("data", "records", "weights", "vocabulary") and value is not None
    }
    (tmp_path / "v").touch()
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "pipeline.json").touch()
    changed = options(folder, runs_dir=tmp_path / "runs") | changes | paths
    assert says(error_of(capsys, **changed), message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate": 0}, "--learning-rate 0 ... above 0"),
        ({"epochs": 0}, "--epochs 0 ... 1 or more"),
        ({"hidden_dim": 33}, "multiple of --num-heads"),
        ({"batch_size": 0}, "--batch-size 0 ... 1 or more"),
    ],
)
def test_options_of_the_training_are_checked_too(
    records, folder, tmp_path, capsys, changes, message
):
    given = {"data": None, "records": records, "phase_2_epochs": 0}
    given["runs_dir"] = tmp_path
    assert says(error_of(capsys, **options(folder, **given) | changes), message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"one\ntwo\xff\n", "text.txt:2: not UTF-8"),
        (b"one\n\0\n", "text.txt:2: a NUL byte"),
        (b"", "0 and 0 documents"),
        (b"".join(b"one sentence number %d .\n\n" % i for i in range(40)), "only one sentence"),
    ],
)
def test_bad_text_is_named(tmp_path, capsys, text, message):
    (tmp_path / "text.txt").write_bytes(text)
    assert says(error_of(capsys, **options(tmp_path)), message)
