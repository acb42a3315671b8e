"""Reads questions about texts whose answers are spans of the texts: SQuAD 1.1 and 2.0.

Rajpurkar et al. 2016, arXiv:1606.05250; Rajpurkar et al. 2018, arXiv:1806.03822. Positions are in
characters (Unicode code points).
"""

import dataclasses
import hashlib
import itertools
import logging
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from keras_transformers.data.bad_rows import bad_rows, check_rows, each_row
from keras_transformers.data.faults import Content, plain
from keras_transformers.data.tables.reading import read_objects
from keras_transformers.files import check_new, read_lines, write_json
from keras_transformers.files.compression import inner_name
from keras_transformers.files.reading import parse_json
from keras_transformers.files.surrogates import check_text

__all__ = [
    "Answer",
    "Questions",
    "load_squad",
    "questions_of",
    "split_questions",
    "write_predictions",
]

_logger = logging.getLogger(__name__)

_TYPE_NAMES = {str: "string", list: "list", int: "whole number"}


class Answer(NamedTuple):
    """An answer and its start in the context, in characters; None if it is not at that place.

    Answers without a start are not trained on, but still count as references, as in the official
    script.
    """

    text: str
    start: int | None


@dataclasses.dataclass(frozen=True)
class Questions:
    """Questions, each about one of the contexts.

    Attributes:
        ids: unique ids of the questions.
        questions: text of each question.
        contexts: the texts that the questions are about.
        context_of: index of each question's context.
        answers: answers to each question; empty if the context has none (SQuAD 2.0). None for files
            without answers.
        source: where the questions come from, for messages.
        weights: the weight of each question in the training loss, or None.
    """

    ids: Sequence[str]
    questions: Sequence[str]
    contexts: Sequence[str]
    context_of: Sequence[int]
    answers: Sequence[Sequence[Answer]] | None = None
    source: str = "memory"
    weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        columns = {"questions": self.questions, "context_of": self.context_of}
        if self.answers is not None:
            columns["answers"] = self.answers
        for name, values in columns.items():
            if len(values) != len(self.ids):
                raise ValueError(f"{self.source}: {len(values)} {name} for {len(self.ids)} ids")

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, indices: Iterable[int], source: str | None = None) -> "Questions":
        """Returns the questions at `indices`, in that order, with the contexts they need."""
        chosen = list(indices)
        contexts = sorted({self.context_of[i] for i in chosen})
        new_index = {old: new for new, old in enumerate(contexts)}
        return Questions(
            [self.ids[i] for i in chosen],
            [self.questions[i] for i in chosen],
            [self.contexts[i] for i in contexts],
            [new_index[self.context_of[i]] for i in chosen],
            None if self.answers is None else [self.answers[i] for i in chosen],
            source or self.source,
            None if self.weights is None else [self.weights[i] for i in chosen],
        )

    def contents(self) -> Iterator[Content]:
        """Yields each question with its context; they may have several answers."""
        contexts = [plain(context) for context in self.contexts]
        for question, context in zip(self.questions, self.context_of, strict=True):
            key = (plain(question), contexts[context])
            yield Content(key, question, is_empty=not all(key))

    def references(self) -> dict[str, list[str]]:
        """Returns id -> answer texts, for the metrics; an empty list for unanswerable questions.

        Raises:
            ValueError: the questions have no answers.
        """
        if self.answers is None:
            raise ValueError(f"{self.source}: questions without answers cannot be scored")
        texts = ([answer.text for answer in answers] for answers in self.answers)
        return dict(zip(self.ids, texts, strict=True))


@dataclasses.dataclass(frozen=True)
class Mismatches:
    """Answers that are not at their offsets.

    Attributes:
        source: the file.
        num_answers: number of answers in the file.
        examples: one line per mismatch: id, answer and the text found instead.
    """

    source: str
    num_answers: int
    examples: tuple[str, ...]

    def __str__(self) -> str:
        head = (
            f"{self.source}: {len(self.examples)} of {self.num_answers} answers are not at their "
            "answer_start (in characters from 0)"
        )
        return "\n  ".join([head, *self.examples])


@bad_rows()
def load_squad(
    path: str | Path,
    *,
    mismatched: Literal["skip", "refuse"] = "skip",
    answered: bool = True,
) -> Questions:
    """Reads SQuAD's JSON, or rows as the `datasets` library writes them.

    A row has `id`, `question`, `context` and `answers`, which is a list as in SQuAD, or
    `{"text": [...], "answer_start": [...]}`. Ids may be numbers. An answer is also found if its
    `answer_start` counts UTF-16 units, or if it is composed differently from the context (NFC and
    NFD); it is then spelled as in the context, and its start counts the context's characters.

    Args:
        path: JSON, JSON Lines or Parquet, plain or compressed.
        mismatched: what to do with answers that are not at their `answer_start`: "skip" keeps them
            out of training (their `start` is None) and logs a warning that lists them all; "refuse"
            raises ValueError with the same list.
        answered: False for files without answers.

    Raises:
        FileNotFoundError: there is no such file.
        MissingExtraError: Parquet or `.zst` needs the extra `data`.
        ValueError: the file is not JSON or not in SQuAD's format (the message names the place, such
            as `data[0].paragraphs[2].qas[1]`); an id occurs twice; `is_impossible` contradicts the
            answers; a text contains half a surrogate pair, which UTF-8 cannot encode; or there are
            no questions.
    """
    reader = _Reader(path, answered)
    for where, value in _rows_or_paragraphs(path):
        questions: list[tuple[str, Any]] = []
        context = ""
        with each_row(str(path)):
            context, questions = reader.context_and_questions(value, where)
        for place, question in questions:
            with each_row(str(path)):
                reader.add(question, context, place)
    return reader.result(mismatched)


def questions_of(
    rows: Sequence[Mapping[str, Any]],
    source: str = "memory",
    *,
    mismatched: Literal["skip", "refuse"] = "skip",
) -> Questions:
    """Returns the questions of rows in memory, as `load_squad` reads those of a file.

    Args:
        rows: mappings with `id`, `question`, `context` and `answers`.
        source: how error messages name the rows.
        mismatched: see `load_squad`.

    Raises:
        ValueError: see `load_squad`; all rows that cannot be read are named.
    """
    reader = _Reader(source, answered=True)
    reasons = {}
    for row, value in enumerate(rows):
        try:
            context, questions = reader.context_and_questions(dict(value), "")
            for place, question in questions:
                reader.add(question, context, place)
        except ValueError as error:
            reasons[row] = str(error)
    check_rows(source, reasons)
    return reader.result(mismatched)


def split_questions(
    questions: Questions, fractions: Mapping[str, float], *, seed: int
) -> dict[str, Questions]:
    """Splits questions so that all questions about a context are in the same part.

    The split depends only on `seed` and the contexts, not on their order.

    Args:
        questions: questions to split.
        fractions: part name -> share of the contexts; the shares sum to 1.
        seed: different seeds give different splits.

    Returns:
        Part name -> questions, in the order of the file.

    Raises:
        ValueError: a share is not positive, they do not sum to 1, or a part is empty.
    """
    if any(share <= 0 for share in fractions.values()) or abs(sum(fractions.values()) - 1) > 1e-6:
        raise ValueError(f"shares {dict(fractions)}: each must be above 0, and their sum 1")
    texts = sorted(
        set(questions.contexts),
        key=lambda text: hashlib.sha256(f"{seed}\0{text}".encode()).digest(),
    )
    rank = {text: i for i, text in enumerate(texts)}
    ranks = np.array([rank[questions.contexts[i]] for i in questions.context_of])
    ends = [round(end * len(texts)) for end in np.cumsum(list(fractions.values()))]
    parts = {}
    for name, start, end in zip(fractions, [0, *ends], ends, strict=False):
        indices = np.flatnonzero((ranks >= start) & (ranks < end))
        if not len(indices):
            raise ValueError(
                f"{questions.source}: the {name} split is empty: {len(texts)} contexts are too few "
                f"for a share of {fractions[name]:g}"
            )
        parts[name] = questions.select(indices, f"{questions.source}[{name}]")
    return parts


def write_predictions(answers: Mapping[str, str], path: str | Path) -> None:
    """Writes id -> answer atomically, in the format of the official scripts.

    Raises:
        FileExistsError: `path` exists.
    """
    write_json(check_new(path), dict(answers), indent=0)


class _Reader:
    """Collects the questions of paragraphs or rows, and their mismatched answers."""

    def __init__(self, path: str | Path, answered: bool) -> None:
        self.path = path
        self.answered = answered
        self.ids: dict[str, None] = {}
        self.questions: list[str] = []
        self.context_of: list[int] = []
        self.answers: list[list[Answer]] = []
        self.mismatches: list[str] = []
        self.num_relocated = 0
        self._contexts: dict[str, int] = {}  # context -> index

    def context_and_questions(self, value: Any, where: str) -> tuple[str, list[tuple[str, Any]]]:
        """Returns the context of a paragraph or a row, and its questions with their places."""
        context = self._text(value, "context", where)
        if "qas" not in value and "question" in value:
            return context, [(where, value)]
        questions = _get(value, "qas", list, where)
        return context, [(f"{where}.qas[{i}]", question) for i, question in enumerate(questions)]

    def add(self, question: Any, context: str, place: str) -> None:
        """Adds a question about a context."""
        question_id = _get(question, "id", str, place)
        if question_id in self.ids:
            raise ValueError(_at(place, f"the id {question_id!r} occurs twice"))
        text = self._text(question, "question", place)
        if self.answered:
            self.answers.append(self._answers(question, question_id, context, place))
        self.ids[question_id] = None
        self.questions.append(text)
        self.context_of.append(self._contexts.setdefault(context, len(self._contexts)))

    def result(self, mismatched: str) -> Questions:
        """Returns all questions, and says which answers are not at their offsets."""
        if not self.ids:
            raise ValueError(f"{self.path}: no questions")
        if self.num_relocated:
            _logger.info(
                "%s: %d answers found by offsets in UTF-16, or composed differently from their "
                "context",
                *(self.path, self.num_relocated),
            )
        num_answers = sum(map(len, self.answers))
        if self.mismatches:
            mismatches = Mismatches(str(self.path), num_answers, tuple(self.mismatches))
            if mismatched == "refuse":
                raise ValueError(
                    f"{mismatches}\nfix the file, or read it with mismatched='skip' to leave them "
                    "out of training"
                )
            _logger.warning("%s", mismatches)
        return Questions(
            list(self.ids),
            self.questions,
            list(self._contexts),
            self.context_of,
            self.answers if self.answered else None,
            str(self.path),
        )

    def _answers(
        self, question: dict[str, Any], question_id: str, context: str, place: str
    ) -> list[Answer]:
        answers = []
        for i, answer in enumerate(self._given(question, place)):
            text = self._text(answer, "text", _inside(place, f"answers[{i}]"))
            start = _get(answer, "answer_start", int, _inside(place, f"answers[{i}]"))
            there = context[start : start + len(text)] if start >= 0 else ""
            if text and there == text:
                answers.append(Answer(text, start))
            elif elsewhere := _relocated(context, text, start):
                answers.append(elsewhere)
                self.num_relocated += 1
            else:
                answers.append(Answer(text, None))
                self.mismatches.append(f"{question_id}: {text!r} at {start}, found {there!r}")
        if bool(question.get("is_impossible", not answers)) == bool(answers):
            raise ValueError(
                _at(
                    place,
                    f"{len(answers)} answers, but is_impossible is "
                    f"{question.get('is_impossible')}: fix one of them",
                )
            )
        return answers

    def _given(self, question: dict[str, Any], place: str) -> list[Any]:
        """Returns a question's answers as a list, which `datasets` turns into two."""
        answers = question.get("answers")
        if not isinstance(answers, dict):
            return list(_get(question, "answers", list, place))
        where = _inside(place, "answers")
        texts, starts = (_get(answers, key, list, where) for key in ("text", "answer_start"))
        if len(texts) != len(starts):
            raise ValueError(_at(where, f"{len(texts)} texts, but {len(starts)} starts"))
        return [
            {"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)
        ]

    def _text(self, value: Any, key: str, where: str) -> str:
        text: str = _get(value, key, str, where)
        check_text(_inside(where, key), text)
        return text


def _relocated(context: str, text: str, start: int) -> Answer | None:
    """Finds an answer whose offsets count other units, or that is composed differently."""
    for begin, end in _occurrences(context, text):
        before = context[:begin]
        for form in (before, unicodedata.normalize("NFC", before), _decomposed(before)):
            if start in (len(form.encode("utf-16-le")) // 2, len(form)):
                return Answer(context[begin:end], begin)
    return None


def _occurrences(context: str, text: str) -> Iterator[tuple[int, int]]:
    """Yields the start and end of each occurrence of a text, in any composition."""
    pieces = [_decomposed(char) for char in context]
    ends = itertools.accumulate(map(len, pieces), initial=0)
    character_at = {position: i for i, position in enumerate(ends)}  # positions between characters
    whole, wanted = "".join(pieces), _decomposed(text)
    at = whole.find(wanted) if wanted else -1
    while at >= 0:
        end = at + len(wanted)
        is_whole = not unicodedata.combining(whole[end : end + 1] or " ")
        if is_whole and at in character_at and end in character_at:
            yield character_at[at], character_at[end]
        at = whole.find(wanted, at + 1)


def _decomposed(text: str) -> str:
    return unicodedata.normalize("NFD", text)


def _rows_or_paragraphs(path: str | Path) -> Iterator[tuple[str, Any]]:
    """Yields the place and the value of each row, or of each paragraph of SQuAD's JSON."""
    if Path(inner_name(path)).suffix.lower() == ".parquet":
        yield from ((f"row {n}", value) for n, value in read_objects(path, format="parquet"))
        return
    lines = list(read_lines(path))
    if _is_row(next(filter(str.strip, lines), "")):
        yield from ((f"line {number}", value) for number, value in read_objects(path))
        return
    content = parse_json("\n".join(lines), path)
    if isinstance(content, list) and content:
        yield from ((f"[{i}]", value) for i, value in enumerate(content))
        return
    articles: list[Any] = []
    with each_row(str(path)):
        articles = _get(content, "data", list, "the file")
    for i, article in enumerate(articles):
        paragraphs: list[Any] = []
        with each_row(str(path)):
            paragraphs = _get(article, "paragraphs", list, f"data[{i}]")
        for j, paragraph in enumerate(paragraphs):
            yield f"data[{i}].paragraphs[{j}]", paragraph


def _is_row(line: str) -> bool:
    try:
        value = parse_json(line, "")
    except ValueError:
        return False
    return isinstance(value, dict) and {"context", "question"} <= value.keys()


def _inside(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _at(where: str, message: str) -> str:
    return f"{where}: {message}" if where else message


def _get(value: Any, key: str, kind: type, where: str) -> Any:
    content = value.get(key) if isinstance(value, dict) else None
    if isinstance(content, float) and content.is_integer():  # as pandas writes whole numbers
        content = int(content)
    if isinstance(content, int) and not isinstance(content, bool) and key == "id":
        content = str(content)
    if not isinstance(content, kind) or isinstance(content, bool):
        raise ValueError(
            _at(
                where,
                f"expected {key!r}, a {_TYPE_NAMES[kind]}, found {content!r:.60}: is it SQuAD's "
                "JSON (data, paragraphs, qas), or rows with id, question, context, answers?",
            )
        )
    return content
