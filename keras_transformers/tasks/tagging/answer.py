"""Defines the answer of tagging: words with labels."""

from collections.abc import Sequence
from dataclasses import dataclass

from keras_transformers.tasks.answers import AnswerType, Result, Shown

__all__ = ["TaggedEntity", "Tags"]


@dataclass(frozen=True, repr=False)
class TaggedEntity(Shown):
    """Consecutive words that form one entity.

    Attributes:
        label: its type, such as "PER".
        text: the words, with one space where the text has white space between them.
        start: where the first word starts in the text.
        end: where the last one ends (exclusive).
        score: the mean of the words' scores.
        abstained: whether one of the words is; None without `abstain_below`.
    """

    label: str
    text: str
    start: int
    end: int
    score: float
    abstained: bool | None = None


@dataclass(frozen=True, repr=False)
class Tags(Result):
    """The words of a text and their labels.

    Attributes:
        tokens: the words.
        labels: one per word.
        starts: where each word starts in the text.
        ends: where it ends (exclusive).
        scores: the probability of each label.
        abstained: whether each is below the pipeline's `abstain_below`; None without it.
    """

    tokens: Sequence[str]
    labels: Sequence[str]
    starts: Sequence[int]
    ends: Sequence[int]
    scores: Sequence[float]
    abstained: Sequence[bool] | None = None

    @property
    def entities(self) -> list[TaggedEntity]:
        """The words joined into entities, as seqeval reads IOB2 and IOB1.

        B- starts an entity; so does I- after O or after another type. A label without either prefix
        counts as I-, as in transformers' `aggregation_strategy="first"`.
        """
        groups: list[list[int]] = []  # the words of each
        open_type = None
        for word, label in enumerate(self.labels):
            kind = entity_type(label)
            if kind is not None:
                if kind != open_type or label.startswith("B-"):
                    groups.append([])
                groups[-1].append(word)
            open_type = kind
        return [self._entity(words) for words in groups]

    def _entity(self, words: Sequence[int]) -> TaggedEntity:
        first, last = words[0], words[-1]
        text = self.tokens[first]
        for word in words[1:]:
            text += " " * (self.starts[word] > self.ends[word - 1]) + self.tokens[word]
        score = sum(self.scores[word] for word in words) / len(words)
        kind = entity_type(self.labels[first]) or ""
        abstained = None if self.abstained is None else any(self.abstained[word] for word in words)
        return TaggedEntity(kind, text, self.starts[first], self.ends[last], score, abstained)


def entity_type(label: str) -> str | None:
    """Returns the entity type in a label; None outside entities.

    >>> entity_type("B-PER"), entity_type("NOUN"), entity_type("O")
    ('PER', 'NOUN', None)
    """
    if label == "O":
        return None
    return label[2:] if label[:2] in ("B-", "I-") else label


ANSWER = AnswerType("tagging", Tags, count="num_tokens")
