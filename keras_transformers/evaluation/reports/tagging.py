"""Reports on entities: types, bounds and what is confused."""

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from keras_transformers.evaluation.entities import Entity, entities, entity_scores
from keras_transformers.evaluation.reports.calibration import Calibration, Selection
from keras_transformers.evaluation.reports.classification import never_predicted
from keras_transformers.evaluation.reports.counts import MEANS, ClassCounts, lowest
from keras_transformers.evaluation.reports.pictures import confusion_picture
from keras_transformers.evaluation.reports.report import (
    Cell,
    Report,
    ReportTable,
    counted,
    on_one_line,
)
from keras_transformers.inspection.svg import Picture

__all__ = ["tagging_report"]

# The figures -> whether higher is better.
TAGGING_FIGURES = MappingProxyType(
    {
        **dict.fromkeys(
            ("entity_precision", "entity_recall", "entity_f1", *MEANS, "word_accuracy"), True
        ),
        "calibration_error": False,
    }
)
_NUM_MISTAKES = 20
_AROUND = 4  # words beside an entity in the list of mistakes
_NOTHING = "(none)"
_KINDS = ("right", "other type", "other bounds", "both wrong", "missed")


class _Match(NamedTuple):
    """An expected entity and the predicted one that overlaps it most; None if there is none."""

    sentence: int
    expected: Entity | None
    predicted: Entity | None

    @property
    def kind(self) -> str:
        if self.expected is None:
            return "invented"
        if self.predicted is None:
            return "missed"
        same_bounds = self.expected[1:] == self.predicted[1:]
        same_type = self.expected.type == self.predicted.type
        if same_bounds and same_type:
            return "right"
        if same_bounds:
            return "other type"
        return "other bounds" if same_type else "both wrong"


def tagging_report(
    predictions: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    *,
    words: Sequence[Sequence[str]] | None = None,
    probabilities: Sequence[Sequence[float]] | None = None,
    abstain_below: float | None = None,
    title: str = "tagging",
) -> Report:
    """Reports on the entities of sentences; the figures equal seqeval's.

    Args:
        predictions: see `evaluation.entity_scores`.
        references: see `evaluation.entity_scores`.
        words: the words of each sentence, for the list of mistakes.
        probabilities: that of each predicted label; 0 for words that the model cannot read.
        abstain_below: the probability below which the pipeline abstains.
        title: the task.

    Returns:
        The figures entity_precision, entity_recall and entity_f1 of all entities, macro_ and
        weighted_ ones over the types, and word_accuracy; the tables types, errors, which says for
        each type whether bounds or type were wrong, confusion of types, and mistakes; the picture
        confusion. With `probabilities` also the figure calibration_error of words, with
        `abstain_below` their coverage and selective_word_accuracy; the tables reliability and
        coverage; the picture reliability.

    Raises:
        ValueError: see `evaluation.entity_scores`; or a word has no probability.

    Example:
        >>> report = tagging_report([["B-PER", "O"]], [["B-LOC", "O"]])
        >>> report.to_dict()["tables"]["errors"]["rows"][0]
        ['LOC', 1, 0, 1, 0, 0, 0, 0]
    """
    scores = entity_scores(predictions, references)
    types = list(scores.types)
    parts = [
        np.array([getattr(count, name) for count in scores.types.values()], np.int64)
        for name in ("correct", "predicted", "expected")
    ]
    counts = ClassCounts(*parts)
    matches = [
        match
        for row, (predicted, expected) in enumerate(zip(predictions, references, strict=True))
        for match in _matches(row, entities(expected), entities(predicted))
    ]
    means = counts.means()
    pairs = list(zip(predictions, references, strict=True))
    is_right = np.array([x == y for pair in pairs for x, y in zip(*pair, strict=True)], bool)
    more: dict[str, float] = {}
    findings: list[str] = []
    tables: dict[str, ReportTable] = {}
    drawings: dict[str, Callable[[], Picture]] = {}
    sure = np.array([score for row in probabilities or () for score in row], np.float64)
    if probabilities is not None and len(sure) != len(is_right):
        raise ValueError(
            f"{len(sure)} probabilities for {len(is_right)} words: pass that of each word's label"
        )
    if sure.any():
        calibration = Calibration(sure[sure > 0], is_right[sure > 0])
        selection = Selection(sure, is_right, abstain_below, figure="word_accuracy", noun="words")
        more = {"calibration_error": calibration.error, **selection.figures}
        findings = [*calibration.findings(), *selection.findings]
        tables = {"reliability": calibration.table(), "coverage": selection.table}
        drawings = {"reliability": calibration.picture}
    figures = {
        "entity_precision": scores.overall.precision,
        "entity_recall": scores.overall.recall,
        "entity_f1": scores.overall.f1,
        **means,
        "word_accuracy": int(is_right.sum()) / max(len(is_right), 1),
        **more,
    }
    names = [*types, _NOTHING]
    matrix = _confusion(matches, names)
    return Report(
        title=f"{title}: {counted(len(references), 'sentence')}, "
        f"{scores.overall.expected} entities of {counted(len(types), 'type')}",
        findings=[*_findings(counts, types, matches), *findings],
        figures=figures,
        tables={
            "types": counts.table("type", types, {**counts.micro(), **means}, "Types"),
            "errors": _errors(matches, types),
            "confusion": ReportTable(
                "Confusion of types (rows: expected, columns: predicted)",
                ("expected", *names),
                [(name, *row) for name, row in zip(names, matrix.tolist(), strict=True)],
            ),
            "mistakes": _mistakes(matches, words),
            **tables,
        },
        drawings={"confusion": functools.partial(confusion_picture, matrix, names), **drawings},
    )


def _matches(row: int, expected: Sequence[Entity], predicted: Sequence[Entity]) -> Iterator[_Match]:
    """Yields each expected entity with its answer, then the predictions that overlap none."""
    free = set(predicted)
    # Exact ones first, so that none of them answers another entity.
    exact = {entity for entity in expected if entity in free}
    free -= exact
    for entity in expected:
        if entity in exact:
            yield _Match(row, entity, entity)
            continue
        overlaps = [(_overlap(entity, other), other) for other in sorted(free)]
        size, best = max(overlaps, key=lambda pair: pair[0], default=(0, None))
        if not size or best is None:
            yield _Match(row, entity, None)
            continue
        free.remove(best)
        yield _Match(row, entity, best)
    for entity in sorted(free):
        yield _Match(row, None, entity)


def _overlap(one: Entity, other: Entity) -> int:
    """Returns the number of words that both have."""
    return max(0, min(one.end, other.end) - max(one.start, other.start))


def _confusion(matches: Sequence[_Match], names: Sequence[str]) -> np.ndarray:
    matrix = np.zeros((len(names), len(names)), np.int64)
    for match in matches:
        sides = [_NOTHING if e is None else e.type for e in (match.expected, match.predicted)]
        matrix[names.index(sides[0]), names.index(sides[1])] += 1
    return matrix


def _errors(matches: Sequence[_Match], types: Sequence[str]) -> ReportTable:
    kinds = Counter(
        ((match.expected or match.predicted).type, match.kind)  # type: ignore[union-attr]
        for match in matches
    )
    columns = ("type", "expected", *_KINDS, "invented")
    rows: list[tuple[Cell, ...]] = [
        (
            name,
            sum(kinds[name, kind] for kind in _KINDS),
            *(kinds[name, kind] for kind in (*_KINDS, "invented")),
        )
        for name in types
    ]
    return ReportTable("What is wrong with entities", columns, rows)


def _findings(counts: ClassCounts, types: Sequence[str], matches: Sequence[_Match]) -> list[str]:
    if not counts.predicted.any():
        return [f"No word is part of a predicted entity; {counts.expected.sum()} are expected."]
    sentence, missed = never_predicted(counts, types, "type", "types")
    shown = lowest(counts.f1, types, counts.expected > 0)
    kinds = Counter(match.kind for match in matches)
    wrong = [f"{kinds[kind]} {kind}" for kind in (*_KINDS[1:], "invented") if kinds[kind]]
    return [
        sentence if missed else f"Every type is predicted; the lowest F1: {shown}.",
        f"Of {counts.expected.sum()} entities {kinds['right']} are right"
        + (f"; {', '.join(wrong)}." if wrong else "."),
    ]


def _mistakes(matches: Sequence[_Match], words: Sequence[Sequence[str]] | None) -> ReportTable:
    columns: tuple[str, ...] = ("sentence", "mistake", "expected", "predicted")
    rows: list[tuple[Cell, ...]] = []
    for match in (match for match in matches if match.kind != "right"):
        sides = [
            _NOTHING if entity is None else entity.type
            for entity in (match.expected, match.predicted)
        ]
        text: tuple[str, ...] = ()
        if words is not None:
            text = (_in_brackets(words[match.sentence], match),)
        rows.append((match.sentence, match.kind, *sides, *text))
    if words is not None:
        columns = (*columns, "text")
    title = "Mistakes, [expected] and {predicted}" if words is not None else "Mistakes"
    if len(rows) > _NUM_MISTAKES:
        title += f", {_NUM_MISTAKES} of {len(rows)}"
        chosen = np.linspace(0, len(rows) - 1, _NUM_MISTAKES).round().astype(int)
        rows = [rows[i] for i in chosen]  # from the whole data
    return ReportTable(title, columns, rows)


def _in_brackets(words: Sequence[str], match: _Match) -> str:
    """Returns the words around an entity, with the expected and the predicted bounds."""
    parts = list(words)
    for entity, (left, right) in ((match.predicted, "{}"), (match.expected, "[]")):
        if entity is not None:
            parts[entity.start] = left + parts[entity.start]
            parts[entity.end - 1] += right
    bounds = [entity for entity in match[1:] if isinstance(entity, Entity)]
    start = max(0, min(entity.start for entity in bounds) - _AROUND)
    end = max(entity.end for entity in bounds) + _AROUND
    return on_one_line(" ".join(parts[start:end]))
