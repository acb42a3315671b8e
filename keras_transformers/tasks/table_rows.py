"""Answers the rows of tables of any kind, in bounded memory: `predict` on frames and on files."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from keras_transformers.data.bad_rows import bad_rows, reject
from keras_transformers.data.tables.in_memory import MissingColumnError, Wanted, columns_of
from keras_transformers.data.tables.kinds import Kind
from keras_transformers.files.errors import one_line
from keras_transformers.tasks.task import Task, all_tasks
from keras_transformers.tasks.texts import split_line

__all__: list[str] = []

NUM_ROWS = 1024  # whose answers are computed, or lost by a stop, together


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableAnswers:
    """Answers rows of tables with a pipeline, or with an export that has its attributes.

    Attributes:
        pipeline: the pipeline, or a `saved_model.measuring.Export`.
        columns: the task's column name -> the data's, where they differ; for .tsv and .csv without
            a row of names, its number from 0.
        probabilities: whether to add the probability of each label.
        prefix: begins the names of the columns that are added.
        batch_size: rows in one call of the graph.

    Raises:
        TypeError: the pipeline's task is unknown.
        ValueError: a name in `columns` is not one of the task's.
    """

    pipeline: Any
    columns: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    probabilities: bool = False
    prefix: str = ""
    batch_size: int = 32

    def __post_init__(self) -> None:
        names = {column.name: None for columns in self._inputs for column in columns}
        trainer = self.task.trainer()
        trained = trainer.columns(self.pipeline) if trainer is not None else []
        others = {"weight", *(column.name for column in trained)}  # `fit` takes the same names
        if unknown := [name for name in self.columns if name not in {*names, *others}]:
            raise ValueError(
                f"columns={dict(self.columns)}: no column {unknown[0]!r} is read; pass names for "
                f"{', '.join(names)}"
            )

    @property
    def task(self) -> Task[Any]:
        """The pipeline's task."""
        name, tasks = getattr(self.pipeline, "task", ""), all_tasks()
        if name not in tasks:
            what = f"a pipeline for {name}" if name else f"a {type(self.pipeline).__name__}"
            raise TypeError(
                f"{what} has no known task: pass a pipeline for {', '.join(tasks)}; "
                "keras_transformers.register adds the task of another package"
            )
        return tasks[name]

    def read(
        self, data: Any, bad: dict[int, str], inputs: Sequence[str] | None = None
    ) -> dict[str, list[Any]]:
        """Returns the columns that the task reads: name -> a cell per row that can be read.

        Args:
            data: see `data.tables.in_memory.columns_of`; a tuple may have more columns, as in
                training.
            bad: gets the number of each row that cannot be read -> what is wrong with it.
            inputs: the names of the columns to read; by default the first set that the data has.

        Raises:
            TypeError, ValueError: see `columns_of`.
        """
        sets = [x for x in self._inputs if inputs is None or {y.name for y in x} == {*inputs}]
        misses: list[MissingColumnError] = []
        for wanted in sets:
            names = {x.name: self.columns[x.name] for x in wanted if x.name in self.columns}
            if inputs is None and len(names) < len({*self.columns} & self._alternatives):
                continue  # the names are for columns of another set
            try:
                reasons: dict[int, str] = {}
                read = columns_of(_first(data, wanted), wanted, names=names, bad_rows=reasons)
            except MissingColumnError as error:
                misses.append(error)
                continue
            return self._checked(read, reasons, bad)
        if misses:
            raise misses[0]
        choices = " or ".join(", ".join(column.name for column in wanted) for wanted in sets)
        raise ValueError(f"columns={dict(self.columns)}: pass names for {choices}, not for both")

    def kinds(self, inputs: Sequence[str]) -> dict[str, Kind]:
        """Returns the columns that are added: name -> kind; see `Task.table_outputs`.

        Raises:
            ValueError: `probabilities` adds none.
        """
        kinds, plain = (
            self.task.table_outputs(self.pipeline, inputs, probabilities=probabilities)
            for probabilities in (self.probabilities, False)
        )
        if self.probabilities and kinds == plain:
            raise ValueError(
                f"probabilities=True: {self.task.name} has no labels with a probability each: "
                f"leave it out, for the columns {', '.join(plain)}"
            )
        return {f"{self.prefix}{name}": kind for name, kind in kinds.items()}

    def check_names(self, source: str, headings: Sequence[Any], kinds: Mapping[str, Kind]) -> None:
        """Raises ValueError if data has a column with the name of one that is added."""
        if twice := [name for name in kinds if name in headings]:
            names, prefix = [name.removeprefix(self.prefix) for name in kinds], "predicted_"
            while any(f"{prefix}{name}" in headings for name in names):
                prefix = f"new_{prefix}"
            example = f"{prefix}{twice[0].removeprefix(self.prefix)}"
            raise ValueError(
                f"{source} already has the column{'s'[: len(twice) - 1]} {', '.join(twice)}, which "
                f"predict adds: pass prefix={prefix!r} for {example}, or drop or rename the column"
            )

    def of_line(self, line: str) -> dict[str, Any]:
        """Returns the row of a line of text, whose columns have tabs between them.

        Raises:
            ValueError: it has too few or too many tabs.
        """
        sets = [[column.name for column in columns] for columns in self._inputs]
        names = next((names for names in sets if "text" in names), sets[0])
        cells = split_line(line, names)
        if len(cells) != len(names):
            raise ValueError(
                f"{len(cells)} texts with tabs between them, expected {', '.join(names)}"
            )
        return {self.columns.get(x, x): cell for x, cell in zip(names, cells, strict=True)}

    def answers(
        self, columns: Mapping[str, Sequence[Any]], refused: dict[int, str]
    ) -> Iterator[dict[str, list[Any]]]:
        """Yields the columns that are added, for up to `NUM_ROWS` rows at a time.

        Args:
            columns: name -> a cell per row, from `read`.
            refused: gets the number of each row that the pipeline refuses -> why. The columns lack
                these rows.
        """
        kinds = self.kinds(list(columns))
        num_rows = len(next(iter(columns.values())))
        for start in range(0, num_rows, NUM_ROWS):
            part = {name: cells[start : start + NUM_ROWS] for name, cells in columns.items()}
            rows = self._rows(part, start, refused)
            yield {name: [row[name.removeprefix(self.prefix)] for row in rows] for name in kinds}

    @property
    def _inputs(self) -> Sequence[Sequence[Wanted]]:
        return self.task.table_inputs(self.pipeline)

    @property
    def _alternatives(self) -> set[str]:
        return {column.name for columns in self._inputs for column in columns}

    def _checked(
        self, read: dict[str, list[Any]], reasons: dict[int, str], bad: dict[int, str]
    ) -> dict[str, list[Any]]:
        """Returns the rows whose cells the task can read."""
        count = len(next(iter(read.values()))) + len(reasons)
        numbers = [row for row in range(count) if row not in reasons]
        for name, cells in read.items():
            for number, cell in zip(numbers, cells, strict=True):
                if number not in reasons and (fault := self.task.cell_fault(name, cell)):
                    reasons[number] = f"{name} is {fault}"
        bad |= {row: reasons[row] for row in sorted(reasons)}
        kept = [at for at, number in enumerate(numbers) if number not in reasons]
        if len(kept) == len(numbers):
            return read
        return {name: [cells[at] for at in kept] for name, cells in read.items()}

    def _rows(
        self, columns: Mapping[str, Sequence[Any]], start: int, refused: dict[int, str]
    ) -> Sequence[Mapping[str, Any]]:
        task, pipeline = self.task, self.pipeline
        try:
            return task.table_rows(pipeline, columns, batch_size=self.batch_size)
        except ValueError as error:
            rows: list[Mapping[str, Any]] = []
            reasons = {}
            count = len(next(iter(columns.values())))
            for row in range(count):
                one = {name: cells[row : row + 1] for name, cells in columns.items()}
                try:
                    rows += task.table_rows(pipeline, one, batch_size=1)
                except ValueError as reason:
                    reasons[start + row] = one_line(reason)
            if not reasons or (count == NUM_ROWS and not rows and len({*reasons.values()}) == 1):
                raise error  # it is not about single rows
            refused |= reasons
            return rows


def check_all_read(reasons: Mapping[str, str]) -> None:
    """Raises ValueError if rows cannot be read.

    Args:
        reasons: the place of a row -> what is wrong with it, and the remedy.
    """
    with bad_rows():
        for place, reason in reasons.items():
            reject(place, reason)


def _first(data: Any, wanted: Sequence[Wanted]) -> Any:
    """Returns data without the columns after those wanted, if columns have an order, not names."""
    if isinstance(data, tuple):
        return data[: len(wanted)]
    if isinstance(data, list) and data and isinstance(data[0], tuple | list):
        return [row[: len(wanted)] if isinstance(row, tuple | list) else row for row in data]
    return data
