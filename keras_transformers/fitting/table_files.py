"""Answers the rows of a file and writes them with their answers to another, resumably.

a.csv                     the rows, with the answers as more columns; complete, or not there
a.csv.parts/job.json      of a stopped run: what it answers
a.csv.parts/000007.jsonl  the answers to the eighth part of the rows
"""

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformers.data.tables.files import (
    NumberedRow,
    is_table,
    output_format,
    parts,
    read_rows,
    row_schema,
    table_writer,
)
from keras_transformers.data.tables.in_memory import NO_ROWS, MissingColumnError, RowError
from keras_transformers.data.tables.kinds import plain
from keras_transformers.data.tables.reading import file_format
from keras_transformers.files import read_lines
from keras_transformers.files.reading import parse_json
from keras_transformers.jobs import places
from keras_transformers.runs.resume.folder_lock import lock_folder
from keras_transformers.runs.row_progress import counted_rows
from keras_transformers.tasks.pipeline import Pipeline
from keras_transformers.tasks.table_rows import NUM_ROWS, TableAnswers, check_all_read

__all__: list[str] = []

_JOB = "job.json"


def predict_table(
    answers: TableAnswers,
    path: places.Place,
    output: places.Place,
    *,
    model: Callable[[], str],
    quiet: bool = False,
    delimiter: str = "auto",
    encoding: str = "utf-8",
) -> int:
    """Answers the rows of a file and writes them with their answers; returns how many there are.

    All rows are checked before the first is answered. A stopped run goes on where it was when it is
    called again with the same file, model and options.

    Args:
        answers: what answers rows.
        path: the file, or its URL.
        output: the file to write, or its URL.
        model: returns what identifies the model.
        quiet: whether to show no progress.
        delimiter: of .csv and .tsv; see `data.tables.reading.read_table`.
        encoding: of text; see `files.read_lines`.

    Raises:
        FileExistsError: the output exists.
        FileNotFoundError: the file does not exist.
        ValueError: the file cannot be read, lacks a column, or has one that is added; rows cannot
            be read or answered, all of which the message names; or another run was stopped at this
            output.
    """
    format = output_format(output)
    numbered = {at: name for name, at in answers.columns.items() if isinstance(at, int)}
    if numbered:
        names_only = {x: y for x, y in answers.columns.items() if not isinstance(y, int)}
        answers = dataclasses.replace(answers, columns=names_only)
    if places.exists(output):
        raise FileExistsError(f"{output} exists: remove it, or choose another name")
    with places.fetched(path) as file, contextlib.ExitStack() as stack:

        def rows() -> Iterator[NumberedRow]:
            in_format = answers.task.file_rows(file)
            if in_format is not None:
                return enumerate(in_format, start=1)
            return read_rows(
                file,
                answers.of_line,
                numbered=numbered,
                delimiter=delimiter,
                encoding=encoding,
            )

        inputs, names, num_rows, digest = _surveyed(answers, file, rows())
        kinds = answers.kinds(inputs)
        answers.check_names(str(file), names, kinds)
        schema = row_schema(file, rows(), NUM_ROWS) if format == "parquet" else None
        scratch = f"{output}.parts"
        job = {
            "sha256": digest,
            "delimiter": delimiter,
            "encoding": encoding,
            "model": model(),
            "inputs": list(inputs),
            "columns": dict(answers.columns),
            "adds": list(kinds),
        }
        lock = _start(scratch, job, output)
        there = set(places.names(scratch))
        refused: dict[str, str] = {}
        advance = stack.enter_context(counted_rows(num_rows, quiet=quiet))
        for index, part in enumerate(parts(rows(), NUM_ROWS)):
            if (name := f"{index:06}.jsonl") not in there:
                _answer(answers, file, part, inputs, f"{scratch}/{name}", refused)
            advance(len(part))
        check_all_read(refused)
        with (
            places.stored(output) as path_to_write,
            table_writer(path_to_write, format, names, kinds, schema) as write,
        ):
            for index, part in enumerate(parts(rows(), NUM_ROWS)):
                cells = _cells(f"{scratch}/{index:06}.jsonl")
                write([row for _, row in part], {name: cells[name] for name in kinds})
        del lock
        places.remove(scratch)
    return num_rows


def model_digest(pipeline: Pipeline) -> str:
    """Returns a digest of the weights and options that decide a pipeline's answers."""
    digest = hashlib.sha256(json.dumps(pipeline.config(), sort_keys=True, default=str).encode())
    for weights in pipeline.model.get_weights():
        digest.update(np.ascontiguousarray(weights).tobytes())
    return digest.hexdigest()


def _surveyed(
    answers: TableAnswers, file: Path, rows: Iterable[NumberedRow]
) -> tuple[list[str], list[str], int, str]:
    """Checks all rows.

    Returns:
        The names of the columns that are read, those of all columns, the number of rows, and their
        digest.
    """
    digest = hashlib.sha256()
    inputs: list[str] | None = None
    names: dict[str, None] = {}
    reasons: dict[str, str] = {}
    num_rows = 0
    for part in parts(rows, NUM_ROWS):
        numbers = [number for number, _ in part]
        bad: dict[int, str] = {}
        inputs = list(_read(answers, file, part, inputs, bad))
        reasons |= {f"{file}:{numbers[row]}": reason for row, reason in bad.items()}
        names |= dict.fromkeys(name for _, row in part for name in row)
        digest.update(json.dumps([row for _, row in part], default=str).encode())
        num_rows += len(part)
    if inputs is None:
        raise ValueError(f"{file}: {NO_ROWS}")
    check_all_read(reasons)
    return inputs, list(names), num_rows, digest.hexdigest()


def _read(
    answers: TableAnswers,
    file: Path,
    part: Sequence[NumberedRow],
    inputs: Sequence[str] | None,
    bad: dict[int, str],
) -> dict[str, list[Any]]:
    try:
        return answers.read([row for _, row in part], bad, inputs)
    except RowError as error:
        raise ValueError(f"{file}:{part[error.row][0]}: {error.reason}") from error
    except MissingColumnError as error:
        is_without_names = is_table(file) and file_format(file) in ("csv", "tsv")
        more = ", or its number, from 0, if the first row is an example" if is_without_names else ""
        raise ValueError(f"{file}: {error}{more}") from error
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def _start(scratch: places.Place, job: dict[str, Any], output: places.Place) -> object:
    """Creates the folder of parts, or checks that it is of the same job; returns its lock."""
    if places.exists(f"{scratch}/{_JOB}"):
        before = places.read(f"{scratch}/{_JOB}")
        if other := [name for name, value in job.items() if before.get(name) != value]:
            raise ValueError(
                f"{scratch} has answers of a run that was stopped, with another "
                f"{', '.join(other)}: write to another file than {output}, or remove that folder"
            )
    elif any(not name.startswith(".") for name in places.names(scratch)):
        raise FileExistsError(
            f"{scratch} has other files, where the answers of {output} are collected: remove it, "
            "or write to another file"
        )
    else:
        places.write(f"{scratch}/{_JOB}", job)
    return None if places.is_url(scratch) else lock_folder(scratch)


def _answer(
    answers: TableAnswers,
    file: Path,
    part: Sequence[NumberedRow],
    inputs: Sequence[str],
    place: places.Place,
    refused: dict[str, str],
) -> None:
    """Writes the answers to a part, unless rows are refused."""
    reasons: dict[int, str] = {}
    (columns,) = answers.answers(_read(answers, file, part, inputs, {}), reasons)
    refused |= {f"{file}:{part[row][0]}": reason for row, reason in reasons.items()}
    if reasons:
        return
    with places.stored(place) as path, path.open("w", encoding="utf-8", newline="\n") as lines:
        for cells in zip(*columns.values(), strict=True):
            row = dict(zip(columns, map(plain, cells), strict=True))
            lines.write(json.dumps(row, ensure_ascii=False) + "\n")


def _cells(place: places.Place) -> dict[str, list[Any]]:
    """Returns the answers to a part: name of a column -> cells."""
    with places.fetched(place) as path:
        rows = [parse_json(line, f"{place}:{n}") for n, line in enumerate(read_lines(path), 1)]
    return {name: [row[name] for row in rows] for name in rows[0]}
