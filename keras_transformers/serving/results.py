"""What the tasks of this package answer, as types; told apart by the names of the outputs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Classification:
    """Of a text, a pair of texts, or an image.

    Attributes:
        label: the likeliest.
        probabilities: of every label, in the order of the model's labels.
        label_index: of `label` in that order.
    """

    label: str
    probabilities: Sequence[float]
    label_index: int


@dataclass(frozen=True)
class Regression:
    """A score of a text or a pair.

    Attributes:
        score: on the scale of the training data.
    """

    score: float


@dataclass(frozen=True)
class Translation:
    """Of one text.

    Attributes:
        text: in the other language.
        score: of the beam search, length penalty included.
    """

    text: str
    score: float


@dataclass(frozen=True)
class MaskedTokens:
    """What may stand in place of each [MASK].

    Attributes:
        tokens: for each mask the likeliest tokens, the best first.
        probabilities: of these.
    """

    tokens: Sequence[Sequence[str]]
    probabilities: Sequence[Sequence[float]]


@dataclass(frozen=True)
class Tags:
    """Of the words of a text.

    Attributes:
        tokens: the words.
        labels: one a word.
        starts: where each begins in the text.
        ends: where it ends.
        scores: probabilities of the labels.
    """

    tokens: Sequence[str]
    labels: Sequence[str]
    starts: Sequence[int]
    ends: Sequence[int]
    scores: Sequence[float]


@dataclass(frozen=True)
class Answer:
    """To a question, out of its context.

    Attributes:
        text: empty where the context has none.
        score: of the span.
        start: where it begins in the context.
        end: where it ends.
        null_score: of there being no answer.
    """

    text: str
    score: float
    start: int
    end: int
    null_score: float


@dataclass(frozen=True)
class Generation:
    """What continues a prompt.

    Attributes:
        text: the prompt is not in it, or is, as the export has it.
        num_new_tokens: how many tokens were generated.
        log_probability: their sum.
        finished: whether it ended by itself.
    """

    text: str
    num_new_tokens: int
    log_probability: float
    finished: bool


@dataclass(frozen=True)
class Embedding:
    """Of a text.

    Attributes:
        vector: its numbers.
    """

    vector: Sequence[float]


@dataclass(frozen=True)
class NextSentence:
    """Of a pair of texts.

    Attributes:
        probability: that the second follows the first.
    """

    probability: float


Result = (
    Classification
    | Regression
    | Translation
    | MaskedTokens
    | Tags
    | Answer
    | Generation
    | Embedding
    | NextSentence
    | dict[str, Any]
)

# Type, and its outputs: ours are called as the fields, but for the renamed ones.
_TYPES: Sequence[tuple[Callable[..., Result], frozenset[str]]] = (
    (Classification, frozenset({"label", "probabilities", "label_index"})),
    (Regression, frozenset({"score"})),
    (Translation, frozenset({"translation", "score"})),
    (MaskedTokens, frozenset({"tokens", "probabilities", "num_masks"})),
    (Tags, frozenset({"tokens", "labels", "starts", "ends", "scores", "num_tokens"})),
    (Answer, frozenset({"answer", "score", "start", "end", "null_score"})),
    (Generation, frozenset({"text", "num_new_tokens", "log_probability", "finished"})),
    (Embedding, frozenset({"embedding"})),
    (NextSentence, frozenset({"probability"})),
)
_RENAMED = {"translation": "text", "answer": "text", "embedding": "vector"}
_COUNTERS = ("num_masks", "num_tokens")


def typed(row: Mapping[str, Any]) -> Result:
    """One row of outputs as its task's type; the row itself where no task has these outputs.

    >>> typed({"translation": "A dog.", "score": -0.5})
    Translation(text='A dog.', score=-0.5)
    >>> typed({"y": 2.5})
    {'y': 2.5}
    """
    for make, names in _TYPES:
        if row.keys() == names:
            fields = {_RENAMED.get(k, k): v for k, v in row.items() if k not in _COUNTERS}
            return make(**fields)
    return dict(row)


def cut(row: dict[str, Any], free: Sequence[str]) -> dict[str, Any]:
    """The row, its lists as long as the row says, not as its batch's longest needed.

    Args:
        row: output name -> value.
        free: the outputs whose length the batch decides.
    """
    for counter in _COUNTERS:
        if counter in row:
            return row | {name: row[name][: row[counter]] for name in free}
    return row
