"""Computes precision, recall and F1 of entities like conlleval and seqeval.

Tjong Kim Sang and De Meulder 2003, https://aclanthology.org/W03-0419: an entity is correct if its
type, first word and last word are all correct.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Entity", "EntityScores", "entity_scores"]

_OUTSIDE = "O"


class Entity(NamedTuple):
    """Represents an entity: words `start` to `end` (exclusive) of a sentence."""

    type: str
    start: int
    end: int


@dataclasses.dataclass(frozen=True)
class Counts:
    """Counts entities.

    Attributes:
        correct: number of entities in both predictions and references.
        predicted: number in the predictions.
        expected: number in the references.
    """

    correct: int
    predicted: int
    expected: int

    @property
    def precision(self) -> float:
        """The share of predicted entities that are correct, 0 to 1; 0 if none are predicted."""
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """The share of expected entities that are predicted, 0 to 1; 0 if none are expected."""
        return self.correct / self.expected if self.expected else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall, 0 to 1."""
        total = self.predicted + self.expected
        return 2 * self.correct / total if total else 0.0


@dataclasses.dataclass(frozen=True)
class EntityScores:
    """Counts all entities (the micro average) and those of each type.

    Attributes:
        overall: counts over all types.
        types: type -> counts, sorted by type.
    """

    overall: Counts
    types: dict[str, Counts]

    def __str__(self) -> str:
        rows = [*self.types.items(), ("all", self.overall)]
        width = max(len(name) for name, _ in rows)
        lines = [f"{'':{width}}  precision  recall     f1  expected"]
        lines += [
            f"{name:{width}}  {counts.precision:9.4f}  {counts.recall:6.4f} {counts.f1:6.4f}  "
            f"{counts.expected:8}"
            for name, counts in rows
        ]
        return "\n".join(lines)


def entities(labels: Sequence[str]) -> list[Entity]:
    """Returns the entities of a sentence labelled in IOB2 or IOB1.

    B- starts an entity; so does I- after O, after another type or at the start of the sentence.

    >>> entities(["I-PER", "I-PER", "O", "B-LOC", "B-LOC", "I-ORG"])  # doctest: +ELLIPSIS
    [Entity(type='PER', start=0, end=2), Entity(type='LOC', start=3, end=4), ...]

    Raises:
        ValueError: a label is not O, B-TYPE or I-TYPE.
    """
    spans: list[Entity] = []
    start, kind = 0, ""  # type of the open entity; "" if none is open
    for i, label in enumerate([*labels, _OUTSIDE]):
        if label != _OUTSIDE and (label[:2] not in ("B-", "I-") or len(label) < 3):
            raise ValueError(f"label {label!r} of word {i}: expected O, B-TYPE or I-TYPE")
        if kind and (label[2:] != kind or label.startswith("B-")):
            spans.append(Entity(kind, start, i))
            kind = ""
        if not kind and label != _OUTSIDE:
            start, kind = i, label[2:]
    return spans


def entity_scores(
    predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]
) -> EntityScores:
    """Compares the predicted entities of sentences with the expected ones.

    Args:
        predictions: the predicted label of each word of each sentence.
        references: the expected labels, in the same form.

    Raises:
        ValueError: there are no sentences, the numbers of sentences or words differ, or a label is
            unknown.

    Example:
        >>> entity_scores([["B-PER", "O", "O"]], [["B-PER", "O", "B-LOC"]]).overall.recall
        0.5
    """
    if len(predictions) != len(references) or not references:
        raise ValueError(
            f"{len(predictions)} predicted sentences for {len(references)} references: pass one "
            "prediction per reference, and at least one"
        )
    predicted_entities: set[tuple[int, Entity]] = set()
    expected: set[tuple[int, Entity]] = set()
    for i, (predicted, reference) in enumerate(zip(predictions, references, strict=True)):
        if len(predicted) != len(reference):
            raise ValueError(
                f"sentence {i}: {len(predicted)} predicted labels for {len(reference)} words"
            )
        predicted_entities |= {(i, entity) for entity in entities(predicted)}
        expected |= {(i, entity) for entity in entities(reference)}
    types = sorted({entity.type for _, entity in predicted_entities | expected})
    return EntityScores(
        _counts(predicted_entities, expected),
        {
            kind: _counts(
                *({e for e in some if e[1].type == kind} for some in (predicted_entities, expected))
            )
            for kind in types
        },
    )


def _counts(predicted: set[tuple[int, Entity]], expected: set[tuple[int, Entity]]) -> Counts:
    return Counts(len(predicted & expected), len(predicted), len(expected))
