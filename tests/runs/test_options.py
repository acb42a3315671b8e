"""A recipe's options are checked by their own names, before anything is read."""

import dataclasses
import gzip
import math
from pathlib import Path

import pytest
from checks import says

from keras_transformers import runs
from keras_transformers.cli.main import main
from keras_transformers.ranges import AnyFloat, Fraction, PositiveInt, Share


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(runs.Training):
    labels: tuple[str, ...] = ()
    filters: tuple[tuple[PositiveInt, PositiveInt], ...] = ((1, 16),)
    dev_fraction: Fraction = 0.1
    teacher_forcing: Share = 1.0
    mask_probability: Fraction = 0.15
    weights: Path | None = None
    train_file: Path | None = None
    held_out: tuple[Path, ...] = ()
    threshold_of_a_recipe: AnyFloat | None = None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "--epochs 0 ... 1 or more"),
        ({"batch_size": -3}, "--batch-size -3 ... 1 or more"),
        ({"accumulate": 0}, "--accumulate 0 ... 1 or more"),
        ({"static_shapes": 0}, "--static-shapes 0 ... 1 or more"),
        ({"log_every": 0}, "--log-every 0 ... 1 or more"),
        ({"checkpoint_every": 0}, "--checkpoint-every 0 ... 1 or more"),
        ({"learning_rate": math.nan}, "--learning-rate nan ... above 0, and finite"),
        ({"learning_rate": math.inf}, "--learning-rate inf ... above 0, and finite"),
        ({"learning_rate": -1e-3}, "--learning-rate -0.001 ... above 0"),
        ({"clip_norm": math.nan}, "--clip-norm nan ... above 0, and finite"),
        ({"peak_flops": 0.0}, "--peak-flops 0.0 ... above 0"),
        ({"weight_decay": math.nan}, "--weight-decay nan ... 0 or more, and finite"),
        ({"warmup_fraction": 1.5}, "--warmup-fraction 1.5 ... 0 to 1"),
        ({"teacher_forcing": -0.5}, "--teacher-forcing -0.5 ... 0 to 1"),
        ({"dropout": 1.0}, "--dropout 1.0 ... 0 to below 1"),
        ({"mask_probability": 0.0}, "--mask-probability 0.0 ... above 0 and below 1"),
        ({"dev_fraction": 1.0}, "--dev-fraction 1.0 ... above 0 and below 1"),
        ({"seed": -1}, "--seed -1 ... 0 to 4294967295"),
        ({"seed": 2**32}, "--seed 4294967296 ... 0 to 4294967295"),
        ({"filters": ((1, 16), (2, 0))}, "--filters (1, 16) (2, 0) ... 1 or more"),
        ({"threshold_of_a_recipe": math.nan}, "--threshold-of-a-recipe nan ... a finite num"),
        ({"labels": ("0", "1", "0")}, "--labels 0 1 0 ... '0' ... once"),
        ({"name": ""}, "--name '' ... folder in --runs-dir"),
        ({"name": "../other"}, "--name '../other' ... folder in --runs-dir"),
        ({"train_file": Path("no/file")}, "--train-file no/file: ... check"),
        ({"held_out": (Path(), Path("no"))}, "--held-out no: ... check"),
        ({"weights": Path("no/folder")}, "--weights no/folder: ... check"),
        ({"weights": Path("/")}, "--weights: / ... no weights"),
    ],
)
def test_a_wrong_option_is_named_before_anything_is_read(tmp_path, capsys, changes, message):
    def main(config, run):
        raise AssertionError("the data would be read now")

    with pytest.raises(SystemExit) as stopped:
        runs.execute(main, Task(runs_dir=tmp_path, **changes))
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert says(said, f"error: {message}")
    assert len(said.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_weights_are_what_load_takes(tmp_path):
    (tmp_path / "pipeline.json").write_text("{}")
    Task(weights=tmp_path).check()
    Task(weights=Path("hf://organization/name@0123abc")).check()


def test_limits_are_taken(tmp_path):
    limits = {"warmup_fraction": 1.0, "dropout": 0.0, "weight_decay": 0.0, "seed": 2**32 - 1}
    Task(**limits, epochs=1, batch_size=1, labels=("0", "1"), name="group/run").check()


def test_files_that_exist_are_taken_plain_or_packed(tmp_path):
    (tmp_path / "plain.tsv").write_text("a\t1\n")
    with gzip.open(tmp_path / "packed.tsv.gz", "wt") as file:
        file.write("a\t1\n")
    (tmp_path / "config.json").write_text("{}")
    train, held_out = tmp_path / "plain.tsv", (tmp_path / "packed.tsv", tmp_path)
    Task(train_file=train, held_out=held_out, weights=tmp_path).check()


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"model": "bert_tiny"},
        {"vocabulary": True},
        {"weights": True, "model": "bert_tiny"},
        {"weights": True, "vocabulary": True},
        {"weights": True, "model": "bert_tiny", "vocabulary": True},
    ],
)
def test_a_model_has_one_source(tmp_path, given):
    (tmp_path / "config.json").write_text("{}")
    places = {name: tmp_path for name, value in given.items() if value is True}
    with pytest.raises(ValueError, match="--weights FOLDER.*--model NAME and --vocabul"):
        runs.EncoderTuning(**given | places).check()


def test_the_numbers_of_make_pretraining_data(tmp_path, capsys):
    words = ["make-pretraining-data", str(tmp_path / "out"), "text", "--vocabulary", "none"]
    wrong = {"num-shards": 0, "num-processes": 0, "short-sequence-probability": 2}
    for option, value in wrong.items():
        assert main([*words, f"--{option}", str(value)]) == 2
        assert f"keras-transformers: --{option} {value}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["runs_dir", "export", "log_json"])
@pytest.mark.parametrize(
    ("place", "reason"),
    [("a_file/deep/er", "a_file: Not a directory"), ("/proc/nowhere/er", "/proc: ")],
)
def test_a_place_that_cannot_be_written_is_named(tmp_path, capsys, option, place, reason):
    (tmp_path / "a_file").touch()
    places = {"runs_dir": tmp_path / "runs", option: tmp_path / place}  # /proc stays /proc
    if option == "log_json":
        places[option] = str(places[option] / "log.jsonl")
    with pytest.raises(SystemExit) as stopped:
        runs.execute(lambda config, run: {}, Task(**places))
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert f"{tmp_path / place}" in said
    assert "cannot be written (" in said
    assert reason in said
    assert len(said.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a_file"]
