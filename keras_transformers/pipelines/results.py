"""What the tasks answer, as types, and how rows of a graph's outputs become such answers.

A pipeline in Python, an export run in this process and a server asked over the network all answer
with these. Nothing here needs TensorFlow.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = [
    "Answer",
    "Classification",
    "Embedding",
    "Generation",
    "MaskedTokens",
    "NextSentence",
    "Regression",
    "Result",
    "Tags",
    "Translation",
    "WordVectors",
]


@dataclass(frozen=True)
class Classification:
    """Of a text, a pair of texts, or an image.

    Attributes:
        label: the most likely one.
        probabilities: of every label, in the order of the model's labels.
        label_index: of `label` in that order.
    """

    label: str
    probabilities: Sequence[float]
    label_index: int


@dataclass(frozen=True)
class Regression:
    """A score of a text or a pair of texts.

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
    """What may replace each mask.

    Attributes:
        tokens: for each mask the most likely tokens, best first.
        probabilities: of these.
    """

    tokens: Sequence[Sequence[str]]
    probabilities: Sequence[Sequence[float]]


@dataclass(frozen=True)
class Tags:
    """Of the words of a text.

    Attributes:
        tokens: the words.
        labels: one per word.
        starts: where each word starts in the text.
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
    """To a question, taken from its context.

    Attributes:
        text: empty where the context has no answer.
        score: of the span.
        start: where it starts in the context.
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
        text: the continuation, without the prompt.
        num_new_tokens: how many tokens were generated.
        log_probability: their sum.
        finished: whether the text ended by itself.
    """

    text: str
    num_new_tokens: int
    log_probability: float
    finished: bool


@dataclass(frozen=True)
class Embedding:
    """Of a text.

    Attributes:
        vector: (hidden,).
    """

    vector: Sequence[float]


@dataclass(frozen=True)
class WordVectors:
    """Of the words of a text.

    Attributes:
        tokens: the words.
        vectors: (words, layers, hidden).
    """

    tokens: Sequence[str]
    vectors: Sequence[Sequence[Sequence[float]]]


@dataclass(frozen=True)
class NextSentence:
    """Of a pair of texts.

    Attributes:
        probability: that the second text follows the first.
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
    | WordVectors
    | NextSentence
    | dict[str, Any]
)

# Each type and its outputs, which have the names of its fields except for the renamed ones.
_TYPES: Sequence[tuple[Callable[..., Result], frozenset[str]]] = (
    (Classification, frozenset({"label", "probabilities", "label_index"})),
    (Regression, frozenset({"score"})),
    (Translation, frozenset({"translation", "score"})),
    (MaskedTokens, frozenset({"tokens", "probabilities", "num_masks"})),
    (Tags, frozenset({"tokens", "labels", "starts", "ends", "scores", "num_tokens"})),
    (Answer, frozenset({"answer", "score", "start", "end", "null_score"})),
    (Generation, frozenset({"text", "num_new_tokens", "log_probability", "finished"})),
    (Embedding, frozenset({"embedding"})),
    (WordVectors, frozenset({"tokens", "vectors", "num_tokens"})),
    (NextSentence, frozenset({"probability"})),
)
_RENAMED = {"translation": "text", "answer": "text", "embedding": "vector"}
_COUNTERS = ("num_masks", "num_tokens")  # outputs that say how long a row's lists really are

# Inputs of signatures that take texts, in the order in which people give them.
TEXT_INPUTS = (("text",), ("prompt",), ("text", "text_b"), ("question", "context"))


def text_inputs(names: Sequence[str]) -> tuple[str, ...]:
    """The inputs that take texts, in order; empty where a signature takes anything else.

    >>> text_inputs(["context", "question"])
    ('question', 'context')
    """
    return next((known for known in TEXT_INPUTS if set(known) == set(names)), ())


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


def rows(outputs: Mapping[str, np.ndarray], padded: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The outputs of a batch, row by row, as JSON takes them.

    Args:
        outputs: name -> array (batch, ...); strings as bytes.
        padded: the outputs (batch, length, ...) whose length is that of the batch's longest row;
            each row's are cut to the number that its `num_tokens` or `num_masks` says.

    Yields:
        Output name -> str, number or nested list, in the order of the names. Bytes that are not
        UTF-8 become U+FFFD.
    """
    names = sorted(outputs)
    counter = next((name for name in _COUNTERS if name in outputs), None)
    for values in zip(*(outputs[name] for name in names), strict=True):
        row = dict(zip(names, map(_plain, values), strict=True))
        if counter is not None:
            row |= {name: row[name][: row[counter]] for name in padded}
        yield row


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value] if value.dtype == object else value.tolist()
    return value.item() if isinstance(value, np.generic) else value
