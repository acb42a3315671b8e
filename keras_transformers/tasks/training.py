"""Says how `fit` trains a task and how `evaluate` measures it."""

import abc
import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import keras
import numpy as np

from keras_transformers.data.bad_rows import (
    BadRowsError,
    OnBadRows,
    bad_rows,
    check_any,
    check_rows,
    reject,
)
from keras_transformers.data.batching import Batches
from keras_transformers.data.faults import Content
from keras_transformers.data.splits import at_random
from keras_transformers.data.tables.columns import ColumnsError
from keras_transformers.data.tables.in_memory import RowError, Wanted, columns_of
from keras_transformers.data.tables.reading import file_format, read_objects
from keras_transformers.data.weighting import check_weights, row_weight
from keras_transformers.dependencies.tables import row_names
from keras_transformers.evaluation.reports.report import Report
from keras_transformers.files import compression
from keras_transformers.ranges import PositiveFloat, PositiveInt
from keras_transformers.runs import Training, outputs_of
from keras_transformers.tasks.labels import LabelColumn, LabelsAre, check_one_per_row
from keras_transformers.tasks.lora import Target
from keras_transformers.tasks.pipeline import Pipeline
from keras_transformers.tasks.source import Source

__all__ = ["FitOptions", "Trainer"]

Columns = Mapping[str, list[Any]]
# The fields of a task's answers -> a value per example, in order.
Answers = Mapping[str, Any]
PipelineT = TypeVar("PipelineT", bound=Pipeline)
ExamplesT = TypeVar("ExamplesT")

_WEIGHT = Wanted("weight", required=False)
_ROWS = (".jsonl", ".json", ".parquet")  # files of rows with names


class _Table(NamedTuple):
    """The columns of a data set, and where they come from."""

    columns: dict[str, list[Any]]
    source: Source


@dataclasses.dataclass(frozen=True, kw_only=True)
class FitOptions(Training):
    """The options that `fit` adds to those that a task's recipe has too.

    Attributes:
        lora_rate: the lowest default of the learning rate with `lora`.
    """

    lora: PositiveInt | None = None  # the rank of low-rank updates, trained with the head alone
    lora_alpha: PositiveFloat | None = None  # alpha / rank scales the updates; the rank by default
    lora_targets: tuple[Target, ...] = ("attention",)  # or feed_forward, or both
    data: str = ""  # a digest of the training data, so that a stopped run resumes with the same
    optimizer_config: dict[str, Any] | None = None  # of the user's own, for the same reason

    # For RoBERTa-Base with low-rank updates on GLUE (Hu et al. 2021, table 9).
    lora_rate: ClassVar[float] = 4e-4

    def rate_for(self, model: keras.Model) -> float:
        """Returns the learning rate if none is set."""
        rate = super().rate_for(model)
        return rate if self.lora is None else max(self.lora_rate, rate)


class Trainer(abc.ABC, Generic[PipelineT, ExamplesT]):
    """Trains and measures the pipelines of one task; see `Task.trainer`.

    Attributes:
        options: the task's options for training with their defaults, which its recipe shares.
        batches: makes batches of encoded examples, from them, the pipeline and what
            `options.batching` returns.
        monitored: the validation metric that selects the best epoch, the highest.
        labels: the column whose labels `from_columns` gets as names; None if there is none.
        own_json: whether `from_file` also reads JSON and Parquet, in formats of the task. Other
            tasks read them as rows in memory.
        takes_weights: whether data may have a column `weight`, for the training loss.
        may_compile: whether XLA can compile a step, with `static_shapes`.
        unused: options that the training does not read.
        report_figures: the numbers that `report` has for any data -> whether higher is better.
    """

    options: ClassVar[type[Training]] = Training
    batches: Callable[..., Batches]
    monitored: ClassVar[str] = "val_accuracy"
    labels: ClassVar[LabelColumn | None] = None
    own_json: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = False
    may_compile: ClassVar[bool] = True
    unused: ClassVar[frozenset[str]] = frozenset()
    report_figures: ClassVar[Mapping[str, bool]] = MappingProxyType({})

    @abc.abstractmethod
    def columns(self, pipeline: PipelineT) -> Sequence[Wanted]:
        """Returns the columns to read from data in memory."""

    def table(
        self, pipeline: PipelineT, data: Any, names: Mapping[str, str]
    ) -> tuple[Any, Sequence[Wanted]]:
        """Returns data in memory, and the columns to read from it; by default, `columns`.

        Args:
            pipeline: the pipeline.
            data: see `data.tables.in_memory.columns_of`.
            names: the task's column name -> the data's.
        """
        return data, self.columns(pipeline)

    @abc.abstractmethod
    def from_columns(self, pipeline: PipelineT, columns: Columns, source: Source) -> ExamplesT:
        """Makes examples from those columns; errors say that they come from `source`.

        Raises:
            BadRowsError: rows that cannot be learned from; see `on_bad_rows` of `read`.
            ValueError: anything else is wrong.
        """

    @abc.abstractmethod
    def from_file(self, pipeline: PipelineT, path: Path, columns: Mapping[str, str]) -> ExamplesT:
        """Makes examples from a file; for `columns`, see `fit`."""

    def encoded(self, pipeline: PipelineT, examples: ExamplesT) -> Any:
        """Turns examples into the input of `batches` and of their `of`."""
        return examples

    def model(self, pipeline: PipelineT, examples: ExamplesT) -> keras.Model:
        """Returns the model to train on examples, built from the layers of the pipeline's model."""
        return pipeline.training_model()

    def few_shot(self) -> "Trainer[PipelineT, ExamplesT] | None":
        """Returns how `fit` trains with `few_shot=True`; None if it cannot."""
        return None

    def check(self, pipeline: PipelineT) -> None:
        """Raises ValueError if the pipeline cannot be trained this way."""

    def trained_model(self, pipeline: PipelineT, examples: ExamplesT) -> keras.Model:
        """Returns the model to train; by default `model`, which answers examples too."""
        return self.model(pipeline, examples)

    @abc.abstractmethod
    def losses(self, pipeline: PipelineT, examples: ExamplesT, options: Any) -> Mapping[str, Any]:
        """Returns `loss`, and possibly `loss_weights`, for `model.compile`."""

    def metrics(self, pipeline: PipelineT) -> Mapping[str, Any] | None:
        """Returns `weighted_metrics` for `model.compile`."""
        return None

    def adapt_step(self, model: keras.Model, options: Any) -> None:
        """Changes the training step of the compiled model as the options say."""

    def callbacks(self) -> Sequence[keras.callbacks.Callback]:
        """Returns callbacks that add validation metrics to an epoch's logs."""
        return ()

    def held_out(self, pipeline: PipelineT, batches: Any, examples: ExamplesT) -> Batches:
        """Returns validation batches of what `model` reads; here those of `batches.of`."""
        held_out: Batches = batches.of(self.encoded(pipeline, examples))
        return held_out

    def finish(self, pipeline: PipelineT, examples: ExamplesT, options: Any) -> None:
        """Completes a pipeline that was trained on examples, before it is measured or returned."""

    def monitor(self, examples: ExamplesT) -> str:
        """Returns the metric of validation examples that selects the best epoch, the highest."""
        return self.monitored

    def answers(
        self, pipeline: PipelineT, batches: Any, examples: ExamplesT, outputs: Iterable[Any]
    ) -> Answers:
        """Returns the pipeline's answers from its model's outputs.

        Args:
            pipeline: the pipeline.
            batches: batches of all examples, in order.
            examples: the examples.
            outputs: the model's outputs for each batch; see `runs.outputs_of`.
        """
        return {}

    def answered(self, pipeline: PipelineT, batches: Any, examples: ExamplesT) -> Answers:
        """Runs the model on batches in order; returns the pipeline's answers."""
        outputs = outputs_of(self.model(pipeline, examples), batches)
        return self.answers(pipeline, batches, examples, outputs)

    def answer_scores(
        self, pipeline: PipelineT, answers: Answers, examples: ExamplesT
    ) -> Mapping[str, float]:
        """Measures answers in ways that Keras cannot."""
        return {}

    def logits(
        self, pipeline: PipelineT, batches: Any, examples: ExamplesT, outputs: Iterable[Any]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns what a temperature is fitted to; see `answers` for the arguments.

        Returns:
            The logits of each answer, (answers, classes), as `evaluation.best_temperature` takes
            them, and the index of its right class (answers,).
        """
        raise NotImplementedError(f"{type(self).__name__} has no probabilities to calibrate")

    def ask(self, pipeline: Any, examples: ExamplesT) -> Answers:
        """Returns the answers of an export to examples, as `answers` does.

        Args:
            pipeline: has the attributes of the export's pipeline, and `rows`, which takes columns
                of inputs of any signature and returns a dict per row.
            examples: the examples.
        """
        rows = pipeline.rows(self.inputs(examples))
        return {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}

    def inputs(self, examples: ExamplesT) -> Mapping[str, Sequence[Any]]:
        """Returns what the pipeline reads of examples: name of an input -> a value per row."""
        raise NotImplementedError(f"{type(self).__name__} has no report on exports")

    def report(self, pipeline: Any, answers: Answers, examples: ExamplesT) -> Report | None:
        """Returns what the task's practitioners print; None if the task has no report.

        Args:
            pipeline: the pipeline, or what `saved_model.evaluate_export` knows of an export.
            answers: from `answers` or `ask`.
            examples: the examples.
        """
        return None

    def with_targets(self, pipeline: PipelineT, batches: Any, examples: ExamplesT) -> Any:
        """Returns validation batches with targets, for the loss; here those of `batches.of`.

        None if the loss is not measured.
        """
        return batches

    def reported(self, pipeline: PipelineT, batches: Any, examples: ExamplesT) -> Report | None:
        """Returns the report on the model's answers to batches in order."""
        return self.report(pipeline, self.answered(pipeline, batches, examples), examples)

    def baseline(self, pipeline: PipelineT, examples: ExamplesT) -> Mapping[str, float]:
        """Returns scores to compare with, from the examples alone."""
        return {}

    def split(self, examples: ExamplesT, share: float) -> tuple[ExamplesT, ExamplesT]:
        """Divides examples into two parts; the second gets the share."""
        rows: Any = examples
        train, held_out = at_random(len(rows), share, f"{rows.source}: examples")
        return rows.select(train), rows.select(held_out)

    def choose(self, pipeline: PipelineT, batches: Any, examples: ExamplesT) -> None:
        """Sets what a pipeline chooses on validation data, such as thresholds, after training."""

    @property
    def calibrates(self) -> bool:
        """Whether the pipelines have probabilities, which a temperature may change."""
        return type(self).logits is not Trainer.logits

    @property
    def has_scores(self) -> bool:
        """Whether `answer_scores` measures anything."""
        return type(self).answer_scores is not Trainer.answer_scores

    @classmethod
    @functools.cache
    def fit_options(cls) -> type[Any]:
        """Returns the class of all options of `fit` for the task."""
        bases = (FitOptions,) if cls.options is Training else (cls.options, FitOptions)
        return dataclasses.make_dataclass("FitOptions", [], bases=bases, frozen=True, kw_only=True)

    def read(
        self,
        pipeline: PipelineT,
        data: Mapping[str, Any],
        columns: Mapping[str, str],
        labels_are: LabelsAre | None = None,
        *,
        weighted: bool = False,
        on_bad_rows: OnBadRows | None = None,
    ) -> list[ExamplesT]:
        """Returns the examples of each data set, with labels that are read one way in all of them.

        Args:
            pipeline: the pipeline that the examples are for.
            data: how error messages name the data -> a path, or what
                `data.tables.in_memory.columns_of` takes.
            columns: the task's column name -> the data's.
            labels_are: see `fit`.
            on_bad_rows: "drop" leaves out rows that cannot be read; "error" raises an error that
                also names this choice.
            weighted: whether examples get the weights of the column `weight`, if there is one.

        Raises:
            FileNotFoundError: a file does not exist.
            TypeError, ValueError: the data cannot be read; the message says where.
        """
        if labels_are is not None and self.labels is None:
            raise ValueError(f"labels_are={labels_are!r}: {pipeline.task} has no names of labels")
        # Only training needs them, but the names of columns may be the same for a measurement.
        reads_weights = self.takes_weights and (weighted or _WEIGHT.name in columns)
        more = [_WEIGHT] if reads_weights else []
        advice = "on_bad_rows='drop'" if on_bad_rows else ""
        with bad_rows(on_bad_rows or "error", advice=advice):
            sets = [
                self._columns(pipeline, more, value, columns, name) for name, value in data.items()
            ]
            if self.labels is not None:
                name, column = self.labels.name, self.labels
                tables = [table for table in sets if isinstance(table, _Table)]
                labelled = [(table.source, table.columns[name]) for table in tables]
                for table, names in zip(
                    tables, column.as_names(pipeline, labelled, labels_are), strict=True
                ):
                    table.columns[name] = names
            return [
                self._from_path(pipeline, part, columns, labels_are, weighted)
                if isinstance(part, Path)
                else self._from_table(pipeline, part, weighted)
                for part in sets
            ]

    def contents(self, examples: ExamplesT) -> Iterable[Content]:
        """Returns what each example asks, to count empty, repeated and contradicting ones."""
        rows: Any = examples
        return rows.contents() if hasattr(rows, "contents") else ()

    def _columns(
        self,
        pipeline: PipelineT,
        more: Sequence[Wanted],
        data: Any,
        names: Mapping[str, str],
        source_name: str,
    ) -> "_Table | Path":
        """Returns the columns of data in memory or of a file of rows, or another file's path."""
        source = Source(source_name, names=row_names(data))
        if isinstance(data, str | os.PathLike):
            path = Path(data)
            suffix = Path(compression.inner_name(path)).suffix.lower()
            if self.own_json or suffix not in _ROWS:
                return path
            format: Any = file_format(path)
            numbered = list(read_objects(path, format=format))
            check_any(numbered, path)
            source = Source(str(path), [number for number, _ in numbered])
            data = [row for _, row in numbered]
        try:
            reasons: dict[int, str] = {}
            data, wanted = self.table(pipeline, data, names)
            columns = columns_of(data, [*wanted, *more], names=names, bad_rows=reasons)
        except RowError as error:
            raise ValueError(f"{source.row(error.row)}: {error.reason}") from error
        except (TypeError, ValueError) as error:
            raise type(error)(f"{source}: {error}") from error
        size = len(reasons) + len(next(iter(columns.values())))
        return _Table(columns, _left(source, reasons, size))

    def _from_table(self, pipeline: Any, table: _Table, weighted: bool) -> Any:
        columns, source = table
        weights = columns.pop(_WEIGHT.name, None)
        while True:
            try:
                numbers = _numbers(weights, source) if weights is not None and weighted else None
                examples: Any = self.from_columns(pipeline, columns, source)
                break
            except BadRowsError as error:
                bad, size = error.reasons, len(next(iter(columns.values())))
                source = _left(source, bad, size)
                kept = [row for row in range(size) if row not in bad]
                columns = {name: [cells[row] for row in kept] for name, cells in columns.items()}
                weights = weights and [weights[row] for row in kept]
        return examples if numbers is None else dataclasses.replace(examples, weights=numbers)

    def _from_path(
        self,
        pipeline: Any,
        path: Path,
        columns: Mapping[str, str],
        labels_are: LabelsAre | None,
        weighted: bool,
    ) -> Any:
        read: Any = self._from_file(pipeline, path, columns, labels_are)
        drops = self.takes_weights and not weighted and read.weights is not None
        return dataclasses.replace(read, weights=None) if drops else read

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
        label = self.columns(pipeline)[-1].name
        chosen = {{"label": label}.get(kind, kind): name for kind, name in error.columns.items()}
        remedy = f"pass columns={chosen or {'text': '...', label: '...'}}"
        if not error.may_be_names:
            return remedy
        return (
            f"{remedy} if the row names the columns; if it is an example, read the file with "
            "data.text.load(path, header='absent') and pass its texts and labels"
        )


def _numbers(weights: Sequence[Any], source: Source) -> list[float]:
    """Returns a column of weights as numbers; BadRowsError for other values."""
    check_one_per_row(_WEIGHT.name, weights, source)
    numbers = []
    reasons = {}
    for row, weight in enumerate(weights):
        try:
            numbers.append(row_weight(weight))
        except ValueError as error:
            reasons[row] = str(error)
    check_rows(str(source), reasons)
    check_weights(numbers, str(source))
    return numbers


def _left(source: Source, reasons: Mapping[int, str], size: int) -> Source:
    """Rejects the rows that cannot be read; returns the source of the others.

    Raises:
        ValueError: no row is left of `size`.
    """
    if reasons and len(reasons) == size:
        row, reason = next(iter(reasons.items()))
        raise ValueError(f"{source.row(row)}: {reason}; no other row can be read either")
    for row, reason in reasons.items():
        reject(source.row(row), reason)
    return source.without(reasons, size) if reasons else source


def check_column_names(columns: Mapping[str, str], path: Path, names: Sequence[str]) -> None:
    """Checks the names of a file's columns; ValueError for a column that is not read."""
    for name in columns:
        if name not in names:
            raise ValueError(
                f"columns={dict(columns)} for {path}: pass names for {', '.join(names)}"
            )
