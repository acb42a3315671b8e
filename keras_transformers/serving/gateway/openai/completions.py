"""Continues prompts: /v1/completions."""

import codecs
import functools
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from fastapi import Response
from pydantic import BaseModel, Field

from keras_transformers.dependencies.untyped import Json
from keras_transformers.serving.gateway.apis import Asked, answered, event_stream
from keras_transformers.serving.gateway.openai.errors import error_shape, openai_router
from keras_transformers.serving.gateway.openai.fields import CompletionUsage, Neutral, Texts
from keras_transformers.serving.gateway.openai.generation import (
    FinishReason,
    GenerationRequest,
    Token,
    Writer,
    Written,
    chunks,
    envelope,
    usage,
)
from keras_transformers.serving.gateway.refusals import refusal
from keras_transformers.serving.gateway.texts import check_count, column

__all__: list[str] = []

routes = openai_router()
_SIGNATURES = ("complete", "complete_tokens", "choose")


class CompletionRequest(GenerationRequest):
    """Prompts to continue."""

    prompt: Texts = Field(
        min_length=1, description="A text or texts, up to --max-rows / n; not token ids."
    )
    logprobs: int | None = Field(
        None,
        ge=0,
        description="0 returns the tokens; more lists so many of structured_outputs.choice.",
    )
    echo: Annotated[Json, Neutral(False)] = None
    best_of: Annotated[Json, Neutral(1)] = None
    suffix: Annotated[Json, Neutral("")] = None


class CompletionLogprobs(BaseModel):
    """The tokens of a text or of a piece, with those of a stop string."""

    tokens: list[str] = Field(description="Their texts; U+FFFD for a part of a character.")
    token_logprobs: list[float] = Field(description="Before any option applies.")
    top_logprobs: list[dict[str, float]] | None = Field(
        description="Of the likeliest of structured_outputs.choice, among all of them."
    )
    text_offset: list[int] = Field(description="Characters of the text before each token.")


class CompletionChoice(BaseModel):
    """One of the texts, or a piece of it."""

    index: int = Field(description="All n of the first prompt come first.")
    text: str = Field(description="The text after the prompt, without the stop string.")
    logprobs: CompletionLogprobs | None = Field(description="Its tokens, if asked for.")
    finish_reason: FinishReason | None = Field(
        description='"length" if the most tokens or the last position are reached, else "stop"; '
        "null in a piece before the end."
    )


class Completion(BaseModel):
    """The continuations of prompts, or an event of a stream, which ends with `data: [DONE]`."""

    id: str = Field(description="A new one for each answer, the same for all its chunks.")
    object: Literal["text_completion"] = Field(description="The type.")
    created: int = Field(description="Seconds since 1970.")
    model: str = Field(description="As in the request.")
    choices: list[CompletionChoice] = Field(description="The texts.")
    usage: CompletionUsage | None = Field(
        default=None,
        description="In the last event of a stream, if asked for; null for old exports.",
    )


@routes.post(
    "/completions",
    response_model=Completion,
    response_model_exclude_unset=True,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def complete(request: CompletionRequest, models: Asked) -> Response:
    """Continues prompts; with `stream`, in events as the texts are written."""
    if request.logprobs and request.structured_outputs is None:
        raise refusal(
            "logprobs: other tokens are not supported: send 0 for those of the text",
            field="logprobs",
        )
    model = await models.find(request.model)
    prompts = [prompt for prompt in request.prompt for _ in range(request.choices)]
    check_count(model, prompts, "prompt")
    writer = Writer(
        request,
        model,
        {"prompt": column(prompts)},
        _SIGNATURES,
        "prompt",
        with_tokens=request.logprobs is not None,
    )
    first_fields = envelope(request, "cmpl", "text_completion")
    if request.stream:
        logprobs = [_Logprobs(request) for _ in range(writer.rows)]
        choices_of = functools.partial(_chunk_choices, logprobs)
        items = chunks(request, writer, Completion, first_fields, choices_of)
        return await event_stream(items, error_shape, end="[DONE]")
    rows = await writer.write()
    return answered(
        Completion(
            **first_fields,
            choices=[
                CompletionChoice(
                    index=index,
                    text=row.text,
                    logprobs=_Logprobs(request).of(row),
                    finish_reason=row.finish_reason,
                )
                for index, row in enumerate(rows)
            ],
            usage=usage(rows, request.choices),
        )
    )


def _chunk_choices(
    logprobs: Sequence["_Logprobs"], row: int, piece: Written | None, before: Written | None
) -> Iterator[CompletionChoice]:
    if piece is None:
        assert before is not None
        reason = before.finish_reason
        yield CompletionChoice(index=row, text="", logprobs=None, finish_reason=reason)
    elif piece.text or piece.tokens:
        tokens = logprobs[row].of(piece)
        yield CompletionChoice(index=row, text=piece.text, logprobs=tokens, finish_reason=None)


class _Logprobs:
    """Describes the tokens of one text, piece by piece."""

    def __init__(self, request: CompletionRequest) -> None:
        self._request = request
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset = 0

    def of(self, written: Written) -> CompletionLogprobs | None:
        """Returns the tokens of the text or of its next piece."""
        if self._request.logprobs is None:
            return None
        tokens = written.tokens
        has_others = self._request.structured_outputs is not None
        return CompletionLogprobs(
            tokens=[token.text for token in tokens],
            token_logprobs=[token.log_probability for token in tokens],
            top_logprobs=[self._others(token) for token in tokens] if has_others else None,
            text_offset=[self._after(token) for token in tokens],
        )

    def _others(self, token: Token) -> dict[str, float]:
        return {text.decode(): logprob for text, logprob in token.others[: self._request.logprobs]}

    def _after(self, token: Token) -> int:
        offset = self._offset
        self._offset += len(self._decoder.decode(token.content))
        return offset
