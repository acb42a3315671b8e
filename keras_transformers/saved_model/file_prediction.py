"""Runs an export on files of texts: one file of answers per file, resumable, on any engine.

    OUTPUT/a.jsonl                  the answers to the rows of a.txt or a.txt.gz
    OUTPUT/_run/export.json         which export answered
    OUTPUT/_run/files/a.json        how far: the file's SHA-256, how it was read, and counts
    OUTPUT/_run/unreadable.jsonl    lines without an answer: file, line, reason

Line n of a file of answers is a JSON object that answers row n of the file; it is `{}` if that row
could not be read. Rows are lines, or what is below the header of a table.
"""

import dataclasses
import functools
import hashlib
import itertools
import json
import os
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_transformers import files
from keras_transformers.files import compression
from keras_transformers.jobs import places
from keras_transformers.jobs.engines import Engine, Local, Stage
from keras_transformers.saved_model.prediction import Predictor
from keras_transformers.saved_model.text_rows import TextRows
from keras_transformers.saved_model.versions import resolve

__all__ = ["FilesReport", "predict_files"]

_RUN = "_run"
_NOT_ANSWERS = "assets.extra/"  # such as warm-up requests


@dataclasses.dataclass(frozen=True, kw_only=True)
class FilesReport:
    """Counts of files and their lines.

    Attributes:
        num_files: files of texts.
        num_kept_files: files that an earlier run had finished.
        num_lines: lines of all files.
        num_unreadable_lines: lines without an answer.
    """

    num_files: int
    num_kept_files: int
    num_lines: int
    num_unreadable_lines: int

    def __str__(self) -> str:
        where = f", listed in {_RUN}/unreadable.jsonl" if self.num_unreadable_lines else ""
        return (
            f"{self.num_files} files ({self.num_kept_files} finished before), {self.num_lines} "
            f"lines, {self.num_unreadable_lines} of them unreadable{where}"
        )


def predict_files(
    path: str | os.PathLike[str],
    patterns: Sequence[str],
    output: str | os.PathLike[str],
    *,
    engine: Engine | None = None,
    batch_size: int = 32,
    rows: TextRows = TextRows(),  # noqa: B008  it cannot change
) -> FilesReport:
    """Runs an export on each row of files, and writes one file of JSON lines per file.

    Files of answers appear complete or not at all. After an interruption, call this again with the
    same arguments, on any engine: files that are finished and have not changed are kept.

    Args:
        path: an export, or the BASE of its versions, of which the newest is used. It must take
            texts. Also a URL, see `jobs.places`.
        patterns: files, plain or compressed; paths or URLs in which `*` stands for any characters.
            Tables are TSV, CSV, JSON Lines or Parquet. Other files are UTF-8 text with one text per
            line; for an export of pairs a line is `text<TAB>text_b`; for one of choices,
            `text<TAB>choice<TAB>choice` with any number of choices.
        output: a missing or empty folder, or one with answers of the same export; or a URL.
        engine: what runs the work, `jobs.Local(num_processes)` or `jobs.Beam(options)`; by
            default this process.
        batch_size: rows in one call of the graph.
        rows: the columns of tables, and how files are read.

    Raises:
        FileNotFoundError: there is no export, or a pattern matches no file.
        FileExistsError: `output` contains other files.
        ValueError: the export does not take texts or cannot be loaded, two files have the same
            name, `output` has answers of another export, a table is malformed or lacks the columns,
            or compressed data are damaged.
        MissingExtraError: Beam, or a package for a URL, is needed but not installed.

    Example:
        predict_files("saved_models/fill_mask_en", ["texts/*.txt.gz"], "answers")
    """
    texts = _find(patterns)
    output = os.fspath(output).rstrip("/")
    job = _start(os.fspath(path), output, batch_size, rows)
    there = set(places.names(output))
    tasks = [(text, job.is_finished(name, there)) for name, text in texts.items()]
    predict = Stage("predict", functools.partial(_predict_file, job), tasks)
    (engine or Local())([predict], f"{output}/{_RUN}")
    records = [places.read(job.record(name)) for name in texts]
    unreadable = [row for record in records for row in record["unreadable"]]
    with places.stored(f"{output}/{_RUN}/unreadable.jsonl") as file:
        files.write_lines(file, (json.dumps(row, ensure_ascii=False) for row in unreadable))
    return FilesReport(
        num_files=len(records),
        num_kept_files=sum(record["run"] != job.run for record in records),
        num_lines=sum(record["num_lines"] for record in records),
        num_unreadable_lines=len(unreadable),
    )


@dataclasses.dataclass(frozen=True)
class _Job:
    """The data that a worker needs to answer a file."""

    export: places.Place  # a version folder
    output: places.Place
    batch_size: int
    rows: TextRows
    run: str  # differs from that of earlier runs

    def answers(self, name: str) -> places.Place:
        return f"{self.output}/{name}.jsonl"

    def record(self, name: str) -> places.Place:
        return f"{self.output}/{_RUN}/files/{name}.json"

    def is_finished(self, name: str, there: set[str]) -> bool:
        """Returns whether a file has answers, even if possibly to other lines."""
        return {f"{name}.jsonl", f"{_RUN}/files/{name}.json"} <= there


def _find(patterns: Sequence[str]) -> dict[str, places.Place]:
    """Returns the name of each file's answers -> the file."""
    first: dict[str, places.Place] = {}
    for pattern in patterns:
        for place in places.matches(pattern):
            name = _name(place)
            if first.setdefault(name, place) != place:
                raise ValueError(
                    f"{first[name]} and {place} would have the same file of answers, {name}.jsonl: "
                    "rename one, or write them to separate folders"
                )
    return first


def _name(place: places.Place) -> str:
    return compression.without_suffix(place.rpartition("/")[2]).removesuffix(".txt")


def _start(path: places.Place, output: places.Place, batch_size: int, rows: TextRows) -> _Job:
    """Checks the export and the output folder, and records the export in the folder."""
    path = path.rstrip("/")
    with places.fetched_folder(path) as local:
        version = resolve(local)
        inside = version.relative_to(local).as_posix()
        export = path if inside == "." else f"{path}/{inside}"
        identity = {"export": export, "sha256": digest_of_answers(version)}
    job = _Job(export, output, batch_size, rows, uuid.uuid4().hex)
    there = places.names(output)
    if there and f"{_RUN}/export.json" not in there:
        raise FileExistsError(
            f"{output} contains files, but no {_RUN}/export.json: use a new or empty folder"
        )
    if there:
        before = places.read(f"{output}/{_RUN}/export.json")
        if before.get("sha256") != identity["sha256"]:
            raise ValueError(
                f"{output} has answers of another export, {before.get('export')}: use another "
                "folder, or remove this one"
            )
    if not _predictor(export, job.run).text_names:
        raise ValueError(
            f"{export} does not take texts; `keras-transformers show` lists its inputs"
        )
    if not there:
        places.write(f"{output}/{_RUN}/export.json", identity)
    return job


def _predict_file(job: _Job, task: tuple[places.Place, bool]) -> Mapping[str, int]:
    """Answers a file, unless it is finished and unchanged.

    Args:
        job: the job.
        task: the file, and whether it has answers.

    Returns:
        Counts of what was done now.

    Raises:
        ValueError: it cannot be read, or the export rejects a row.
    """
    place, is_finished = task
    name = _name(place)
    with places.fetched(place) as text:
        # The way of reading is recorded only if it is not the default: older runs did not record
        # it.
        read = {} if job.rows == TextRows() else {"rows": dataclasses.asdict(job.rows)}
        key = {"sha256": _digest(text), **read}
        if is_finished and _key(places.read(job.record(name))) == key:
            return {"num_kept_files": 1}
        predictor = _predictor(job.export, job.run)
        unreadable: list[dict[str, Any]] = []
        num_lines = 0
        # In a separate folder, so that a killed process leaves no partial file among the others.
        with (
            places.stored(job.answers(name), scratch_folder=f"{job.output}/{_RUN}/files") as path,
            path.open("w", encoding="utf-8", newline="\n") as answers,
        ):
            lines = job.rows.read(text, predictor.text_names)
            while batch := list(itertools.islice(lines, job.batch_size)):
                try:
                    rows = _answers(predictor, [fields for fields, reason in batch if not reason])
                except ValueError as error:
                    where = f"{place}:{num_lines + 1}-{num_lines + len(batch)}"
                    raise ValueError(f"{where}: {error}") from error
                for _, reason in batch:
                    num_lines += 1
                    if reason:
                        unreadable.append({"file": place, "line": num_lines, "reason": reason})
                    row = {} if reason else next(rows)
                    answers.write(json.dumps(row, ensure_ascii=False) + "\n")
    record = {"file": place, **key, "run": job.run, "num_lines": num_lines}
    places.write(job.record(name), record | {"unreadable": unreadable})
    return {
        "num_files": 1,
        "num_lines": num_lines,
        "num_unreadable_lines": len(unreadable),
    }


def _key(record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a file's state, from which to tell whether its answers are still valid."""
    return {name: record[name] for name in ("sha256", "rows") if name in record}


def _answers(predictor: Predictor, rows: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
    columns = {name: [row[i] for row in rows] for i, name in enumerate(predictor.text_names)}
    return iter(predictor(columns, batch_size=max(1, len(rows))))


_loading = threading.Lock()  # Beam's workers have threads, which share one export


def _predictor(export: places.Place, run: str) -> Predictor:
    with _loading:
        return _load(export, run)


@functools.lru_cache(maxsize=1)
def _load(export: places.Place, run: str) -> Predictor:
    """Loads an export once per run and process, because its files may change between runs."""
    with places.fetched_folder(export) as folder:
        return Predictor(folder)


def digest_of_answers(version: Path) -> str:
    """Returns a hash of the export's files that determine its answers."""
    digest = hashlib.sha256()
    for path, kind in files.entries(version):
        name = path.relative_to(version).as_posix()
        if kind == "file" and not name.startswith(_NOT_ANSWERS):
            digest.update(f"{name} {_digest(path)}\n".encode())
    return digest.hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
