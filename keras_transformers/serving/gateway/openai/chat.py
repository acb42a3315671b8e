"""Answers conversations: /v1/chat/completions."""

import functools
from collections.abc import Iterator
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
    row_of_strings,
    usage,
)
from keras_transformers.serving.gateway.refusals import refusal

__all__: list[str] = []

routes = openai_router()
_SIGNATURES = ("chat_complete", "chat_tokens", "chat_choose")


class TextPart(Body):
    """A part of a message."""

    type: Literal["text"] = Field(description="Images, sounds and files are not supported.")
    text: str = Field(description="The text.")


def _as_parts(value: Json) -> Json:
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    if not isinstance(value, list):
        raise PydanticCustomError("content", "must be a string or a list of parts with texts")
    return value


class Message(Body):
    """A message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"] = Field(
        description='Whose it is; "developer" is the same as "system".'
    )
    content: Annotated[
        ListOf[TextPart],
        BeforeValidator(_as_parts, json_schema_input_type=str | list[TextPart]),
    ] = Field(description="The text, or parts, which are joined by line breaks.")
    name: Annotated[Json, Neutral()] = None
    refusal: Annotated[Json, Neutral()] = None
    annotations: Annotated[Json, Neutral([])] = None
    audio: Annotated[Json, Neutral()] = None
    function_call: Annotated[Json, Neutral()] = None
    tool_calls: Annotated[Json, Neutral([])] = None
    tool_call_id: Annotated[Json, Neutral()] = None

    @property
    def column(self) -> tuple[str, str]:
        """The role and the text, as signatures take them."""
        role = "system" if self.role == "developer" else self.role
        return role, "\n".join(part.text for part in self.content)


class ChatRequest(GenerationRequest):
    """A conversation to answer."""

    messages: ListOf[Message] = Field(
        min_length=1,
        max_length=10_000,
        description="The conversation; the last message is the user's.",
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
    tools: Annotated[Json, Neutral([])] = None
    tool_choice: Annotated[Json, Neutral("none", "auto")] = None
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
    content: str = Field(description="The text, without the stop string.")
    refusal: None = Field(description="Models here do not refuse.")


class ChatChoice(BaseModel):
    """One of the answers."""

    index: int = Field(description="From 0 to n - 1.")
    message: AssistantMessage = Field(description="The text of the answer.")
    logprobs: ChatLogprobs | None = Field(description="Its tokens, if asked for.")
    finish_reason: FinishReason = Field(
        description='"length" if the most tokens or the last position are reached, else "stop".'
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


class ChunkChoice(BaseModel):
    """A piece of one of the answers."""

    index: int = Field(description="From 0 to n - 1.")
    delta: Delta = Field(description="What it adds.")
    logprobs: ChatLogprobs | None = Field(description="Its tokens, if asked for.")
    finish_reason: FinishReason | None = Field(description="In the last chunk of the answer.")


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
    roles, texts = zip(*(message.column for message in request.messages), strict=True)
    rows = request.choices
    writer = Writer(
        request,
        model,
        {"roles": row_of_strings(roles, rows), "texts": row_of_strings(texts, rows)},
        _SIGNATURES,
        "messages",
        with_tokens=bool(request.logprobs),
    )
    if request.stream:
        first_fields = envelope(request, "chatcmpl", "chat.completion.chunk")
        choices_of = functools.partial(_chunk_choices, request)
        items = chunks(request, writer, ChatCompletionChunk, first_fields, choices_of)
        return await event_stream(items, error_shape, end="[DONE]")
    rows_written = await writer.write()
    choices = [
        ChatChoice(
            index=index,
            message=AssistantMessage(role="assistant", content=row.text, refusal=None),
            logprobs=_logprobs(request, row),
            finish_reason=row.finish_reason,
        )
        for index, row in enumerate(rows_written)
    ]
    return answered(
        ChatCompletion(
            **envelope(request, "chatcmpl", "chat.completion"),
            choices=choices,
            usage=usage(rows_written, request.choices),
        )
    )


def _chunk_choices(
    request: ChatRequest, row: int, piece: Written | None, before: Written | None
) -> Iterator[ChunkChoice]:
    def choice(
        delta: Delta,
        logprobs: ChatLogprobs | None = None,
        finish_reason: FinishReason | None = None,
    ) -> ChunkChoice:
        return ChunkChoice(index=row, delta=delta, logprobs=logprobs, finish_reason=finish_reason)

    if before is None:
        yield choice(Delta(role="assistant", content=""))
    if piece is None:
        assert before is not None
        yield choice(Delta(), finish_reason=before.finish_reason)
    elif piece.text or piece.tokens:
        yield choice(Delta(content=piece.text), logprobs=_logprobs(request, piece))


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
