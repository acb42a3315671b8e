"""Turns tools, calls and results into messages of a conversation, as models take them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from keras_transformers.files.errors import short_repr
from keras_transformers.tasks.generation.answer import Generation, Reply, ToolCall
from keras_transformers.tokenizers.chat_templates import (
    CHAT_TEMPLATES,
    ChatTemplate,
    find_chat_template,
)
from keras_transformers.tokenizers.chat_tools import ToolFormat, as_json

__all__: list[str] = []

# {"type": "function", "function": {"name": ..., "description": ..., "parameters": {...}}}
Tool = Mapping[str, Any]
_EXAMPLE_TOOL = (
    '{"type": "function", "function": {"name": "weather", "description": "...", "parameters": '
    '{"type": "object", "properties": {"city": {"type": "string"}}}}}'
)
_EXAMPLE_CALL = '{"function": {"name": "weather", "arguments": {"city": "Bern"}}}'


def tool_format(template: ChatTemplate | None) -> ToolFormat:
    """Returns how a template writes tools.

    Raises:
        ValueError: it has none, or there is no template.
    """
    if template is not None and template.tools is not None:
        return template.tools
    names = ", ".join(name for name, other in CHAT_TEMPLATES.items() if other.tools is not None)
    which = "this model has no chat template" if template is None else (
        f"chat template {template.name!r} has none"
    )  # fmt: skip
    raise ValueError(f"tools: {which}; those of {names} have")


def template_of_export(model: str, name: str | None) -> ChatTemplate:
    """Returns the template of an export's conversations.

    Args:
        model: the model's name, for messages.
        name: what `answers.CHAT_SIGNATURE` says; None without it.

    Raises:
        ValueError: there is no name, or it is unknown here.
    """
    if name is None:
        raise ValueError(
            f"tools: the export of {model} does not say its chat template, as those of older "
            "versions do not: export the model again"
        )
    return find_chat_template(name)


def with_calls(answer: Generation, template: ChatTemplate | None) -> Reply:
    """Returns an answer with the calls in its text; none if the template has no tools."""
    content = answer.text
    calls: list[tuple[str, dict[str, Any]]] = []
    if template is not None and template.tools is not None:
        content, calls = template.tools.calls(answer.text)
    tool_calls = tuple(ToolCall(*call) for call in calls)
    return Reply(**vars(answer), content=content, tool_calls=tool_calls)


def written_tools(tools: Sequence[Tool], template: ChatTemplate | None) -> list[tuple[str, str]]:
    """Returns tools as messages: the role and the text of each.

    Raises:
        ValueError: the template has no tools, or one of them is malformed; the error says which.
    """
    if isinstance(tools, Mapping | str | bytes) or not isinstance(tools, Sequence):
        raise ValueError(f"tools are {short_repr(tools)}: pass a list, such as [{_EXAMPLE_TOOL}]")
    names: set[str] = set()
    written = []
    for place, tool in enumerate(tools):
        spot = f"tools[{place}]"
        name = _tool_name(spot, tool)
        if name in names:
            raise ValueError(f"{spot} is another {name!r}: leave it out, or rename it")
        names.add(name)
        _json(spot, tool)  # whatever the template writes
        try:
            written.append(("tools", tool_format(template).written(tool)))
        except ValueError as error:
            raise ValueError(f"{spot}: {error}") from None
    return written


def _tool_name(spot: str, tool: Any) -> str:
    if callable(tool):
        raise ValueError(
            f"{spot} is {short_repr(tool)}: pass its JSON schema, such as {_EXAMPLE_TOOL}; "
            "transformers.utils.get_json_schema makes it of a function"
        )
    function = tool.get("function", tool) if isinstance(tool, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or not name:
        raise ValueError(f"{spot} is {short_repr(tool)}, without a name: pass {_EXAMPLE_TOOL}")
    kind = tool.get("type", "function")
    if kind != "function":
        raise ValueError(f"{spot} has the type {short_repr(kind)}: only functions are supported")
    return name


def written_calls(
    spot: str, calls: Any, template: ChatTemplate | None
) -> tuple[list[tuple[str, str]], list[str]]:
    """Returns the calls of an answer as messages, and their ids as far as they have any.

    Args:
        spot: where the answer is, for messages.
        calls: as OpenAI and transformers have them: {"id": ..., "function": {"name": ...,
            "arguments": ...}}, the arguments as an object or as JSON.
        template: the model's template.

    Raises:
        ValueError: the template has no tools, or a call is malformed; the error says which.
    """
    if not isinstance(calls, list | tuple):
        raise ValueError(f"{spot}: tool_calls are {short_repr(calls)}: pass [{_EXAMPLE_CALL}]")
    written, ids = [], []
    for place, call in enumerate(calls):
        part = f"{spot}: tool_calls[{place}]"
        function = call.get("function", call) if isinstance(call, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(name, str) or not name:
            raise ValueError(f"{part} is {short_repr(call)}, without a name: pass {_EXAMPLE_CALL}")
        arguments = _arguments(part, function.get("arguments", {}))
        key = tool_format(template).arguments
        written.append(("tool_call", _json(part, {"name": name, key: arguments})))
        if isinstance(call.get("id"), str):
            ids.append(call["id"])
    return written, ids


def _json(spot: str, value: Any) -> str:
    try:
        return as_json(value)
    except ValueError as error:
        raise ValueError(
            f"{spot} is {short_repr(value)}, which is not JSON: {error}; pass strings, finite "
            "numbers, booleans, None, lists and dicts of them"
        ) from None


def _arguments(part: str, arguments: Any) -> Mapping[str, Any]:
    argument = arguments
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            arguments = None
    if not isinstance(arguments, Mapping):
        raise ValueError(
            f"{part} has the arguments {short_repr(argument)}: pass an object, such as "
            '{"city": "Bern"}, or its JSON'
        )
    return arguments
