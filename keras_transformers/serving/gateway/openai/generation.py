"""Runs generators for chat and for completions, and defines the fields that both requests have."""

import asyncio
import contextlib
import re
import secrets
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, BeforeValidator, Field

from keras_transformers.dependencies.untyped import Json
from keras_transformers.serving.gateway.apis import Body, ListOf
from keras_transformers.serving.gateway.backend import Model
from keras_transformers.serving.gateway.openai.fields import IGNORED, CompletionUsage, Neutral
from keras_transformers.serving.gateway.refusals import refusal
from keras_transformers.serving.gateway.texts import check_count, column
from keras_transformers.serving.protocol.errors import Code, RequestError
from keras_transformers.serving.protocol.floats import shortest
from keras_transformers.serving.protocol.signatures import Arrays
from keras_transformers.tasks.generation.conversations import OPTIONS, decoding_options

FinishReason = Literal["stop", "length"]
Outputs = Mapping[str, np.ndarray]

_INTEGERS = ("max_length", "top_k")  # of the options; `seed` has more bits
_SMALLEST = float(np.finfo(np.float32).tiny)  # a smaller temperature is the same as 0
_STREAMS_AT_ONCE = 8  # of one request
_IMPOSSIBLE = -9999.0  # OpenAI's log-probability of what cannot occur: JSON has no infinity
_TEXTS = ("prompt", "conversation", "roles", "texts")  # words for what a model goes on from
_CHOICE = "structured_outputs.choice"
_WORD = re.compile(r"\w+")
_Chunk = TypeVar("_Chunk", bound=BaseModel)


def _as_list(value: Json) -> Json:
    return [value] if isinstance(value, str) else value


Text = Annotated[str, Field(min_length=1)]
_Stops = Annotated[
    ListOf[Text],
    BeforeValidator(_as_list, json_schema_input_type=str | list[Text]),
]


class StructuredOutputs(Body):
    """What the model may write, as vLLM's servers take it."""

    choice: ListOf[Text] = Field(
        min_length=1,
        description="The answer is the likeliest of these strings; nothing else applies to it.",
    )


class StreamOptions(Body):
    """What a stream has."""

    include_usage: bool | None = Field(None, description="Whether it ends with a chunk of usage.")
    include_obfuscation: bool | None = Field(None, description=IGNORED)


class GenerationRequest(Body):
    """The fields that requests for chat and for completions share.

    What a request leaves out is as the model's export says: the pipeline's options of that time.
    """

    model: str = Field(description="NAME, NAME@VERSION or NAME@LABEL.")
    max_tokens: int | None = Field(
        None,
        ge=1,
        le=2**31 - 1,
        description="The most tokens to write; the export's own by default.",
    )
    temperature: float | None = Field(
        None, ge=0, le=2, description="Sample at this temperature; 0 takes the likeliest token."
    )
    top_p: float | None = Field(
        None, gt=0, le=1, description="Sample from the likeliest tokens with this probability."
    )
    top_k: int | None = Field(
        None, ge=0, le=2**31 - 1, description="Sample from so many tokens; 0 for all. As in vLLM."
    )
    repetition_penalty: float | None = Field(
        None, gt=0, le=100, description="Makes repeated tokens less likely; 1 does not. As in vLLM."
    )
    seed: int | None = Field(
        None,
        ge=-(2**63),
        le=2**63 - 1,
        description="Of the first choice; the next has the next one. A random one by default.",
    )
    stop: _Stops | None = Field(
        None, max_length=16, description="A string or strings that end the text, not part of it."
    )
    n: int | None = Field(None, ge=1, le=128, description="The number of choices; 1 by default.")
    stream: bool | None = Field(None, description="Whether to answer with server-sent events.")
    stream_options: StreamOptions | None = Field(None, description="What a stream has.")
    structured_outputs: StructuredOutputs | None = Field(
        None, description="What the model may write: one of some strings. As in vLLM."
    )
    user: str | None = Field(None, description=IGNORED)
    frequency_penalty: Annotated[Json, Neutral(0)] = None
    presence_penalty: Annotated[Json, Neutral(0)] = None
    logit_bias: Annotated[Json, Neutral({})] = None

    @property
    def choices(self) -> int:
        """The number of choices for each prompt."""
        return self.n or 1

    @property
    def length_field(self) -> str:
        """The field with the most tokens to write."""
        return "max_tokens"

    @property
    def with_usage(self) -> bool:
        """Whether a stream ends with the usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def options(self, model: Model, rows: int) -> dict[str, np.ndarray]:
        """Returns the inputs of a signature that say how to decode, for each row.

        Args:
            model: the model, whose export has the defaults.
            rows: how many there are: all choices of a prompt, then those of the next.
        """
        chosen: dict[str, Any] = {
            "max_length": getattr(self, self.length_field),
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "repetition_penalty": self.repetition_penalty,
            "stop": self.stop,
        }
        chosen = {name: value for name, value in chosen.items() if value is not None}
        if self.temperature is not None and self.temperature < _SMALLEST:
            del chosen["temperature"]
            chosen["top_k"] = 1
        options = decoding_options(model.options, chosen)
        stop, seed = list(options.pop("stop")) or [""], options.pop("seed")
        if self.seed is not None:  # beyond the largest, seeds go on with the smallest
            seeds = np.int64(self.seed) + np.arange(rows, dtype=np.int64) % self.choices
        elif options["top_k"] == 1:
            seeds = np.full(rows, seed, np.int64)  # which nothing depends on
        else:
            seeds = np.array([secrets.randbits(63) for _ in range(rows)], np.int64)
        columns = {
            name: np.full(rows, value, np.int32 if name in _INTEGERS else np.float32)
            for name, value in options.items()
        }
        return {**columns, "seed": seeds, "stop": row_of_strings(stop, rows)}


def row_of_strings(texts: Sequence[str], rows: int) -> np.ndarray:
    """Returns the same strings in each row, (rows, strings), as bytes that the rows share."""
    return np.repeat(column(texts)[None], rows, axis=0)


def row_of_bytes(texts: Sequence[bytes], rows: int) -> np.ndarray:
    """Returns the same bytes in each row, (rows, strings), which share them."""
    array = np.empty(len(texts), object)
    array[:] = texts
    return np.repeat(array[None], rows, axis=0)


@dataclass(frozen=True)
class Token:
    """A token of a text, or a whole choice of `structured_outputs`.

    Attributes:
        content: what it adds to the text.
        log_probability: under the model, before any option.
        others: the log-probabilities of the choices, the likeliest first.
    """

    content: bytes
    log_probability: float
    others: tuple[tuple[bytes, float], ...] = ()

    @property
    def text(self) -> str:
        """The content as text, with U+FFFD for parts of characters."""
        return self.content.decode("utf-8", "replace")


@dataclass(frozen=True)
class Written:
    """A text that a model has written, or a piece of one.

    Attributes:
        text: the text, or the piece.
        finish_reason: why it ended; of a piece, why it would have ended here.
        num_prompt_tokens: tokens that the model read; None from exports of version 1.0.
        num_new_tokens: tokens of the text so far.
        tokens: those of the text or the piece, if they were asked for.
    """

    text: str
    finish_reason: FinishReason
    num_prompt_tokens: int | None
    num_new_tokens: int | None
    tokens: tuple[Token, ...] = ()


def usage(rows: Sequence[Written], choices: int) -> CompletionUsage | None:
    """Returns how many tokens rows took; None if the model's export does not count them.

    Args:
        rows: all choices of a prompt, then those of the next.
        choices: how many there are for each prompt, which counts once.
    """
    read = [row.num_prompt_tokens for row in rows[::choices]]
    new = [row.num_new_tokens for row in rows]
    if None in read or None in new:
        return None
    prompt, completion = sum(filter(None, read)), sum(filter(None, new))
    return CompletionUsage(
        prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion
    )


class Writer:
    """Asks a model for the texts of one request.

    Args:
        request: the request.
        model: the model.
        texts: the inputs with the prompts or the conversations, a row for each choice.
        signatures: the names of the signatures to write with: plain, with tokens, and with choices.
        field: the field of the prompts, which errors of the model concern.
        with_tokens: whether to return tokens.
    """

    def __init__(
        self,
        request: GenerationRequest,
        model: Model,
        texts: Arrays,
        signatures: tuple[str, str, str],
        field: str,
        *,
        with_tokens: bool,
    ) -> None:
        plain, tokens, choose = signatures
        self._model, self._field, self._with_tokens = model, field, with_tokens
        # Word in a model's refusal -> the field that it is about.
        self._fields = {
            **dict.fromkeys(_TEXTS, field),
            **dict.fromkeys(("choice", "choices"), _CHOICE),
            **{name: name for name in OPTIONS if name in type(request).model_fields},
            "max_length": request.length_field,
        }
        self.rows = len(next(iter(texts.values())))
        self._choices: list[bytes] = []
        if request.structured_outputs is not None:
            if request.choices > 1:
                raise refusal("n: must be 1 where the answer is the likeliest choice", field="n")
            self._signature = choose
            model.signature(choose, "choose between strings")
            check_count(model, request.structured_outputs.choice * self.rows, _CHOICE)
            choices = row_of_strings(request.structured_outputs.choice, self.rows)
            self._choices = choices[0].tolist()
            self._inputs = {**texts, "choices": choices}
        else:
            self._signature = tokens if with_tokens else plain
            purpose = "return tokens" if with_tokens else "write text"
            model.signature(self._signature, purpose)
            self._inputs = {**texts, **request.options(model, self.rows)}

    async def write(self) -> list[Written]:
        """Returns the texts."""
        with self._fields_of_errors():
            parts = await self._model.parts(self._signature, self._inputs)
        return [
            self._written({name: array[row : row + 1] for name, array in part.items()}, seen=0)
            for part in parts
            for row in range(len(part["text"]))
        ]

    async def stream(self) -> AsyncGenerator[tuple[int, Written | None], None]:
        """Yields (row, piece) as the model writes, and (row, None) at the end of each row."""
        streams = [
            self._stream({name: array[row : row + 1] for name, array in self._inputs.items()})
            for row in range(self.rows)
        ]
        async with contextlib.aclosing(merged(streams, at_once=_STREAMS_AT_ONCE)) as pieces:
            async for row, piece in pieces:
                yield row, piece

    async def _stream(self, inputs: Arrays) -> AsyncGenerator[Written, None]:
        if self._choices:  # the choice is known at once
            with self._fields_of_errors():
                outputs = await self._model.predict(self._signature, inputs)
            yield self._written(outputs, seen=0)
            return
        seen, is_empty = 0, True
        with self._fields_of_errors():
            stream = self._model.stream(self._signature, inputs)
            async with contextlib.aclosing(stream) as pieces:  # type: ignore[type-var]
                async for piece in pieces:
                    written = self._written(piece, seen)
                    seen, is_empty = seen + len(written.tokens), False
                    yield written
        if is_empty:
            raise RequestError(Code.INTERNAL, "the model's server sent an empty stream")

    def _written(self, outputs: Outputs, seen: int) -> Written:
        """Returns one row of outputs.

        Args:
            outputs: name -> array with one row.
            seen: how many tokens of the text are in earlier pieces.
        """
        row = {name: array[0] for name, array in outputs.items()}
        num_new_tokens = int(row["num_new_tokens"]) if "num_new_tokens" in row else None
        finished = bool(row.get("finished", True))
        read = row.get("num_prompt_tokens")
        tokens: tuple[Token, ...] = ()
        if self._with_tokens and self._choices:
            tokens = (self._chosen(row),)
        elif self._with_tokens:
            texts = row.get("token_bytes", row["tokens"])[: (num_new_tokens or 0) - seen]
            scores = log_probabilities(row["token_log_probabilities"][: len(texts)])
            tokens = tuple(map(Token, texts, scores))
        return Written(
            text=row["text"].decode("utf-8", "replace"),
            finish_reason="stop" if finished else "length",
            num_prompt_tokens=None if read is None else int(read),
            num_new_tokens=num_new_tokens,
            tokens=tokens,
        )

    def _chosen(self, row: Mapping[str, Any]) -> Token:
        with np.errstate(divide="ignore"):
            scores = log_probabilities(np.log(row["probabilities"]))
        ranked = sorted(zip(self._choices, scores, strict=True), key=lambda pair: -pair[1])
        return Token(row["text"], dict(ranked)[row["text"]], tuple(ranked))

    @contextlib.contextmanager
    def _fields_of_errors(self) -> Iterator[None]:
        """Adds the field to a model's refusal of its inputs: the first that its words name."""
        try:
            yield
        except RequestError as error:
            if error.code != Code.INVALID_ARGUMENT:
                raise
            words = _WORD.findall(error.message)
            fields = (self._fields[word] for word in words if word in self._fields)
            raise refusal(error.message, field=next(fields, self._field)) from None


def log_probabilities(values: np.ndarray) -> list[float]:
    """Returns float32 log-probabilities as JSON can have them."""
    return [max(value, _IMPOSSIBLE) for value in shortest(np.asarray(values, np.float32)).tolist()]


async def merged(
    streams: Sequence[AsyncGenerator[Written, None]], *, at_once: int
) -> AsyncGenerator[tuple[int, Written | None], None]:
    """Yields (index, item) of several streams as they come, and (index, None) when one ends.

    All are closed when it is.

    Args:
        streams: the streams.
        at_once: how many of them run at the same time.
    """
    places = asyncio.Semaphore(at_once)
    queue: asyncio.Queue[tuple[int, Written | None, Exception | None]] = asyncio.Queue(1)

    async def pump(index: int, stream: AsyncGenerator[Written, None]) -> None:
        failure = None
        async with places, contextlib.aclosing(stream):
            try:
                async for item in stream:
                    await queue.put((index, item, None))
            except Exception as error:
                failure = error
            await queue.put((index, None, failure))

    pumps = [asyncio.ensure_future(pump(*pair)) for pair in enumerate(streams)]
    try:
        running = len(pumps)
        while running:
            index, item, failure = await queue.get()
            if failure is not None:
                raise failure
            running -= item is None
            yield index, item
    finally:
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


def envelope(request: GenerationRequest, prefix: str, kind: str) -> dict[str, Any]:
    """Returns the first fields of an answer, or of all chunks of a stream.

    Args:
        request: the request.
        prefix: the start of the new id.
        kind: the answer's `object`.
    """
    return {
        "id": f"{prefix}-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": request.model,
    }


async def chunks(
    request: GenerationRequest,
    writer: Writer,
    chunk: Callable[..., _Chunk],
    first_fields: Mapping[str, Any],
    choices: Callable[[int, Written | None, Written | None], Iterable[BaseModel]],
) -> AsyncGenerator[_Chunk, None]:
    """Yields the chunks of a stream, one for each choice, and the usage if it is asked for.

    Args:
        request: the request.
        writer: writes the texts.
        chunk: makes a chunk of its fields.
        first_fields: see `envelope`.
        choices: (row, piece, the row's piece before) -> what the piece adds. The piece is None at
            the row's end, and the one before it is None at its start.
    """
    common = {**first_fields} | ({"usage": None} if request.with_usage else {})
    last: dict[int, Written] = {}
    async with contextlib.aclosing(writer.stream()) as pieces:
        async for row, piece in pieces:
            for choice in choices(row, piece, last.get(row)):
                yield chunk(**common, choices=[choice])
            if piece is not None:
                last[row] = piece
    tokens = usage([last[row] for row in range(writer.rows)], request.choices)
    if request.with_usage and tokens is not None:
        yield chunk(**common | {"choices": [], "usage": tokens})
