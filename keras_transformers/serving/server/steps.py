"""Runs the steps in which a server writes texts; `step_names` describes their signatures."""

import json
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from keras_transformers.serving.protocol.signatures import Arrays, SignatureInfo
from keras_transformers.serving.server.saved_models import SavedModel
from keras_transformers.tasks.answers import OPTIONS_SIGNATURE
from keras_transformers.tasks.generation.pieces import Settled
from keras_transformers.tasks.generation.step_names import (
    CACHE,
    CONVERSATIONS,
    PROMPTS,
    READ,
    STEP,
    TEXT,
)

_TOKENS = {"token_bytes", "tokens"}  # outputs of TEXT and of requests
_LOG_PROBABILITIES = "token_log_probabilities"
_COLUMNS = 2  # the axis of the cache's columns


class Progress(NamedTuple):
    """How far a text is: a value, so that other threads may read it at any time."""

    text: str = ""
    num_new_tokens: int = 0
    log_probability: np.float32 = np.float32(0)
    finished: bool = False  # with an end token or a stop string
    ended: bool = False
    tokens: Mapping[str, Sequence[bytes]] = MappingProxyType({})  # in the forms that TEXT has


@dataclass(eq=False)
class Text:
    """A text that is written: one row of a request.

    Attributes:
        begin: the signature that its prompt is an input of.
        inputs: name -> one row, all options included.
        outputs: the names of the outputs that its request asks for.
        as_it_comes: whether somebody reads `progress` before the text has ended.
        prompt: int32 (tokens,), what the model reads; None before `Steps.begin`.
        max_length: how many tokens it may have.
        uniform: the numbers that draw them.
        token_ids: those so far.
        log_probabilities: theirs.
        progress: how far it is.
    """

    begin: SignatureInfo
    inputs: Arrays
    outputs: Collection[str] = ()
    as_it_comes: bool = False
    prompt: Any = None
    max_length: int = 0
    uniform: Any = None
    token_ids: list[int] = field(default_factory=list)
    log_probabilities: list[np.float32] = field(default_factory=list)
    progress: Progress = field(default_factory=Progress)

    @property
    def stops(self) -> list[bytes]:
        """Its stop strings."""
        return [stop for stop in self.inputs["stop"][0] if stop]

    @property
    def num_read(self) -> int:
        """How many tokens the model must have read to write the next one."""
        return len(self.prompt) - 1 + len(self.token_ids)

    def option(self, name: str) -> Any:
        """Returns the value of an option of decoding."""
        return self.inputs[name][0]


@dataclass(eq=False)
class Rows:
    """Texts that the model reads or writes together.

    Attributes:
        texts: one per row.
        cache: keys and values of the columns that it has read, each (rows, heads, columns, size).
        num_empty: int32 (rows,), how many columns before each text are empty.
        unread: int32 (rows, columns), the tokens to read before the next token can be written.
    """

    texts: list[Text]
    cache: list[np.ndarray]
    num_empty: np.ndarray
    unread: np.ndarray

    @property
    def width(self) -> int:
        """The number of columns, read or not."""
        return self.cache[0].shape[_COLUMNS] + self.unread.shape[1]

    def keep(self, texts: Container[Text]) -> None:
        """Removes all other texts, and the columns that only they had."""
        rows = [row for row, text in enumerate(self.texts) if text in texts]
        if len(rows) == len(self.texts):
            return
        self.texts = [self.texts[row] for row in rows]
        self.num_empty = self.num_empty[rows]
        self.unread = self.unread[rows]
        first = min(self.num_empty.min(initial=self.width), self.cache[0].shape[_COLUMNS])
        self.num_empty = self.num_empty - first
        self.cache = [np.ascontiguousarray(leaf[rows, :, first:]) for leaf in self.cache]

    def join(self, others: "Rows") -> None:
        """Adds rows; all tokens of both have been read."""
        width = max(self.width, others.width)
        lacks, lack = width - self.width, width - others.width
        self.cache = [
            np.concatenate([_widened(mine, lacks), _widened(theirs, lack)])
            for mine, theirs in zip(self.cache, others.cache, strict=True)
        ]
        self.num_empty = np.concatenate([self.num_empty + lacks, others.num_empty + lack])
        self.texts = self.texts + others.texts
        self.unread = np.zeros((len(self.texts), 0), np.int32)


class Steps:
    """The steps of a model.

    Args:
        model: a model that `takes` some signature.

    Attributes:
        bytes_per_token: the memory of a column of a row.
    """

    def __init__(self, model: SavedModel) -> None:
        self._model = model
        inputs = model.steps[READ].inputs
        leaves = [info for name, info in sorted(inputs.items()) if name.startswith(CACHE)]
        self._empty = [
            np.zeros([size or 0 for size in info.shape or ()], info.dtype.as_numpy_dtype)
            for info in leaves
        ]
        self._cache = sorted(name for name in inputs if name.startswith(CACHE))
        self.bytes_per_token = sum(
            leaf.itemsize * leaf.shape[1] * leaf.shape[3] for leaf in self._empty
        )

    def begin(self, text: Text) -> None:
        """Turns a text's prompt into tokens.

        Raises:
            RequestError: the prompt is too long, or an option is out of range.
        """
        begun = self._model.step(text.begin, text.inputs)
        text.prompt = begun["token_ids"][0, : begun["num_tokens"][0]]
        text.max_length = int(begun["max_length"][0])
        text.uniform = begun["uniform"][0]
        text.progress = Progress(ended=not text.max_length)

    def rows(self, texts: Sequence[Text]) -> Rows:
        """Returns rows of texts of which the model has read nothing."""
        read = [[*text.prompt, *text.token_ids][:-1] for text in texts]
        width = max(map(len, read), default=0)
        unread = np.zeros((len(texts), width), np.int32)
        for row, token_ids in enumerate(read):
            unread[row, width - len(token_ids) :] = token_ids
        num_empty = np.array([width - len(token_ids) for token_ids in read], np.int32)
        cache = [np.repeat(leaf, len(texts), axis=0) for leaf in _one_row(self._empty)]
        return Rows(list(texts), cache, num_empty, unread)

    def read(self, rows: Rows, most: int) -> int:
        """Reads some of the unread columns, about as many tokens as `most`; returns how many."""
        columns = min(rows.unread.shape[1], max(1, most // max(1, len(rows.texts))))
        if columns:
            part, rows.unread = rows.unread[:, :columns], rows.unread[:, columns:]
            self._run(READ, rows, {"token_ids": np.ascontiguousarray(part)})
        return columns * len(rows.texts)

    def write(self, rows: Rows) -> None:
        """Writes the next token of each text."""
        texts = rows.texts
        options = {
            name: np.array([text.option(name) for text in texts])
            for name in ("temperature", "top_k", "top_p", "repetition_penalty")
        }
        are_penalized = options["repetition_penalty"].max() != 1
        had = [
            [*text.prompt, *text.token_ids] if are_penalized else text.prompt[:1] for text in texts
        ]
        inputs = {
            "token_ids": np.array([(*text.prompt[-1:], *text.token_ids)[-1] for text in texts]),
            "had": _matrix(had, [token_ids[0] for token_ids in had]),
            "uniform": np.array([text.uniform[len(text.token_ids)] for text in texts]),
            **options,
        }
        written = self._run(STEP, rows, inputs)
        for text, token_id, log_probability in zip(
            texts, written["token_ids"].tolist(), written["log_probability"], strict=True
        ):
            text.token_ids.append(token_id)
            text.log_probabilities.append(log_probability)
        self._note(texts, written["is_end"])

    def _run(self, name: str, rows: Rows, inputs: Arrays) -> Arrays:
        cache = dict(zip(self._cache, rows.cache, strict=True))
        num_empty = {"num_empty": rows.num_empty}
        outputs = self._model.step(self._model.steps[name], {**inputs, **num_empty, **cache})
        rows.cache = [outputs[name] for name in self._cache]
        return outputs

    def _note(self, texts: Sequence[Text], are_ends: np.ndarray) -> None:
        """Updates the progress of texts after a step; spells those that somebody reads."""
        ended = [
            bool(is_end) or len(text.token_ids) >= text.max_length
            for text, is_end in zip(texts, are_ends, strict=True)
        ]
        spelled = [
            text
            for text, is_over in zip(texts, ended, strict=True)
            if is_over or text.as_it_comes or text.stops
        ]
        spellings = self._spelled(spelled)
        for text, is_end, is_over in zip(texts, are_ends.tolist(), ended, strict=True):
            spelling = spellings.get(text, {})
            is_stopped = bool(spelling.pop("is_stopped", False))
            text.progress = Progress(
                spelling.pop("text", b"").decode("utf-8", "replace"),
                len(text.token_ids),
                text.progress.log_probability + text.log_probabilities[-1],
                is_end or is_stopped,
                is_over or is_stopped,
                spelling,
            )

    def _spelled(self, texts: Sequence[Text]) -> dict[Text, dict[str, Any]]:
        """Returns the outputs of TEXT for each text, with those for its tokens if it needs them."""
        if not texts:
            return {}
        names = {"text", "is_stopped"}.union(*(text.outputs for text in texts))
        most = max(text.inputs["stop"].shape[1] for text in texts)
        stops = [[*text.stops, *[b""] * most][: max(1, most)] for text in texts]
        outputs = self._model.step(
            self._model.steps[TEXT],
            {
                "token_ids": _matrix([text.token_ids for text in texts], [0] * len(texts)),
                "num_tokens": np.array([len(text.token_ids) for text in texts], np.int32),
                "stop": np.array(stops, object),
            },
            names,
        )
        return {
            text: {name: array[row] for name, array in outputs.items()}
            for row, text in enumerate(texts)
        }


def beginning(model: SavedModel, signature: SignatureInfo) -> SignatureInfo | None:
    """Returns the signature whose steps write what another one answers; None if there is none.

    It has the same prompts as inputs, and all the options.
    """
    names = set(signature.inputs)
    is_text = (
        {"text", "num_new_tokens"}
        <= set(signature.outputs)
        <= {
            *_OUTPUTS,
            *_TOKENS,
            "token_log_probabilities",
        }
    )
    for name in (PROMPTS, CONVERSATIONS) if is_text else ():
        begin = model.steps.get(name)
        if begin is not None and set(begin.inputs) - set(_options(model)) <= names <= set(
            begin.inputs
        ):
            return begin
    return None


def texts_of(
    model: SavedModel,
    signature: SignatureInfo,
    begin: SignatureInfo,
    inputs: Arrays,
    *,
    as_it_comes: bool = False,
) -> list[Text]:
    """Returns the rows of a request as texts, with the export's values of options that it lacks."""
    (rows,) = {array.shape[0] for array in inputs.values()}
    options = _options(model)
    defaults: dict[str, Any] = {}
    for name in begin.inputs.keys() - inputs.keys():
        value = options[name]
        if name == "stop":
            value = [[stop.encode() for stop in value] or [b""]]
        dtype = object if name == "stop" else begin.inputs[name].dtype.as_numpy_dtype
        defaults[name] = np.array(value if name == "stop" else [value], dtype)
    return [
        Text(
            begin,
            {name: array[row : row + 1] for name, array in inputs.items()} | defaults,
            signature.outputs.keys(),
            as_it_comes,
        )
        for row in range(rows)
    ]


def outputs_of(texts: Sequence[Text], signature: SignatureInfo) -> dict[str, np.ndarray]:
    """Returns a signature's outputs for texts that have ended."""
    return _outputs(texts, signature, 0, max((text.max_length for text in texts), default=0))


def _outputs(
    texts: Sequence[Text], signature: SignatureInfo, start: int, end: int
) -> dict[str, np.ndarray]:
    """Returns outputs for texts as they are, with their tokens from one position to another."""

    def matrix(rows: Sequence[Sequence[Any]], pad: Any, dtype: Any) -> np.ndarray:
        lines = [[*row[start:end], *[pad] * (end - max(start, len(row)))] for row in rows]
        return np.array(lines, dtype).reshape(len(lines), end - start)

    of_tokens = {
        name: matrix([text.progress.tokens.get(name, ()) for text in texts], b"", object)
        for name in signature.outputs.keys() & _TOKENS
    }
    if _LOG_PROBABILITIES in signature.outputs:
        rows = [text.log_probabilities[: text.progress.num_new_tokens] for text in texts]
        of_tokens[_LOG_PROBABILITIES] = matrix(rows, 0, np.float32)
    whole = signature.outputs.keys() & _OUTPUTS.keys()
    return {name: _OUTPUTS[name](texts) for name in whole} | of_tokens


class Parts:
    """The outputs for a text in parts, while it is written.

    Args:
        text: the text.
        signature: the signature whose outputs to return.
    """

    def __init__(self, text: Text, signature: SignatureInfo) -> None:
        self._text = text
        self._signature = signature
        self._settled = Settled([stop.decode("utf-8", "replace") for stop in text.stops])
        self._num_tokens = 0  # in the earlier parts
        self._is_complete = False

    def next(self) -> dict[str, np.ndarray] | None:
        """Returns what has been added; None if that is no whole character yet.

        The last part has the final outputs, even if it adds no text.
        """
        progress = self._text.progress
        piece = self._settled.add(progress.text, is_whole=progress.ended)
        if self._is_complete or not (piece or progress.ended):
            return None
        self._is_complete = progress.ended
        start, self._num_tokens = self._num_tokens, progress.num_new_tokens
        outputs = _outputs([self._text], self._signature, start, self._num_tokens)
        return outputs | {"text": np.array([piece.encode()], object)}


def _options(model: SavedModel) -> dict[str, Any]:
    return json.loads(model.definitions[OPTIONS_SIGNATURE].method_name)


def _one_row(leaves: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [np.zeros((1, *leaf.shape[1:]), leaf.dtype) for leaf in leaves]


def _widened(leaf: np.ndarray, columns: int) -> np.ndarray:
    """Returns a part of a cache with more empty columns before the others."""
    return np.pad(leaf, [(0, 0), (0, 0), (columns, 0), (0, 0)]) if columns else leaf


def _matrix(rows: Sequence[Sequence[int]], padding: Sequence[int]) -> np.ndarray:
    """Returns tokens as int32 (rows, length), each row with its own padding after them."""
    width = max(map(len, rows))
    matrix = np.empty((len(rows), width), np.int32)
    for row, (token_ids, pad) in enumerate(zip(rows, padding, strict=True)):
        matrix[row, : len(token_ids)], matrix[row, len(token_ids) :] = token_ids, pad
    return matrix


def _column(dtype: Any, value: Callable[[Text], Any]) -> Callable[[Sequence[Text]], np.ndarray]:
    return lambda texts: np.array([value(text) for text in texts], dtype)


_OUTPUTS = {
    "text": _column(object, lambda text: text.progress.text.encode()),
    "num_new_tokens": _column(np.int32, lambda text: text.progress.num_new_tokens),
    "log_probability": _column(np.float32, lambda text: text.progress.log_probability),
    "finished": _column(bool, lambda text: text.progress.finished),
    "num_prompt_tokens": _column(np.int32, lambda text: len(text.prompt)),
}
