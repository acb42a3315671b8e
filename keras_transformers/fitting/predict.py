"""Answers the rows of a table in one call: from a frame to a frame, from a file to a file."""

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, overload

import tensorflow as tf

from keras_transformers.data.tables.appending import (
    dataset_with_columns,
    with_columns,
)
from keras_transformers.data.tables.in_memory import RowError, elements, headings
from keras_transformers.data.tables.kinds import Kind
from keras_transformers.dependencies import tables
from keras_transformers.dependencies.tables import row_names
from keras_transformers.fitting.table_files import model_digest, predict_table
from keras_transformers.options import named
from keras_transformers.ranges import PositiveInt, check_ranges
from keras_transformers.runs.row_progress import counted_rows
from keras_transformers.tasks.pipeline import Pipeline
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.table_rows import NUM_ROWS, TableAnswers, check_all_read

__all__ = ["predict"]

TableT = TypeVar("TableT")
OutputT = TypeVar("OutputT", bound=str | os.PathLike[str])

_ADVICE = {
    "pass data=, such as a DataFrame": ("x", "inputs", "dataset", "test_dataset", "test_data"),
    "use columns=, from the task's column to the data's": (
        *("column_mapping", "text_column", "input_columns", "column"),
    ),
    "use output=, the file to write": ("output_file", "output_dir", "output_path", "path"),
    "use quiet=True to hide the progress": ("verbose", "show_progress_bar", "progress"),
    "use probabilities=True, for a column per label": (
        *("return_all_scores", "predict_proba", "return_probabilities"),
    ),
    "pass pipeline.with_options(...) for options of the pipeline": (
        *("top_k", "num_beams", "temperature", "max_length", "thresholds", "prompt_name"),
    ),
    "use prefix=, which begins the names of the columns that are added": (
        *("suffix", "output_column", "output_columns"),
    ),
}


@overload
def predict(
    pipeline: Pipeline,
    data: str | os.PathLike[str],
    *,
    columns: Mapping[str, str | int] | None = None,
    probabilities: bool = False,
    prefix: str = "",
    output: OutputT,
    batch_size: PositiveInt = 32,
    quiet: bool = False,
) -> OutputT: ...
@overload
def predict(
    pipeline: Pipeline,
    data: tuple[Any, ...],
    *,
    columns: Mapping[str, str | int] | None = None,
    probabilities: bool = False,
    prefix: str = "",
    batch_size: PositiveInt = 32,
    quiet: bool = False,
) -> tuple[Any, ...]: ...
@overload
def predict(
    pipeline: Pipeline,
    data: list[Any],
    *,
    columns: Mapping[str, str | int] | None = None,
    probabilities: bool = False,
    prefix: str = "",
    batch_size: PositiveInt = 32,
    quiet: bool = False,
) -> list[Any]: ...
@overload
def predict(
    pipeline: Pipeline,
    data: dict[Any, Any],
    *,
    columns: Mapping[str, str | int] | None = None,
    probabilities: bool = False,
    prefix: str = "",
    batch_size: PositiveInt = 32,
    quiet: bool = False,
) -> dict[Any, Any]: ...
@overload
def predict(
    pipeline: Pipeline,
    data: TableT,
    *,
    columns: Mapping[str, str | int] | None = None,
    probabilities: bool = False,
    prefix: str = "",
    batch_size: PositiveInt = 32,
    quiet: bool = False,
) -> TableT: ...
@named(_ADVICE)
def predict(
    pipeline: Pipeline,
    data: Any,
    *,
    columns: Mapping[str, str | int] | None = None,
    probabilities: bool = False,
    prefix: str = "",
    output: str | os.PathLike[str] | None = None,
    batch_size: PositiveInt = 32,
    quiet: bool = False,
) -> Any:
    """Answers each row of a table, and returns the table with the answers as more columns.

    Columns are found by name, as in `fit`; columns of labels are not read. The tasks add:

    - classification, image_classification: label, probability
    - multi_label_classification: labels
    - regression: score; next_sentence: probability
    - tagging: entities of a text, or labels and scores of words
    - question_answering: answer, score, start, end, null_score
    - multiple_choice: choice, choice_index, probability
    - zero_shot_classification: label, label_index, probability
    - embedding: embedding; word_embedding: tokens, vectors
    - sparse_embedding: indices, weights, tokens
    - reranking: the score of each row's text_b, or scores and order of its list of documents
    - search: ids, texts and scores of the hits
    - translation: translation, score
    - generation: generation, num_new_tokens, log_probability, finished
    - fill_mask: tokens, probabilities

    Args:
        pipeline: a pipeline from `load`; for other options, such as `num_beams`, pass
            `pipeline.with_options(...)`.
        data: what `fit` takes: a pandas or polars DataFrame, an Arrow table, a split of the
            `datasets` library, columns as a mapping or a tuple, a list of rows, a `tf.data.Dataset`
            of rows; or the path or URL of a file: CSV, TSV, JSON Lines, Parquet, or one text per
            line, each also compressed; SQuAD's JSON; a folder of images.
        columns: the task's column name -> the data's, where they differ; for CSV and TSV whose
            first row is an example, its number from 0.
        probabilities: whether to add the probability of each label: `probability_` and its name; of
            multiple_choice, the list `probabilities`.
        prefix: begins the names of the columns that are added, such as "predicted_", if the data
            has columns of those names.
        output: for a file, the file to write, whose name ends in .csv, .tsv, .jsonl or .parquet.
            Lists in CSV and TSV are JSON. A stopped run resumes if it is called again.
        batch_size: rows in one call of the graph; it does not change the answers.
        quiet: whether to show no progress.

    Returns:
        The data with more columns, of the same type; a frame keeps its index. Rows of one value
        become tuples. For a file, `output`.

    Raises:
        FileExistsError: the output exists.
        FileNotFoundError: a file does not exist.
        TypeError: the data has another type, or there is no such option.
        ValueError: a column is missing, or exists already; rows cannot be read or answered, all of
            which the message names; the data has no rows; a file has no `output`; or another
            run was stopped at this output.

    Example:
        tickets = kt.predict(classify, tickets, columns={"text": "body"}, prefix="predicted_")
        kt.predict(classify, "tickets.parquet", output="answered.parquet")
    """
    check_ranges(predict, {"batch_size": batch_size})
    answers = TableAnswers(
        pipeline=pipeline,
        columns=columns or {},
        probabilities=probabilities,
        prefix=prefix,
        batch_size=batch_size,
    )
    if isinstance(data, str | os.PathLike):
        if output is None:
            raise ValueError(
                f"{os.fspath(data)} is a file: pass output=, the file to write, such as "
                "output='answers.csv'"
            )
        model = functools.partial(model_digest, pipeline)
        predict_table(answers, os.fspath(data), os.fspath(output), model=model, quiet=quiet)
        return output
    if output is not None:
        raise ValueError(
            f"output={os.fspath(output)!r} is for data in a file: write what predict returns, such "
            "as with to_csv, or pass the path of a file"
        )
    if isinstance(data, tf.data.Dataset):
        rows = elements(data)
        added, kinds = _answered(answers, rows, quiet=quiet)
        return dataset_with_columns(data.element_spec, rows, added, kinds)
    return with_columns(data, *_answered(answers, data, quiet=quiet))


def _answered(
    answers: TableAnswers, data: Any, *, quiet: bool
) -> tuple[dict[str, Sequence[Any]], dict[str, Kind]]:
    """Returns the columns to add to data in memory, and their kinds."""
    source = Source("data", names=row_names(data))
    # A table's cells become values of Python part by part.
    parts = tables.parts(data, NUM_ROWS) if tables.is_table(data) else [data]
    inputs: list[str] | None = None
    reasons: dict[int, str] = {}
    num_rows = 0
    for part in parts:
        bad: dict[int, str] = {}
        columns = _read(answers, source, part, num_rows, inputs, bad)
        inputs = list(columns)
        reasons |= {num_rows + row: reason for row, reason in bad.items()}
        num_rows += len(bad) + len(columns[inputs[0]])
    kinds = answers.kinds(inputs or ())
    answers.check_names(str(source), headings(data), kinds)
    check_all_read({source.row(row): reason for row, reason in reasons.items()})
    added: dict[str, list[Any]] = {name: [] for name in kinds}
    start = 0
    with counted_rows(num_rows, quiet=quiet) as advance:
        for part in parts:
            if len(parts) > 1:
                columns = _read(answers, source, part, start, inputs, {})
            refused: dict[int, str] = {}
            for cells in answers.answers(columns, refused):
                for name, values in cells.items():
                    added[name] += values
                advance(len(next(iter(cells.values()))))
            reasons |= {start + row: reason for row, reason in refused.items()}
            start += len(columns[next(iter(columns))])
    check_all_read({source.row(row): reason for row, reason in reasons.items()})
    return dict(added), kinds


def _read(
    answers: TableAnswers,
    source: Source,
    part: Any,
    start: int,
    inputs: Sequence[str] | None,
    bad: dict[int, str],
) -> dict[str, list[Any]]:
    """Returns the columns of a part of data in memory whose rows begin at `start`."""
    try:
        return answers.read(part, bad, inputs)
    except RowError as error:
        raise ValueError(f"{source.row(start + error.row)}: {error.reason}") from error
    except (TypeError, ValueError) as error:
        raise type(error)(f"{source}: {error}") from error
