"""Reads the official files of the GLUE tasks, and writes files for submission.

Wang et al. 2018, arXiv:1804.07461, https://gluebenchmark.com. All files are tab-separated without
quoting: a quotation mark is text. SICK (Marelli et al. 2014) adds two more tasks, and `rte` can
also be read from the files of the PASCAL challenges RTE-1 to RTE-3.
"""

import dataclasses
import logging
import math
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from keras_transformers.data.tables.reading import numbered_lines
from keras_transformers.data.text.examples import Examples
from keras_transformers.files import check_new, write_lines
from keras_transformers.files.compression import check_members, compressed_names

__all__ = [
    "GlueTask",
    "glue_file",
    "glue_task",
    "load_glue",
    "load_rte_challenge",
    "write_submission",
]

_logger = logging.getLogger(__name__)

Part = Literal["train", "dev", "test", "dev_matched", "dev_mismatched", "test_matched",
               "test_mismatched"]  # fmt: skip

_BINARY = ("0", "1")
_ENTAILED = ("entailment", "not_entailment")
_NLI = ("contradiction", "entailment", "neutral")  # the order of google-research/bert


@dataclasses.dataclass(frozen=True)
class GlueTask:
    """The file format and the metrics of a task.

    Attributes:
        name: our name for the task.
        title: GLUE's name for the folder and, except for MNLI, for the file to submit.
        text: header name of the text column.
        text_b: header name of the column of second texts, or None.
        label: header name of the label column.
        labels: labels in the order of their ids; empty for regression.
        limits: lowest and highest score, for regression.
        metrics: names in `evaluation.glue.METRICS`.
        columns: column names if the labelled files have no header (CoLA); else empty.
    """

    name: str
    title: str
    text: str
    text_b: str | None
    label: str
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    columns: tuple[str, ...] = ()
    limits: tuple[float, float] = (-math.inf, math.inf)

    @property
    def is_regression(self) -> bool:
        """Whether the labels are scores."""
        return not self.labels

    def submission_name(self, part: Part = "test") -> str:
        """Returns the name that GLUE requires for the file of predictions for a part.

        Raises:
            ValueError: the task has no such test part; MNLI has two, the others one.
        """
        suffixes = {"test_matched": "-m", "test_mismatched": "-mm"}
        expected = tuple(suffixes) if self.name == "mnli" else ("test",)
        if part not in expected:
            raise ValueError(f"{self.name}: part {part!r}, expected one of {expected}")
        return f"{self.title}{suffixes.get(part, '')}.tsv"


TASKS: dict[str, GlueTask] = {
    task.name: task
    for task in [
        GlueTask("cola", "CoLA", "sentence", None, "label", _BINARY, ("matthews",),
                 columns=("source", "label", "mark", "sentence")),
        GlueTask("sst2", "SST-2", "sentence", None, "label", _BINARY, ("accuracy",)),
        GlueTask("mrpc", "MRPC", "#1 String", "#2 String", "Quality", _BINARY, ("accuracy", "f1")),
        GlueTask("qqp", "QQP", "question1", "question2", "is_duplicate", _BINARY,
                 ("accuracy", "f1")),
        GlueTask("stsb", "STS-B", "sentence1", "sentence2", "score", (), ("pearson", "spearman"),
                 limits=(0, 5)),
        GlueTask("mnli", "MNLI", "sentence1", "sentence2", "gold_label", _NLI, ("accuracy",)),
        GlueTask("qnli", "QNLI", "question", "sentence", "label", _ENTAILED, ("accuracy",)),
        GlueTask("rte", "RTE", "sentence1", "sentence2", "label", _ENTAILED, ("accuracy",)),
        GlueTask("wnli", "WNLI", "sentence1", "sentence2", "label", _BINARY, ("accuracy",)),
        GlueTask("ax", "AX", "sentence1", "sentence2", "label", _NLI, ("matthews",)),
        GlueTask("sick_relatedness", "SICK", "sentence_A", "sentence_B", "relatedness_score", (),
                 ("pearson", "spearman"), limits=(1, 5)),
        GlueTask("sick_entailment", "SICK", "sentence_A", "sentence_B", "entailment_judgment",
                 ("CONTRADICTION", "ENTAILMENT", "NEUTRAL"), ("accuracy",)),
    ]
}  # fmt: skip


def glue_task(name: str) -> GlueTask:
    """Returns the task of that name.

    >>> glue_task("mrpc").metrics
    ('accuracy', 'f1')

    Raises:
        ValueError: there is no such task.
    """
    if name not in TASKS:
        raise ValueError(f"there is no task {name!r}; the tasks are {', '.join(TASKS)}")
    return TASKS[name]


def glue_file(name: str, folder: str | Path, part: Part) -> Path:
    """Finds the official file of a part of a task in a folder of all GLUE tasks.

    >>> glue_file("mnli", "glue", "dev_matched")  # doctest: +SKIP
    PosixPath('glue/MNLI/dev_matched.tsv')

    Raises:
        FileNotFoundError: the file does not exist, neither plain nor compressed.
        ValueError: there is no such task.
    """
    task = glue_task(name)
    place = ("diagnostic", "diagnostic") if name == "ax" else (task.title, part)
    path = Path(folder) / place[0] / f"{place[1]}.tsv"
    for candidate in (path, *compressed_names(path)):
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(
        f"{path}: no such file, nor one compressed, such as {path.name}.gz; check the folder and "
        "part"
    )


def load_glue(
    name: str,
    path: str | Path,
    *,
    labelled: bool = True,
    malformed: Literal["refuse", "skip"] = "refuse",
) -> Examples:
    """Reads an official file of a task, plain or compressed.

    The labels of regression tasks are numbers spelled as in the file; `ScoredTextBatches` and
    `regression.scores` parse them.

    Args:
        name: name of the task.
        path: the file; for MRPC also the original msr_paraphrase_train.txt.
        labelled: False for test files, whose labels are not public.
        malformed: what to do with rows of another number of columns than the first (QQP has a few):
            "refuse" raises a ValueError, "skip" logs a warning with their line numbers.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: there is no such task; the header lacks a column; there is a header but none is
            expected (CoLA's labelled files); a label is unknown; a score is not a number or out of
            range; all labels are the same; there are no examples. The message names the file and
            the line.
    """
    task = glue_task(name)
    rows = list(_rows(path, malformed))
    if not rows:
        raise ValueError(f"{path}: no examples; the file is empty")
    if task.columns and labelled:
        names = list(task.columns)
        _check_no_header(path, rows[0], task)
    else:
        names = rows.pop(0)[1]
    wanted = [task.text, *([task.text_b] if task.text_b else [])]
    wanted += [task.label] if labelled else []
    at = [_position(path, names, column, wanted) for column in wanted]
    if not rows:
        raise ValueError(f"{path}: no examples; the file has only a header")
    cells = [[row[i] for i in at] for _, row in rows]
    labels = [row[-1].strip() for row in cells] if labelled else None
    if labels is not None:
        _check_labels(path, [number for number, _ in rows], labels, task)
    return Examples(
        [row[0] for row in cells],
        [row[1] for row in cells] if task.text_b else None,
        labels,
        str(path),
    )


def load_rte_challenge(
    path: str | Path,
    *,
    files: Sequence[str] = ("rte1_dev", "rte1_test", "rte2_dev", "rte2_test", "rte3_dev"),
) -> Examples:
    """Reads text pairs of the PASCAL challenges from NLTK's zip of XML files, labelled like `rte`.

    GLUE's RTE consists of RTE-1, 2, 3 and 5. Runs of white space become single spaces.

    Args:
        path: NLTK's rte.zip.
        files: names of the files without `rte/` and `.xml`; the default leaves out rte3_test, for
            testing.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not a zip or lacks one of `files`, a file is not XML, or a pair
            lacks a text or has an unknown label. The message names the file, and the line or pair.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; check the path")
    rows: list[tuple[str, str, str]] = []
    try:
        with zipfile.ZipFile(path) as archive:
            check_members(Path(path), archive)
            for name in files:
                member = f"rte/{name}.xml"
                if member not in archive.namelist():
                    raise ValueError(f"{path}: no {member} in it, just {archive.namelist()}")
                rows += _pairs(f"{path}:{member}", archive.read(member))
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path}: not a zip file ({error}): fetch it again") from error
    return Examples(
        [text for text, _, _ in rows],
        [hypothesis for _, hypothesis, _ in rows],
        [label for _, _, label in rows],
        f"{path}[{', '.join(files)}]",
    )


def write_submission(name: str, predictions: Sequence[str | float], path: str | Path) -> None:
    """Writes predictions for a test file atomically, in GLUE's format.

    Each line is `index<TAB>prediction`, as is the header; indices start at 0. To submit, put the
    files of all tasks, named by `GlueTask.submission_name`, into one zip.

    Args:
        name: name of the task.
        predictions: labels or scores in the order of the test file. Scores are clipped to the
            task's range and written with three decimals.
        path: the output file.

    Raises:
        FileExistsError: `path` exists.
        ValueError: there is no such task; a prediction is not one of its labels, or not finite.
    """
    task, path = glue_task(name), check_new(path)
    lines = ["index\tprediction"]
    for i, prediction in enumerate(predictions):
        if task.is_regression:
            score = _score(f"prediction {i}", prediction)
            low, high = task.limits
            lines.append(f"{i}\t{min(max(score, low), high):.3f}")
        elif prediction not in task.labels:
            raise ValueError(
                f"prediction {i} is {prediction!r}, expected one of {name}'s labels {task.labels}"
            )
        else:
            lines.append(f"{i}\t{prediction}")
    write_lines(path, lines)


def _rows(
    path: str | Path, malformed: Literal["refuse", "skip"]
) -> Iterator[tuple[int, list[str]]]:
    """Yields (line number, cells) of rows with as many cells as the first row."""
    width = None
    skipped = []
    for number, line in numbered_lines(path):
        cells = line.split("\t")
        width = width or len(cells)
        if len(cells) == width:
            yield number, cells
        elif malformed == "skip":
            skipped.append(number)
        else:
            raise ValueError(
                f"{path}:{number}: {len(cells)} columns, the first row has {width}: fix the row, "
                "or read the file with malformed='skip'"
            )
    if skipped:
        _logger.warning(
            "%s: %d malformed rows skipped, lines %s",
            path,
            len(skipped),
            ", ".join(map(str, skipped)),
        )


def _check_no_header(path: str | Path, row: tuple[int, list[str]], task: GlueTask) -> None:
    number, cells = row
    if len(cells) != len(task.columns):
        raise ValueError(
            f"{path}:{number}: {len(cells)} columns, expected {', '.join(task.columns)}, as in "
            f"{task.title}'s labelled files; read test files with labelled=False"
        )
    if cells[task.columns.index(task.label)] not in task.labels:
        raise ValueError(
            f"{path}:{number}: {cells!r:.80} is not an example: {task.title}'s labelled files "
            f"have no header, and the columns {', '.join(task.columns)}; remove this row"
        )


def _position(path: str | Path, names: Sequence[str], column: str, wanted: Sequence[str]) -> int:
    if names.count(column) != 1:
        raise ValueError(
            f"{path}:1: {names.count(column)} columns named {column!r} in {list(names)!r:.200}: "
            f"the first row must be the header, with {', '.join(wanted)}"
        )
    return names.index(column)


def _check_labels(
    path: str | Path, numbers: Sequence[int], labels: Sequence[str], task: GlueTask
) -> None:
    for number, label in zip(numbers, labels, strict=True):
        if task.is_regression:
            score = _score(f"{path}:{number}: score", label)
            if not task.limits[0] <= score <= task.limits[1]:
                raise ValueError(f"{path}:{number}: score {label}, expected within {task.limits}")
        elif label not in task.labels:
            raise ValueError(
                f"{path}:{number}: unknown label {label!r}, expected one of {task.labels}"
            )
    if len(set(labels)) == 1 and len(labels) > 1:
        raise ValueError(
            f"{path}: all {len(labels)} examples have the label {labels[0]!r}, so there is nothing "
            "to learn or measure. Is the file complete?"
        )


def _score(what: str, value: str | float) -> float:
    try:
        score = float(value)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise ValueError(f"{what} is {value!r}, expected a finite number")
    return score


def _pairs(where: str, content: bytes) -> Iterator[tuple[str, str, str]]:
    """Yields each (text, hypothesis, label) of a challenge's XML file."""
    labels = {"TRUE": _ENTAILED[0], "YES": _ENTAILED[0], "FALSE": _ENTAILED[1], "NO": _ENTAILED[1]}
    try:
        pairs = ElementTree.fromstring(content).findall("pair")
    except ElementTree.ParseError as error:
        raise ValueError(f"{where}: not XML ({error})") from error
    for pair in pairs:
        label = pair.get("value", pair.get("entailment", ""))  # RTE-1, and later ones
        texts = [" ".join(pair.findtext(tag, "").split()) for tag in ("t", "h")]
        if label not in labels or not all(texts):
            raise ValueError(
                f"{where}: pair {pair.get('id')!r} is labelled {label!r}, with texts {texts}: "
                f"expected two texts and one of {', '.join(labels)}"
            )
        yield texts[0], texts[1], labels[label]
