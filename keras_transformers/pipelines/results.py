"""The types of the answers, and how to make a graph's inputs and read its outputs.

A pipeline, an export run in this process and a server's client all return these types. Nothing here
needs TensorFlow.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = [
    "Answer",
    "Choice",
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
    """The class of a text, a pair of texts, or an image.

    Attributes:
        label: the most likely label.
        probabilities: of every label, in the order of the model's labels.
        label_index: the index of `label` in that order.
    """

    label: str
    probabilities: Sequence[float]
    label_index: int


@dataclass(frozen=True)
class Regression:
    """The score of a text or a pair of texts.

    Attributes:
        score: on the scale of the training data.
    """

    score: float


@dataclass(frozen=True)
class Translation:
    """The translation of a text.

    Attributes:
        text: the translation itself.
        score: its log-probability divided by the length penalty.
    """

    text: str
    score: float


@dataclass(frozen=True)
class MaskedTokens:
    """The tokens that may replace each mask.

    Attributes:
        tokens: the most likely tokens for each mask, best first.
        probabilities: of these tokens.
    """

    tokens: Sequence[Sequence[str]]
    probabilities: Sequence[Sequence[float]]


@dataclass(frozen=True)
class Tags:
    """The words of a text and their labels.

    Attributes:
        tokens: the words.
        labels: one per word.
        starts: where each word starts in the text.
        ends: where it ends (exclusive).
        scores: the probability of each label.
    """

    tokens: Sequence[str]
    labels: Sequence[str]
    starts: Sequence[int]
    ends: Sequence[int]
    scores: Sequence[float]


@dataclass(frozen=True)
class Answer:
    """The answer to a question, a span of its context.

    Attributes:
        text: the span, empty if the context has no answer.
        score: its start logit plus its end logit; `null_score` without an answer.
        start: where it starts in the context.
        end: where it ends (exclusive).
        null_score: the score of having no answer.
    """

    text: str
    score: float
    start: int
    end: int
    null_score: float


@dataclass(frozen=True)
class Generation:
    """The continuation of a prompt.

    Attributes:
        text: the continuation, without the prompt.
        num_new_tokens: how many tokens were generated.
        log_probability: the sum of their log-probabilities.
        finished: whether the text ended with the end token.
    """

    text: str
    num_new_tokens: int
    log_probability: float
    finished: bool


@dataclass(frozen=True)
class Embedding:
    """The vector of a text.

    Attributes:
        vector: (hidden,).
    """

    vector: Sequence[float]


@dataclass(frozen=True)
class WordVectors:
    """The words of a text and their vectors.

    Attributes:
        tokens: the words.
        vectors: (words, layers, hidden).
    """

    tokens: Sequence[str]
    vectors: Sequence[Sequence[Sequence[float]]]


@dataclass(frozen=True)
class NextSentence:
    """How two texts are related.

    Attributes:
        probability: that the second text follows the first.
    """

    probability: float


@dataclass(frozen=True)
class Choice:
    """Which of several texts fits.

    Attributes:
        choice: the most likely choice; "" without choices.
        probabilities: of every choice.
        choice_index: the index of `choice`; -1 without choices.
    """

    choice: str
    probabilities: Sequence[float]
    choice_index: int


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
    | Choice
    | dict[str, Any]
)

# The outputs of each type. They have the names of its fields, except those in _RENAMED.
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
    (Choice, frozenset({"choice", "probabilities", "choice_index", "num_choices"})),
)
_RENAMED = {"translation": "text", "answer": "text", "embedding": "vector"}
_COUNTERS = (
    "num_masks",
    "num_tokens",
    "num_choices",
)  # the length of a row's lists without padding

# The inputs of signatures that take texts, in the order in which people give them.
TEXT_INPUTS = (
    *(("text",), ("prompt",), ("text", "text_b"), ("question", "context")),
    ("text", "choices"),
)
LISTS = ("choices",)  # these take a list of texts per row


def text_inputs(names: Sequence[str]) -> tuple[str, ...]:
    """Returns the inputs that take texts, in order; nothing if a signature takes anything else.

    >>> text_inputs(["context", "question"])
    ('question', 'context')
    """
    return next((known for known in TEXT_INPUTS if set(known) == set(names)), ())


def fields(line: str, names: Sequence[str]) -> list[Any]:
    r"""Returns the texts of a line with tabs between them, as many as `names` if it has enough.

    >>> fields("It rained.", ["text"]), fields("a\tb\tc", ["text", "choices"])
    (['It rained.'], ['a', ['b', 'c']])
    """
    if len(names) == 1:
        return [line]
    found: list[Any] = line.split("\t")
    last = len(names) - 1
    if names[last] in LISTS and len(found) > last:
        return [*found[:last], found[last:]]
    return found


def string_column(name: str, texts: Iterable[Any], *, rank: int = 1) -> np.ndarray:
    """Returns a column of texts as bytes, in an array of dtype object.

    Args:
        name: the input's name, for the error message.
        texts: strings; for rank 2 lists of strings.
        rank: the input's rank.

    Returns:
        (batch,); for rank 2 (batch, longest), where "" fills up shorter rows.

    Raises:
        ValueError: the texts are something else.

    >>> string_column("choices", [["a"], ["b", "c"]], rank=2).tolist()
    [[b'a', b''], [b'b', b'c']]
    """
    column = _listed(texts)
    if rank == 1:
        if not _are_strings(column):
            raise ValueError(f"{name} must be a list of strings, not {column or texts!r:.200}")
        return strings(column or ())
    rows = [_listed(row) for row in column or ()]
    if column is None or not all(map(_are_strings, rows)):
        raise ValueError(
            f"{name} must be a list with a list of strings for each row, not "
            f"{column or texts!r:.200}"
        )
    array = np.full((len(rows), max((len(row or ()) for row in rows), default=0)), b"", object)
    for number, row in enumerate(rows):
        array[number, : len(row or ())] = strings(row or ())
    return array


def strings(texts: Sequence[str | bytes]) -> np.ndarray:
    """Returns texts as an array of bytes, (batch,), dtype object."""
    return np.array(
        [t.encode("utf-8", "surrogateescape") if isinstance(t, str) else t for t in texts],
        dtype=object,
    )


def typed(row: Mapping[str, Any]) -> Result:
    """Returns one row of outputs as its task's type, or the row if no task has these outputs.

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
    """Yields the outputs of a batch, row by row, as JSON values.

    Args:
        outputs: name -> array (batch, ...); strings as bytes.
        padded: the outputs (batch, length, ...) that are padded to the longest row of the batch;
            each row of them is cut to its `num_tokens`, `num_masks` or `num_choices`.

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


def _listed(values: Any) -> list[Any] | None:
    """Returns values as a list; None for a string and anything else that is not several values."""
    is_one = isinstance(values, str | bytes) or not isinstance(values, Iterable)
    return None if is_one else list(values)


def _are_strings(values: list[Any] | None) -> bool:
    return values is not None and all(isinstance(value, str | bytes) for value in values)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value] if value.dtype == object else value.tolist()
    return value.item() if isinstance(value, np.generic) else value
