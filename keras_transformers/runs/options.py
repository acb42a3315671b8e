"""The options that all recipes share."""

import dataclasses
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import keras

from keras_transformers.extras import optional
from keras_transformers.pipelines.weights.saving import is_pipeline
from keras_transformers.training.schedules import WarmupLinearDecay
from keras_transformers.training.strategies import Precision, StrategyName

__all__ = ["Options", "Pretraining", "check_numbers"]


class Range(NamedTuple):
    """The numbers that an option may have, which are always finite."""

    words: str
    holds: Callable[[float], bool]


_COUNT = Range("1 or more", lambda number: number >= 1)
_COUNT_OR_NONE = Range("0 or more", lambda number: number >= 0)
_AMOUNT = Range("above 0, and finite", lambda number: number > 0)
_AMOUNT_OR_NONE = Range("0 or more, and finite", lambda number: number >= 0)
_SHARE = Range("0 to 1", lambda number: 0 <= number <= 1)
_RATE = Range("0 to below 1", lambda number: 0 <= number < 1)
_PART = Range("above 0 and below 1", lambda number: 0 < number < 1)
_ANY = Range("a finite number", lambda number: True)

# An option means the same in all recipes, so its name is enough to check it.
_NAMES: dict[Range, str] = {
    _COUNT: """
        accumulate average average_every batch_size batch_tokens bleu_every checkpoint_every
        doc_stride dupe_factor embedding_dim epochs filters hidden_dim image_size keep_tokens
        kneser_ney_order least_words length log_every lstm_dim max_answer_length max_predictions
        max_question_length max_sequence_length min_frequency ngram_order num_beams num_buckets
        num_heads num_layers num_processes num_recurrent_layers num_sampled num_shards patch_size
        phase_1_length phase_2_length projection_dim shared_words static_shapes stem_filters
        steps_per_epoch target_vocabulary_size units vocabulary_size window_length word_ngrams
    """,
    _COUNT_OR_NONE: """
        crop_padding extra_length keep_layers max_characters min_characters num_highways patience
        phase_2_epochs spans split_seed tensorboard_embeddings tensorboard_samples warmup_steps
        worker_index
    """,
    _AMOUNT: """
        checkpoint_minutes clip_norm generator_size initializer_range learning_rate peak_flops
        position_range
    """,
    _AMOUNT_OR_NONE: """
        discriminator_weight language_model_weight length_penalty mixup r_drop rotation
        weight_decay
    """,
    _SHARE: "bpe_dropout short_sequence_probability teacher_forcing warmup_fraction",
    _RATE: "dropout ema label_smoothing zoom",
    _PART: "dev_fraction held_out_fraction mask_probability test_fraction val_fraction",
    # The other numbers: columns and layers that are counted from either end, and scores.
    _ANY: "label_column layers no_answer_threshold text_b_column text_column word_column",
    Range("0 to 4294967295", lambda number: 0 <= number < 2**32): "seed",  # as NumPy wants it
}
RANGES = {name: range_ for range_, names in _NAMES.items() for name in names.split()}

# Paths that need not exist, because they are written, or because their reader says more.
_UNCHECKED = {"runs_dir", "export", "save", "records", "data"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scaling:
    """Where a run trains.

    The batch size counts all replicas together, but only one part of an accumulated batch.
    """

    strategy: StrategyName = "default"  # default: one device; see docs/distributed_training.md
    workers: tuple[str, ...] = ()  # for multi_worker: host:port of each, the same list everywhere
    worker_index: int | None = None  # the place of this process in that list, from 0
    precision: Precision = "float32"  # under a strategy, prefer mixed_bfloat16
    accumulate: int = 1  # batches per update, which equals the update of one large batch
    recompute: bool = False  # keep only the layers' inputs: less memory, one more forward pass
    static_shapes: int | None = None  # full batches of at most so many shapes, for XLA; TPUs want 1

    @property
    def jit_compile(self) -> bool:
        """Whether `compile` should use XLA; strategies do not, or know for themselves (TPUs)."""
        return self.static_shapes is not None and self.strategy == "default"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Logging:
    """What a run reports while it trains."""

    quiet: bool = False  # no progress on standard output, for batch jobs
    log_json: str | None = None  # also one JSON object per line, to this file or to stdout
    log_every: int = 100  # steps between figures in TensorBoard and JSON
    profile: bool = False  # profiles steps 10 to 14 for TensorBoard
    peak_flops: float | None = None  # per second of one accelerator, such as 312e12
    tensorboard_samples: int = 4  # first validation examples to show with their answers
    tensorboard_attention: bool = False  # draws that of the first of them; needs matplotlib
    tensorboard_histograms: bool = False  # of all weights, after each epoch
    tensorboard_embeddings: int = 0  # first tokens to show in the projector, at the end


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Scaling, Logging):
    """The base of every recipe's configuration."""

    resume: bool = False  # continue a stopped run as if it had not stopped; or start a new one
    checkpoint_every: int | None = None  # steps between checkpoints, besides those after epochs
    checkpoint_minutes: float | None = None  # likewise, the longest time between them

    r_drop: float = 0.0  # R-Drop's alpha: two passes should agree, in twice the time

    seed: int = 0  # for new weights, dropout and the order of the examples
    name: str = "run"  # the run's folder in runs_dir
    runs_dir: Path = Path("runs")
    export: Path | None = None  # write a SavedModel here, such as saved_models/sentiment/1
    weights_dtype: Literal["float32", "bfloat16", "int8"] = "float32"  # of the exported matrices
    save: Path | None = None  # a new folder for what keras_transformers.load reads

    def pick(self, *names: str) -> dict[str, Any]:
        """Returns some of the options as keyword arguments."""
        return {name: getattr(self, name) for name in names}

    def check(self) -> None:
        """Checks what costs nothing to check, before anything is read.

        Recipes add what they know about their own options.

        Raises:
            FileNotFoundError: a file or folder to read does not exist.
            ImportError: an option needs a package that is not installed.
            ValueError: a number is out of its range, a label occurs twice, or the name is no name
                of a folder; the message has the option and its value.
        """
        check_numbers(self)
        if self.tensorboard_attention:
            optional("matplotlib", extra="translation")  # now, not after an epoch
        labels = getattr(self, "labels", ())
        if twice := [label for label in dict.fromkeys(labels) if labels.count(label) > 1]:
            raise ValueError(f"{_said('labels', labels)}: {twice[0]!r} occurs twice; give it once")
        place = Path(self.name)
        if not place.name or place.is_absolute() or ".." in place.parts:
            raise ValueError(f"--name {self.name!r}: must name a folder in --runs-dir")
        for field in dataclasses.fields(self):
            if field.name not in _UNCHECKED:
                for path in _paths(getattr(self, field.name)):
                    _check_exists(field.name, path)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pretraining(Options):
    """The base of a pretraining's configuration: an epoch is a number of updates, not of texts."""

    epochs: int = 10
    steps_per_epoch: int = 1000  # updates until the next validation and checkpoint
    learning_rate: float = 1e-3  # the highest, after the warm-up
    warmup_fraction: float = 0.1  # of all updates
    batch_size: int = 64  # rows per forward pass, over all replicas
    clip_norm: float = 1.0

    def batching(self) -> dict[str, Any]:
        """Returns the options for the training batches."""
        return self.pick("batch_size", "accumulate", "steps_per_epoch", "seed", "static_shapes")

    def schedule(self) -> keras.optimizers.schedules.LearningRateSchedule:
        """Returns a warm-up, then linear decay to 0 after the last update."""
        num_updates = self.epochs * self.steps_per_epoch
        return WarmupLinearDecay(
            self.learning_rate,
            warmup_steps=round(self.warmup_fraction * num_updates),
            total_steps=num_updates,
        )


def check_numbers(options: Any) -> None:
    """Checks the numbers of a command's options.

    Args:
        options: a dataclass.

    Raises:
        ValueError: one is out of its range; the message has the option and its value.
    """
    for field in dataclasses.fields(options):
        value, range_ = getattr(options, field.name), RANGES.get(field.name, _ANY)
        if not all(math.isfinite(x) and range_.holds(x) for x in _numbers(value)):
            raise ValueError(f"{_said(field.name, value)}: must be {range_.words}")


def _paths(value: Any) -> list[Path]:
    """Returns an option's path, or those of a tuple."""
    values = value if isinstance(value, tuple) else (value,)
    return [path for path in values if isinstance(path, Path)]


def _check_exists(name: str, path: Path) -> None:
    """Checks a path to read, which may lack the `.gz` that the file has.

    Raises:
        FileNotFoundError: it does not exist, or is no folder of weights.
    """
    if not path.exists() and not path.with_name(f"{path.name}.gz").exists():
        raise FileNotFoundError(f"{_said(name, path)}: no such file or folder; check the path")
    configurations = ("config.json", "options.json")  # the second is ELMo's
    if name == "weights" and not any((path / file).is_file() for file in configurations):
        remedy = "give a model's folder"
        if is_pipeline(path):
            remedy = (
                f"keras-transformers convert {path} NEW --format huggingface writes such a folder"
            )
        raise FileNotFoundError(
            f"{_said(name, path)}: has no {' or '.join(configurations)}; {remedy}"
        )


def _numbers(value: Any) -> Iterator[float]:
    """Yields an option's number, or those of a tuple."""
    if isinstance(value, tuple):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def _said(name: str, value: Any) -> str:
    """Returns an option as on the command line: "--batch-size 0"."""
    words = map(str, value) if isinstance(value, tuple) else [str(value)]
    return " ".join([f"--{name.replace('_', '-')}", *words])


# Options that do not affect the weights, so a resumed run may change them. `workers` and
# `worker_index` also differ between the workers of one run.
MAY_DIFFER = frozenset(
    {
        *("resume", "checkpoint_every", "checkpoint_minutes", "workers", "worker_index"),
        *("export", "weights_dtype", "save"),
        *(field.name for field in dataclasses.fields(Logging)),
    }
)
