"""Answers conversations: /v1/chat/completions."""

import functools
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from fastapi import Response
from pydantic import BaseModel, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from keras_transformers.dependencies.untyped import Json
from keras_transformers.serving.gateway.apis import (
    Asked,
    Body,
    ListOf,
    answered,
    event_stream,
)
from keras_transformers.serving.gateway.openai.errors import error_shape, openai_router
from keras_transformers.serving.gateway.openai.fields import IGNORED, CompletionUsage, Neutral
from keras_transformers.serving.gateway.openai.generation import (
    FinishReason,
    GenerationRequest,
    Token,
    Writer,
    Written,
    chunks,
    envelope,
    row_of_bytes,
    usage,
)
from keras_transformers.serving.gateway.openai.tools import Calls, ToolCall, columns
from keras_transformers.serving.gateway.refusals import refusal

__all__: list[str] = []

routes = openai_router()
ChatFinishReason = FinishReason | Literal["tool_calls"]
_SIGNATURES = ("chat_complete", "chat_tokens", "chat_choose")


class TextPart(Body):
    """A part of a message."""

    type: Literal["text"] = Field(description="Images, sounds and files are not supported.")
    text: str = Field(description="The text.")


def _as_parts(value: Json) -> Json:
    if value is None:
        return None
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    if not isinstance(value, list):
        raise PydanticCustomError("content", "must be a string or a list of parts with texts")
    return value


class Message(Body):
    """A message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"] = Field(
        description='Whose it is; "developer" is the same as "system".'
    )
    content: Annotated[
        ListOf[TextPart] | None,
        BeforeValidator(_as_parts, json_schema_input_type=str | list[TextPart] | None),
    ] = Field(
        None,
        description="The text, or parts, which are joined by line breaks; not needed beside calls.",
    )
    name: Annotated[Json, Neutral()] = None
    refusal: Annotated[Json, Neutral()] = None
    annotations: Annotated[Json, Neutral([])] = None
    audio: Annotated[Json, Neutral()] = None
    function_call: Annotated[Json, Neutral()] = None
    tool_calls: ListOf[dict[str, Json]] | None = Field(
        None, description="The calls that the assistant asked for, with their `function`."
    )
    tool_call_id: str | None = Field(None, description="Of a tool: the id of the call.")

    @property
    def fields(self) -> dict[str, Json]:
        """The message as `TextGenerator.chat` takes it."""
        content = self.content and "\n".join(part.text for part in self.content)
        fields = {
            "role": "system" if self.role == "developer" else self.role,
            "content": "" if content == [] else content,
            "tool_calls": self.tool_calls or None,
            "tool_call_id": self.tool_call_id,
        }
        return {name: value for name, value in fields.items() if value is not None}


class ChatRequest(GenerationRequest):
    """A conversation to answer."""

    messages: ListOf[Message] = Field(
        min_length=1,
        max_length=10_000,
        description="The conversation; the last message is the user's or a tool's.",
    )
    max_completion_tokens: int | None = Field(
        None, ge=1, le=2**31 - 1, description="The newer name of max_tokens, which it replaces."
    )
    logprobs: bool | None = Field(
        None, description="Whether to return the tokens and their log-probabilities."
    )
    top_logprobs: int | None = Field(
        None, ge=0, description="How many of structured_outputs.choice to list; otherwise 0."
    )
    metadata: dict[str, Json] | None = Field(None, description=IGNORED)
    safety_identifier: str | None = Field(None, description=IGNORED)
    prompt_cache_key: str | None = Field(None, description=IGNORED)
    prompt_cache_options: dict[str, Json] | None = Field(None, description=IGNORED)
    prompt_cache_retention: str | None = Field(None, description=IGNORED)
    service_tier: str | None = Field(None, description=IGNORED)
    parallel_tool_calls: bool | None = Field(None, description=IGNORED)
    store: Annotated[Json, Neutral(False)] = None
    tools: ListOf[dict[str, Json]] | None = Field(
        None, max_length=1000, description="What the model may call: functions with JSON schemas."
    )
    tool_choice: Literal["auto", "none"] | None = Field(
        None, description='"none" leaves out the tools; a call cannot be forced.'
    )
    functions: Annotated[Json, Neutral([])] = None
    function_call: Annotated[Json, Neutral("none", "auto")] = None
    response_format: Annotated[Json, Neutral({"type": "text"})] = None
    modalities: Annotated[Json, Neutral(["text"])] = None
    audio: Annotated[Json, Neutral()] = None
    prediction: Annotated[Json, Neutral()] = None
    reasoning_effort: Annotated[Json, Neutral("none")] = None
    verbosity: Annotated[Json, Neutral("medium")] = None
    web_search_options: Annotated[Json, Neutral()] = None
    moderation: Annotated[Json, Neutral()] = None

    @property
    def length_field(self) -> str:
        """The field with the most tokens to write."""
        return "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"


class TopLogprob(BaseModel):
    """A choice of `structured_outputs`."""

    token: str = Field(description="The choice.")
    logprob: float = Field(description="Its log-probability among all choices.")
    bytes: list[int] = Field(description="The choice in UTF-8.")


class TokenLogprob(BaseModel):
    """A token; where the answer is the likeliest choice, the whole of it."""

    token: str = Field(description="Its text; U+FFFD for a part of a character.")
    logprob: float = Field(description="Its log-probability, before any option applies.")
    bytes: list[int] = Field(description="What it adds to the text; nothing for an end token.")
    top_logprobs: list[TopLogprob] = Field(description="The likeliest choices.")


class ChatLogprobs(BaseModel):
    """The tokens of a text or of a piece, with those of a stop string."""

    content: list[TokenLogprob] = Field(description="The tokens.")


class AssistantMessage(BaseModel):
    """The answer."""

    role: Literal["assistant"] = Field(description="Whose it is.")
    content: str | None = Field(
        description="The text, without the stop string and calls; null beside calls without one."
    )
    refusal: None = Field(description="Models here do not refuse.")
    tool_calls: list[ToolCall] | None = Field(
        default=None, description="The calls, if there are any."
    )


class ChatChoice(BaseModel):
    """One of the answers."""

    index: int = Field(description="From 0 to n - 1.")
    message: AssistantMessage = Field(description="The text of the answer.")
    logprobs: ChatLogprobs | None = Field(description="Its tokens, if asked for.")
    finish_reason: ChatFinishReason = Field(
        description='"length" if the most tokens or the last position are reached, "tool_calls" if '
        'there are calls, else "stop".'
    )


class ChatCompletion(BaseModel):
    """The answers to a conversation."""

    id: str = Field(description="A new one for each answer.")
    object: Literal["chat.completion"] = Field(description="The type.")
    created: int = Field(description="Seconds since 1970.")
    model: str = Field(description="As in the request.")
    choices: list[ChatChoice] = Field(description="The answers.")
    usage: CompletionUsage | None = Field(description="null for exports made by version 1.0.")


class Delta(BaseModel):
    """What a chunk adds to an answer."""

    role: Literal["assistant"] | None = Field(default=None, description="In the first chunk.")
    content: str | None = Field(default=None, description="The piece of text.")
    tool_calls: list[ToolCall] | None = Field(default=None, description="The calls, at the end.")


class ChunkChoice(BaseModel):
    """A piece of one of the answers."""

    index: int = Field(description="From 0 to n - 1.")
    delta: Delta = Field(description="What it adds.")
    logprobs: ChatLogprobs | None = Field(description="Its tokens, if asked for.")
    finish_reason: ChatFinishReason | None = Field(description="In the last chunk of the answer.")


class ChatCompletionChunk(BaseModel):
    """An event of a stream, which ends with `data: [DONE]`."""

    id: str = Field(description="The same for all chunks.")
    object: Literal["chat.completion.chunk"] = Field(description="The type.")
    created: int = Field(description="Seconds since 1970, the same for all chunks.")
    model: str = Field(description="As in the request.")
    choices: list[ChunkChoice] = Field(description="One piece; none beside the usage.")
    usage: CompletionUsage | None = Field(
        default=None, description="In the last chunk, if asked for."
    )


@routes.post(
    "/chat/completions",
    response_model=ChatCompletion | ChatCompletionChunk,
    response_model_exclude_unset=True,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def complete_chat(request: ChatRequest, models: Asked) -> Response:
    """Answers a conversation; with `stream`, in `ChatCompletionChunk` events as it is written."""
    if request.top_logprobs and not (request.structured_outputs and request.logprobs):
        raise refusal(
            "top_logprobs: is not supported without structured_outputs.choice and logprobs: leave "
            "it out, or send 0",
            field="top_logprobs",
        )
    model = await models.find(request.model)
    for place, message in enumerate(request.messages):
        if message.content is None and not message.tool_calls:
            field = f"messages.{place}.content"
            raise refusal(f"{field}: must be a string or a list of parts with texts", field=field)
    tools = request.tools if request.tools and request.tool_choice != "none" else []
    roles, texts = columns(model, [message.fields for message in request.messages], tools)
    rows = request.choices
    writer = Writer(
        request,
        model,
        {"roles": row_of_bytes(roles, rows), "texts": row_of_bytes(texts, rows)},
        _SIGNATURES,
        "messages",
        with_tokens=bool(request.logprobs),
    )
    if request.stream:
        first_fields = envelope(request, "chatcmpl", "chat.completion.chunk")
        calls = [Calls(model) for _ in range(rows)] if tools else []
        choices_of = functools.partial(_chunk_choices, request, calls)
        items = chunks(request, writer, ChatCompletionChunk, first_fields, choices_of)
        return await event_stream(items, error_shape, end="[DONE]")
    rows_written = await writer.write()
    choices = [
        _choice(request, index, row, Calls(model) if tools else None)
        for index, row in enumerate(rows_written)
    ]
    return answered(
        ChatCompletion(
            **envelope(request, "chatcmpl", "chat.completion"),
            choices=choices,
            usage=usage(rows_written, request.choices),
        )
    )


def _choice(request: ChatRequest, index: int, row: Written, calls: Calls | None) -> ChatChoice:
    message = AssistantMessage(role="assistant", content=row.text, refusal=None)
    finish_reason: ChatFinishReason = row.finish_reason
    if calls is not None:
        text = calls.add(row.text)
        rest, tool_calls = calls.end()
        if tool_calls:
            message = AssistantMessage(
                role="assistant", content=text + rest or None, refusal=None, tool_calls=tool_calls
            )
            finish_reason = "tool_calls"
    return ChatChoice(
        index=index,
        message=message,
        logprobs=_logprobs(request, row),
        finish_reason=finish_reason,
    )


def _chunk_choices(
    request: ChatRequest,
    calls: Sequence[Calls],
    row: int,
    piece: Written | None,
    before: Written | None,
) -> Iterator[ChunkChoice]:
    def choice(
        delta: Delta,
        logprobs: ChatLogprobs | None = None,
        finish_reason: ChatFinishReason | None = None,
    ) -> ChunkChoice:
        return ChunkChoice(index=row, delta=delta, logprobs=logprobs, finish_reason=finish_reason)

    if before is None:
        yield choice(Delta(role="assistant", content=""))
    if piece is None:
        assert before is not None
        rest, tool_calls = calls[row].end() if calls else ("", [])
        if rest:
            yield choice(Delta(content=rest))
        if tool_calls:
            yield choice(Delta(tool_calls=tool_calls))
        finish_reason = "tool_calls" if tool_calls else before.finish_reason
        yield choice(Delta(), finish_reason=finish_reason)
    else:
        text = calls[row].add(piece.text) if calls else piece.text
        if text or piece.tokens:
            yield choice(Delta(content=text), logprobs=_logprobs(request, piece))


def _logprobs(request: ChatRequest, written: Written) -> ChatLogprobs | None:
    if not request.logprobs:
        return None

    def others(token: Token) -> list[TopLogprob]:
        return [
            TopLogprob(token=text.decode(), logprob=logprob, bytes=list(text))
            for text, logprob in token.others[: request.top_logprobs or 0]
        ]

    return ChatLogprobs(
        content=[
            TokenLogprob(
                token=token.text,
                logprob=token.log_probability,
                bytes=list(token.content),
                top_logprobs=others(token),
            )
            for token in written.tokens
        ]
    )
