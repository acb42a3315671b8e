"""Turns tools, calls and results into messages of a conversation, as models take them."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
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


class WrittenCalls:
    """Writes the calls of a conversation and their results, in their order.

    Args:
        template: returns the model's template; called if there are calls.
    """

    def __init__(self, template: Callable[[], ChatTemplate | None]) -> None:
        self._template = template
        self._ids: list[str | None] = []  # of the last answer's calls, as far as they have any
        self._places: list[int] = []  # of these among all calls
        self._num_results = 0  # of these

    def calls(self, spot: str, calls: Any) -> list[tuple[str, str]]:
        """Returns the calls of an answer as messages: the role and the text of each.

        Args:
            spot: where the answer is, for messages.
            calls: as OpenAI and transformers have them: {"id": ..., "function": {"name": ...,
                "arguments": ...}}, the arguments as an object or as JSON.

        Raises:
            ValueError: the template has no tools, or a call is malformed; the error says which.
        """
        if not isinstance(calls, list | tuple):
            raise ValueError(f"{spot}: tool_calls are {short_repr(calls)}: pass [{_EXAMPLE_CALL}]")
        first = self._places[-1] + 1 if self._places else 0
        self._ids, self._places, self._num_results = [], [], 0
        written = []
        for place, call in enumerate(calls):
            part = f"{spot}: tool_calls[{place}]"
            function = call.get("function", call) if isinstance(call, Mapping) else None
            name = function.get("name") if isinstance(function, Mapping) else None
            if not isinstance(function, Mapping) or not isinstance(name, str) or not name:
                raise ValueError(
                    f"{part} is {short_repr(call)}, without a name: pass {_EXAMPLE_CALL}"
                )
            arguments = _arguments(part, function.get("arguments", {}))
            form = tool_format(self._template())
            call_id = call.get("id")
            self._ids.append(call_id if call_id and isinstance(call_id, str) else None)
            self._places.append(first + place)
            fields: dict[str, Any] = {"name": name, form.arguments: arguments}
            if form.id_length:
                fields["id"] = _fitting_id(self._ids[-1], first + place, form.id_length)
            written.append(("tool_call", _json(part, fields)))
        return written

    def result(self, spot: str, text: str, call_id: str | None) -> str:
        """Returns the text of a result as the template writes it.

        Args:
            spot: where the result is, for messages.
            text: the result.
            call_id: the id of its call; None for the call in its place.

        Raises:
            ValueError: the template has no tools, or there is no such call; the error says which.
        """
        form, place = tool_format(self._template()), self._num_results
        self._num_results += 1
        if call_id is not None and call_id in self._ids:
            place = self._ids.index(call_id)
        elif call_id is not None and any(self._ids):
            names = ", ".join(filter(None, self._ids))
            raise ValueError(
                f"{spot}: tool_call_id {call_id!r} is none of the calls before it, {names}"
            )
        if place < len(self._ids):
            call_id, place = self._ids[place], self._places[place]
        return form.written_result(text, _fitting_id(call_id, place, form.id_length))


def _fitting_id(call_id: str | None, number: int, length: int) -> str:
    """Returns a call's id if it has a length, else another for it, or for the call's number."""
    if call_id is None:
        return f"{number:0{length}}"
    if len(call_id) == length and call_id.isascii() and call_id.isalnum():
        return call_id
    return hashlib.sha256(call_id.encode(errors="surrogatepass")).hexdigest()[:length]


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
