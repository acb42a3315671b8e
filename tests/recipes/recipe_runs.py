"""Runs recipes as commands in this process, on toys; a test module inspects each run."""

import contextlib
import dataclasses
import functools
import io
import json
import runpy
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import keras
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

import keras_transformers as kt
from keras_transformers import runs
from keras_transformers.families.bert.model import bert
from keras_transformers.runs.resume.callback import Resume

RECIPES = Path(__file__).parents[2] / "recipes"
# Options of a Transformer of one layer only: each takes a second to trace.
TINY_TRANSFORMER = {
    "num_encoder_layers": 1,
    "num_decoder_layers": 1,
    "num_heads": 2,
    "hidden_dim": 32,
    "intermediate_dim": 32,
}
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The results of a run.

    Attributes:
        folder: the run's folder.
        printed: the run's standard output.
    """

    folder: Path
    printed: str

    @functools.cached_property
    def metrics(self) -> dict[str, Any]:
        return self.json("metrics.json")

    def json(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())


def shown(folder: Path, *, step: int = 0) -> dict[str, str | bytes]:
    """Returns what a run's TensorBoard shows after an epoch: tag -> Markdown text, or PNG."""
    found = {}
    for path in (folder / "tensorboard/epochs").glob("*.tfevents.*"):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                if event.step == step:
                    *_, last = tf.make_ndarray(value.tensor).ravel()
                    found[value.tag] = last.decode() if value.tag == "samples" else last
    return found


def file_of(recipe: str) -> Path:
    """Returns the file of the recipe with that name."""
    (found,) = RECIPES.rglob(f"{recipe}.py")
    return found


def write_documents(folder: Path) -> None:
    """Writes text.txt: forty-two documents, each about two of seven things."""
    things = ("cat", "dog", "bird", "ship", "rain", "tree", "house")
    pairs = [(one, other) for one in things for other in things if one != other]
    documents = [
        "\n".join(f"the {one} is near the {other} {'again ' * (i % 3)}." for i in range(3 + k % 4))
        for k, (one, other) in enumerate(pairs)
    ]
    (folder / "text.txt").write_text("\n\n".join(documents) + "\n", "utf-8")


def run(recipe: str, *flags: str, **options: Any) -> Outcome:
    """Runs a recipe's command, without checking its export.

    Args:
        recipe: the name of its file.
        flags: words of the command.
        options: options with values, True for a flag; None leaves one out.
    """
    words: list[str] = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, tuple):
            words += [flag, *map(str, value)]
        elif value is not None:
            words.append(flag if value is True else f"{flag}={value}")
    printed = io.StringIO()
    with (
        mock.patch.object(sys, "argv", [recipe, *words, *flags]),
        mock.patch("keras_transformers.runs.run.export", functools.partial(kt.export, check=False)),
        contextlib.redirect_stdout(printed),
    ):
        runpy.run_path(str(file_of(recipe)), run_name="__main__")
    return Outcome(Path(options["runs_dir"]) / options.get("name", recipe), printed.getvalue())


def error_of(recipe: str, capsys: pytest.CaptureFixture[str], **options: Any) -> str:
    """Returns the line with which a recipe refuses the user's options, with status 2."""
    module = runpy.run_path(str(file_of(recipe)))
    given = {name: value for name, value in options.items() if value is not None}
    with pytest.raises(SystemExit) as stopped:
        runs.execute(module["main"], module["Config"](**given))
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    error = said.splitlines()[-1]
    assert error.startswith("error: ")
    return error


def save_encoder(folder: Path, words: list[str]) -> Path:
    """Writes a one-layer BERT with random weights in Hugging Face's format; returns its folder."""
    keras.utils.set_random_seed(0)
    vocabulary = [*SPECIAL, *words]
    encoder = bert(
        vocabulary_size=len(vocabulary),
        num_layers=1,
        num_heads=2,
        hidden_dim=32,
        max_sequence_length=32,
    )
    weights = folder / "encoder"
    weights.mkdir()
    kt.families.bert.FAMILY.save(encoder, weights / "model.safetensors")
    kt.families.bert.FAMILY.save_config(encoder, weights / "config.json")
    (weights / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    return weights


def save_sentences(folder: Path) -> None:
    """Writes train.tsv and dev.tsv, where a text's first word determines its label."""
    rows = [
        f"{word} {' '.join(['a film', 'the plot'][i % 2 :])} {'a ' * i}\t{'yes' if w < 4 else 'no'}"
        for w, word in enumerate(OPINIONS)
        for i in range(10)
    ]
    (folder / "train.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    (folder / "dev.tsv").write_text("\n".join(["sentence\tlabel", *rows[::3]]) + "\n")


OPINIONS = ("good", "great", "fine", "warm", "bad", "dull", "poor", "cold")
SENTENCE_WORDS = [*OPINIONS, "a", "film", "the", "plot"]


@contextlib.contextmanager
def killed_after(*epochs: int, folder: Path) -> Iterator[None]:
    """Copies what kill -9 would leave of a run after the checkpoint of an epoch.

    Args:
        epochs: epoch numbers, from 1.
        folder: the run's folder, copied to `killed-<epoch>` beside it.
    """
    write = Resume.on_epoch_end

    def copy(self: Resume, epoch: int, logs: Any = None) -> None:
        write(self, epoch, logs)
        if epoch + 1 in epochs:
            shutil.copytree(folder, folder.with_name(f"killed-{epoch + 1}"))

    with mock.patch.object(Resume, "on_epoch_end", copy):
        yield
