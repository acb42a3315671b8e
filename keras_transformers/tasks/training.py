"""Tells `fit` and `evaluate` how to train and measure a task.

A module in `jobs/` registers its task by defining `JOB`; no list names it.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import keras

from keras_transformers import registry
from keras_transformers.data.batching import Batches
from keras_transformers.data.tables.columns import ColumnsError
from keras_transformers.data.tables.in_memory import RowError, Wanted, columns_of
from keras_transformers.data.tables.reading import file_format, read_objects
from keras_transformers.files import compression
from keras_transformers.ranges import PositiveFloat, PositiveInt
from keras_transformers.runs import Training
from keras_transformers.tasks.labels import LabelColumn, LabelsAre
from keras_transformers.tasks.lora import Target
from keras_transformers.tasks.source import Source

__all__ = ["FitOptions", "Job", "job_of"]

Columns = Mapping[str, list[Any]]

_FEW_PARAMETERS = 10_000_000
_ROWS = (".jsonl", ".json", ".parquet")  # files of rows with names


class _Table(NamedTuple):
    """The columns of a data set, and where they come from."""

    columns: dict[str, list[Any]]
    source: Source


@dataclasses.dataclass(frozen=True, kw_only=True)
class FitOptions(Training):
    """The options of `fit`: those of recipes for training, checkpoints and logs.

    BERT's appendix A.3 uses 2 to 4 epochs and batches of 16 or 32 (Devlin et al. 2019).

    Attributes:
        lora_rate: the learning rate with `lora`.
        may_compile: whether XLA can compile a step.
        unused: options that the task's training does not read.
        small_rate: the learning rate of models with fewer than 10 million parameters.
    """

    # BERT's appendix A.3 tries 2e-5, 3e-5 and 5e-5; the last was best for SST-2 on MiniLM
    # (recipes/classification.py).
    learning_rate: PositiveFloat = 5e-5
    lora: PositiveInt | None = None  # the rank of low-rank updates, trained with the head alone
    lora_alpha: PositiveFloat | None = None  # alpha / rank scales the updates; the rank by default
    lora_targets: tuple[Target, ...] = ("attention",)  # or feed_forward, or both
    data: str = ""  # a digest of the training data, so that a stopped run resumes with the same
    optimizer_config: dict[str, Any] | None = None  # of the user's own, for the same reason

    # For RoBERTa-Base with low-rank updates on GLUE (Hu et al. 2021, table 9).
    lora_rate: ClassVar[float] = 4e-4
    # Whether XLA can compile the step, with `static_shapes`.
    may_compile: ClassVar[bool] = True
    unused: ClassVar[frozenset[str]] = frozenset()
    # The best rate for a BERT of 1.9 million parameters on SST-2 (recipes/classification.py).
    small_rate: ClassVar[float] = 1e-3

    @classmethod
    def rate_for(cls, model: keras.Model, *, lora: bool = False) -> float:
        """Returns the learning rate to use if none is given."""
        if lora:
            return max(cls.lora_rate, cls.rate_for(model))
        if model.count_params() < _FEW_PARAMETERS:
            return cls.small_rate
        default: float = cls.learning_rate
        return default


class Given(NamedTuple):
    """Holds the arguments of a job's functions that set up training."""

    pipeline: Any
    options: FitOptions
    examples: Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """Trains and measures the pipelines of one task.

    The functions take the pipeline as their first argument, or build their result for it.

    Attributes:
        task: the task's name, as `Pipeline.task`.
        columns: returns the columns to read from data in memory.
        from_columns: makes examples from those columns; the last argument says where they come
            from.
        from_file: makes examples from a file; the last argument is `columns` of `fit`.
        labels: the column whose labels `from_columns` gets as names; None if there is none.
        own_json: whether `from_file` also reads JSON and Parquet, in formats of the task. Other
            tasks read them as rows in memory.
        encoded: turns examples into the input of `batches` and of their `of`.
        batches: makes batches from that, with the options that `FitOptions.batching` returns.
        model: returns the model to train, built from the layers of the pipeline's model.
        losses: returns `loss`, and possibly `loss_weights`, for `model.compile`.
        metrics: returns `weighted_metrics` for `model.compile`.
        monitor: takes validation examples; returns the name of the metric that selects the best
            epoch (higher is better).
        steps: adapts the training step of the compiled model to the options.
        callbacks: returns callbacks that add validation metrics to an epoch's logs.
        scores: measures what Keras cannot, from the pipeline, batches in order and their examples;
            None if Keras' metrics are enough.
        baseline: returns scores to compare with, from the examples alone.
        split: divides examples into two parts; the last argument is the share of the second.
        chosen: after training, sets what a pipeline chooses on validation data, such as thresholds;
            takes the arguments of `scores`.
        options: the training options, with the task's defaults.
    """

    task: str
    columns: Callable[[Any], Sequence[Wanted]]
    from_columns: Callable[[Any, Columns, Source], Any]
    from_file: Callable[[Any, Path, Mapping[str, str]], Any]
    encoded: Callable[[Any, Any], Any] = lambda pipeline, examples: examples
    batches: Callable[..., Batches]
    model: Callable[[Any], keras.Model] = lambda pipeline: pipeline.model
    losses: Callable[[Given], Mapping[str, Any]]
    metrics: Callable[[Any], Mapping[str, Any] | None] = lambda pipeline: None
    steps: Callable[[keras.Model, Any], None] = lambda model, options: None
    callbacks: Callable[[], Sequence[keras.callbacks.Callback]] = tuple
    monitor: Callable[[Any], str]
    labels: LabelColumn | None = None
    own_json: bool = False
    scores: Callable[[Any, Any, Any], Mapping[str, float]] | None = None
    baseline: Callable[[Any, Any], Mapping[str, float]] = lambda pipeline, examples: {}
    split: Callable[[Any, float], tuple[Any, Any]]
    chosen: Callable[[Any, Any, Any], None] = lambda pipeline, batches, examples: None
    options: type[FitOptions] = FitOptions

    def read(
        self,
        pipeline: Any,
        data: Mapping[str, Any],
        columns: Mapping[str, str],
        labels_are: LabelsAre | None = None,
    ) -> list[Any]:
        """Returns the examples of each data set, with labels that are read one way in all of them.

        Args:
            pipeline: the pipeline that the examples are for.
            data: how error messages name the data -> a path, or what
                `data.tables.in_memory.columns_of` takes.
            columns: the task's column name -> the data's.
            labels_are: see `fit`.

        Raises:
            FileNotFoundError: a file does not exist.
            TypeError, ValueError: the data cannot be read; the message says where.
        """
        if labels_are is not None and self.labels is None:
            raise ValueError(f"labels_are={labels_are!r}: {self.task} has no names of labels")
        sets = [self._columns(pipeline, value, columns, name) for name, value in data.items()]
        if self.labels is not None:
            name, column = self.labels.name, self.labels
            tables = [each for each in sets if isinstance(each, _Table)]
            labelled = [(table.source, table.columns[name]) for table in tables]
            for table, names in zip(
                tables, column.as_names(pipeline, labelled, labels_are), strict=True
            ):
                table.columns[name] = names
        return [
            self.from_columns(pipeline, each.columns, each.source)
            if isinstance(each, _Table)
            else self._from_file(pipeline, each, columns, labels_are)
            for each in sets
        ]

    def _columns(
        self, pipeline: Any, data: Any, names: Mapping[str, str], source_name: str
    ) -> "_Table | Path":
        """Returns the columns of data in memory or of a file of rows, or another file's path."""
        source = Source(source_name)
        if isinstance(data, str | os.PathLike):
            path = Path(data)
            suffix = Path(compression.inner_name(path)).suffix.lower()
            if self.own_json or suffix not in _ROWS:
                return path
            format: Any = file_format(path)
            numbered = list(read_objects(path, format=format))
            source = Source(str(path), [number for number, _ in numbered])
            data = [row for _, row in numbered]
        try:
            return _Table(columns_of(data, self.columns(pipeline), names=names), source)
        except RowError as error:
            raise ValueError(f"{source.row(error.row)}: {error.reason}") from error
        except (TypeError, ValueError) as error:
            raise type(error)(f"{source}: {error}") from error

    def _from_file(
        self, pipeline: Any, path: Path, columns: Mapping[str, str], labels_are: LabelsAre | None
    ) -> Any:
        if labels_are not in (None, "names"):
            raise ValueError(
                f"labels_are={labels_are!r} for {path}: the labels of such a file are names; read "
                "its columns, for example with pandas, and pass them"
            )
        try:
            return self.from_file(pipeline, path, columns)
        except ColumnsError as error:
            raise ValueError(f"{error.reason}: {self._remedy(pipeline, error)}") from error

    def _remedy(self, pipeline: Any, error: ColumnsError) -> str:
        """Returns what to pass to `fit`, which has other options than the readers of files."""
        label = [each.name for each in self.columns(pipeline)][-1]
        chosen = {{"label": label}.get(kind, kind): name for kind, name in error.columns.items()}
        remedy = f"pass columns={chosen or {'text': '...', label: '...'}}"
        if not error.may_be_names:
            return remedy
        return (
            f"{remedy} if the row names the columns; if it is an example, read the file with "
            "data.text.load(path, header='absent') and pass its texts and labels"
        )


def all_jobs() -> Mapping[str, Job]:
    """Returns task -> job, from every module in `jobs/`."""
    return {job.task: job for job in registry.values("JOB")}


def job_of(pipeline: Any) -> Job:
    """Returns the job that trains and measures a pipeline.

    Raises:
        TypeError: it is not a pipeline, or its task cannot be trained in one call.
    """
    task = getattr(pipeline, "task", "")
    if task not in all_jobs():
        what = f"a pipeline for {task}" if task else f"a {type(pipeline).__name__}"
        raise TypeError(
            f"{what} cannot be trained in one call: pass a pipeline from load for "
            f"{', '.join(all_jobs())}; recipes/ has scripts for other models"
        )
    return all_jobs()[task]


def check_column_names(columns: Mapping[str, str], path: Path, known: Sequence[str]) -> None:
    """Checks the names of a file's columns; ValueError for a column that is not read."""
    for name in columns:
        if name not in known:
            raise ValueError(
                f"columns={dict(columns)} for {path}: pass names for {', '.join(known)}"
            )
