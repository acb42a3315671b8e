"""What the recipes share that fine-tune: options that mean the same, and their use."""

import dataclasses
import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert.encoders import load_encoder
from keras_transformers.saved_model.versions import split_target
from keras_transformers.tokenizers import WordPieceTokenizer
from keras_transformers.runs import run as runs
from keras_transformers.runs import strategies
from keras_transformers.runs.guardrails import NonFiniteLossError
from keras_transformers.training.optimizers import adamw
from keras_transformers.runs.resume.callback import check_same
from keras_transformers.training.schedules import WarmupLinearDecay

# Devlin et al. 2019, appendix A.3.
LEARNING_RATES = (5e-5, 3e-5, 2e-5)
BATCH_SIZES = (16, 32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tuning(runs.Run):
    """The options of fine-tuning any model; they mean the same in all recipes."""

    epochs: int = 3
    batch_size: int = 32
    learning_rate: float = 1e-4  # the highest, after the warm-up
    warmup_fraction: float = 0.1  # of all updates
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    dropout: float = 0.1  # in the model, its attention and the head
    max_sequence_length: int = 128  # tokens of an input, those around its texts included
    grid: bool = False  # a run for each learning rate and batch size of BERT's appendix A.3

    name: str = "fine_tuning"  # the run's folder in runs_dir
    export: Path | None = None  # writes a SavedModel there, e.g. saved_models/sentiment/1

    def begin(self) -> Path:
        """As `runs.Run.begin`; the export must not exist either."""
        folder = super().begin()
        if self.export and strategies.is_chief():
            split_target(self.export)
        return folder

    def schedule(self, steps_per_epoch: int) -> keras.optimizers.schedules.LearningRateSchedule:
        """A warm-up, then linear decay to 0 at the last update."""
        num_updates = self.epochs * steps_per_epoch
        return WarmupLinearDecay(
            self.learning_rate,
            warmup_steps=round(self.warmup_fraction * num_updates),
            total_steps=num_updates,
        )

    def optimizer(self, steps_per_epoch: int) -> keras.optimizers.Optimizer:
        """AdamW with that schedule, as BERT was fine-tuned with."""
        schedule = self.schedule(steps_per_epoch)
        return adamw(schedule, weight_decay=self.weight_decay, clip_norm=self.clip_norm)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuning(Tuning):
    """A recipe's configuration that fine-tunes an encoder begins with these."""

    weights: Path | None = None  # Hugging Face BERT: config.json, model.safetensors, vocab.txt
    model: str | None = None  # instead: a name of `keras-transformers list`, random weights
    vocabulary: Path | None = None  # vocab.txt for --model; --weights brings its own
    lowercase: bool = True  # False for cased vocabularies

    def encoder(self) -> tuple[keras.Model, WordPieceTokenizer]:
        """The encoder, pretrained or new, and the tokenizer whose ids it reads."""
        return load_encoder(
            weights=self.weights,
            model=self.model,
            vocabulary=self.vocabulary,
            lowercase=self.lowercase,
            dropout=self.dropout,
        )


def with_grid(main: Callable[[Any], dict[str, Any]]) -> Callable[[Any], dict[str, Any]]:
    """`main` of a recipe, that makes a run for each point of the grid where `--grid` says so.

    The runs lie in folders of the run's, such as `learning_rate_5e-05_batch_size_16`, and
    `grid.json` beside them has all their figures. A grid that was stopped goes on where it was,
    also within a run, without `--resume`.
    """

    def run(config: Tuning) -> dict[str, Any]:
        return _run_grid(main, config) if config.grid else main(config)

    return run


def _run_grid(main: Callable[[Any], dict[str, Any]], config: Tuning) -> dict[str, Any]:
    """A run for each learning rate and batch size; returns what it writes to grid.json."""
    with runs.user_errors():
        if config.export:
            raise ValueError("--export with --grid: export the one you choose, by its own command")
        if config.strategy == "multi_worker":
            raise ValueError("--grid with --strategy multi_worker: give each point its own command")
        folder = config.runs_dir / config.name
        names = [path.name for path in folder.glob("*")]
        if names == [runs.CONFIG]:  # of a grid whose first run found no input
            (folder / runs.CONFIG).unlink()
        if len(names) > 1:
            check_same(folder, config, may_differ=runs.MAY_DIFFER)
        else:
            runs.start(runs.check_new(folder), config)
    found: dict[str, Any] = {}
    for learning_rate, batch_size in itertools.product(LEARNING_RATES, BATCH_SIZES):
        keras.utils.clear_session()
        point = dataclasses.replace(
            config,
            grid=False,
            learning_rate=learning_rate,
            batch_size=batch_size,
            runs_dir=folder,
            name=f"learning_rate_{learning_rate:g}_batch_size_{batch_size}",
        )
        metrics = folder / point.name / runs.METRICS
        try:
            found[point.name] = json.loads(metrics.read_text("utf-8"))
            continue
        except FileNotFoundError:
            is_begun = (metrics.parent / runs.CONFIG).is_file()
        if not is_begun:
            shutil.rmtree(metrics.parent, ignore_errors=True)
        try:
            found[point.name] = main(dataclasses.replace(point, resume=is_begun))
        except (NonFiniteLossError, runs.NoBestEpochError) as error:
            print(f"{point.name}: {error}")
    scores = {name: figures["best"] for name, figures in found.items()}
    for name, score in scores.items():
        print(f"{name}: {score:.4f}")
    print(f"best: {max(scores, key=lambda name: scores[name])}" if scores else "no run succeeded")
    runs.write_json(folder / "grid.json", found)
    return found
