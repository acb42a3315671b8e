"""Reads tools and calls of requests, and writes the calls of answers, for /v1/chat/completions."""

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, Field

from keras_transformers.dependencies.untyped import Json
from keras_transformers.serving.gateway.backend import Model
from keras_transformers.serving.gateway.refusals import RefusalError, refusal
from keras_transformers.tasks.generation.conversations import conversation_columns
from keras_transformers.tasks.generation.tools import template_of_export, tool_format

__all__: list[str] = []

_PLACE = re.compile(r"(?:conversation 0, message (\d+)|tools(?:\[(\d+)\])?)\W+(\w*)")
_PARTS = ("tool_calls", "tool_call_id", "content", "role")


class FunctionCall(BaseModel):
    """A function to call."""

    name: str = Field(description="Its name, which need not be one of those sent.")
    arguments: str = Field(
        description="Its arguments: a JSON object, which may not fit its schema."
    )


class ToolCall(BaseModel):
    """A call that the model asks for."""

    index: int = Field(description="Its place among the calls.")
    id: str = Field(description="A new one for each call.")
    type: Literal["function"] = Field(description="The type.")
    function: FunctionCall = Field(description="What to call.")


def columns(
    model: Model, messages: Sequence[Mapping[str, Json]], tools: Sequence[Mapping[str, Json]]
) -> tuple[list[bytes], list[bytes]]:
    """Returns the roles and texts of a conversation with tools.

    Args:
        model: the model to ask.
        messages: the messages, with `tool_calls` and `tool_call_id` in some.
        tools: what the model may call.

    Raises:
        RefusalError: a message or a tool is malformed, or the model has no tools.
    """
    for place, tool in enumerate(tools):
        function = tool.get("function")
        if isinstance(function, dict) and function.get("strict"):
            raise refusal(
                f"tools.{place}.function.strict: is not supported: leave it out, or send false",
                field=f"tools.{place}.function.strict",
            )
    try:
        (roles,), (texts,) = conversation_columns(
            [messages],
            list(map(_without_strict, tools)),
            lambda: template_of_export(model.name, model.chat_template),
        )
    except ValueError as error:
        raise _refusal(str(error)) from None
    return roles, texts


def _without_strict(tool: Mapping[str, Json]) -> Mapping[str, Json]:
    function = tool.get("function")
    if not isinstance(function, dict):
        return tool
    return {**tool, "function": {key: value for key, value in function.items() if key != "strict"}}


def _refusal(message: str) -> RefusalError:
    """Returns a refusal with the field that a message about a conversation names."""
    place = _PLACE.match(message)
    if place is None:
        return refusal(message, field="messages")
    number, tool, word = place.groups()
    if number is None:
        field = "tools" if tool is None else f"tools.{tool}"
        return refusal(re.sub(r"^tools\[(\d+)\]", r"tools.\1", message), field=field)
    separator, part = (".", f".{word}") if word in _PARTS else (": ", "")
    rest = message.partition(": ")[2]
    return refusal(f"messages.{number}{separator}{rest}", field=f"messages.{number}{part}")


class Calls:
    """Finds the calls in an answer, also while it grows.

    Args:
        model: the model, whose chat template has tools.
    """

    def __init__(self, model: Model) -> None:
        self._format = tool_format(template_of_export(model.name, model.chat_template))
        self._text = self._sent = ""

    def add(self, piece: str) -> str:
        """Returns what stays of the text outside calls, beyond what was returned before.

        Args:
            piece: what the answer grows by.
        """
        self._text += piece
        new = self._format.settled(self._text)[len(self._sent) :]
        self._sent += new
        return new

    def end(self) -> tuple[str, list[ToolCall]]:
        """Returns the rest of the text outside calls, and the calls."""
        content, calls = self._format.calls(self._text)
        return content[len(self._sent) :], [
            ToolCall(
                index=index,
                id=f"call_{uuid.uuid4().hex[:24]}",
                type="function",
                function=FunctionCall(
                    name=name, arguments=json.dumps(arguments, ensure_ascii=False)
                ),
            )
            for index, (name, arguments) in enumerate(calls)
        ]
