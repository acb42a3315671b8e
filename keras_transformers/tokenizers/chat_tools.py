"""Writes tools, calls and results as chat templates do, and finds the calls in answers."""

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

__all__ = ["ToolFormat"]

TOOL_ROLES = ("tools", "tool_call", "tool")  # of tools, calls and results
_THOUGHTS_END = "</think>"
_THOUGHTS = "<think>"
_PYTHON_TYPES = {"string": "str", "number": "float", "integer": "int", "boolean": "bool"}


def as_json(value: Any, indent: int | None = None) -> str:
    """Returns a value as transformers' `tojson` writes it.

    Raises:
        ValueError: it is not a JSON value.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToolFormat:
    """How a template writes tools, calls and results.

    In conversations they are messages of the roles "tools", "tool_call" and "tool". A call is JSON
    with the name and the arguments of a tool; it belongs to the answer before it.

    Attributes:
        opening: the string before the first tool.
        between: the string between tools.
        closing: the string after the last tool.
        place: where the tools are: at the end of the system message, in a turn before all others,
            at the beginning of the user's first message, or before the user's last one.
        system: the string before the system message where there are tools; None if it is the same
            as without.
        call: the strings before and after a call; empty if it has none.
        call_list: the string before all calls of an answer, which are a JSON list; "" if they are
            not. Without marks of either kind, a call is a whole answer.
        arguments: the key of a call's arguments.
        id_length: how many characters ids of calls have; 0 if calls have none.
        results: the strings before and after results in a row.
        result: the strings before and after a result.
        breaks_line: whether a line break follows a result, unless it is the last message.
        drops_text: whether an answer with calls has no other text.
        marks: other strings that mark tools.
        written: writes a tool.
        written_result: writes a result from its text and the id of its call.
    """

    opening: str
    between: str = "\n"
    closing: str
    place: Literal["system", "before", "user", "last_user"] = "system"
    system: str | None = None
    call: tuple[str, str] = ("<tool_call>\n", "\n</tool_call>")
    call_list: str = ""
    arguments: str = "arguments"
    id_length: int = 0
    results: tuple[str, str] = ("", "")
    result: tuple[str, str] = ("\n<tool_response>\n", "\n</tool_response>")
    breaks_line: bool = False
    drops_text: bool = False
    marks: tuple[str, ...] = ("<tools>", "</tools>")
    written: Callable[[Mapping[str, Any]], str] = as_json
    written_result: Callable[[str, str], str] = lambda text, call_id: text

    @property
    def call_marks(self) -> list[str]:
        """The strings that mark calls in an answer, without space; none if it is a whole answer."""
        return [mark for mark in (*map(str.strip, self.call), self.call_list) if mark]

    def calls(self, text: str) -> tuple[str, list[tuple[str, dict[str, Any]]]]:
        """Returns an answer's text without its calls, and their names and arguments.

        What is not JSON with a name and arguments stays text, and so does all that a model only
        thinks.

        Example:
            >>> before, after = "<tool_call>", "</tool_call>"
            >>> tools = ToolFormat(opening="", closing="", call=(before, after))
            >>> tools.calls('Yes. <tool_call>{"name": "now", "arguments": {}}</tool_call>')
            ('Yes.', [('now', {})])
            >>> tools.calls("<tool_call>now</tool_call>")
            ('<tool_call>now</tool_call>', [])
        """
        if self.call_list:
            before, _, rest = text.partition(self.call_list)
            listed = self._listed(rest)
            return (before.rstrip(), listed) if listed else (text, [])
        if not self.call_marks:
            whole = self._call(text)
            return ("", [whole]) if whole is not None else (text, [])
        start = text.rfind(_THOUGHTS_END) + 1  # 0 without thoughts
        if _THOUGHTS in text[start:]:  # the model still thinks
            return text, []
        calls: list[tuple[str, dict[str, Any]]] = []

        def without(match: re.Match[str]) -> str:
            call = self._call(match[1])
            if call is None:
                return match[0]
            calls.append(call)
            return ""

        before, after = (re.escape(mark.strip()) for mark in self.call)
        rest = re.sub(rf"(?s)\s*{before}(.*?){after}", without, text[start:])
        return (text[:start] + rest).rstrip() if calls else text, calls

    def settled(self, text: str) -> str:
        """Returns what stays outside calls of an answer that still grows, without its last space.

        Example:
            >>> tools = ToolFormat(opening="", closing="", call=("<tool_call>", "</tool_call>"))
            >>> tools.settled("1 < 2 <too"), tools.settled("Yes. <tool_call>{")
            ('1 < 2', 'Yes.')
        """
        if not self.call_marks:  # a call is a JSON object
            return "" if text.lstrip()[:1] in ("", "{") else text.rstrip()
        mark = self.call_marks[0]
        text, call, _ = text.partition(mark)
        if not call:  # a part of it may be the end
            parts = (mark[:length] for length in range(len(mark), 0, -1))
            text = text.removesuffix(next((part for part in parts if text.endswith(part)), ""))
        return text.rstrip()

    def _call(self, text: str) -> tuple[str, dict[str, Any]] | None:
        """Returns the name and the arguments of a call; None if the text is something else."""
        return self._read(_parsed(text))

    def _listed(self, text: str) -> list[tuple[str, dict[str, Any]]]:
        """Returns the names and the arguments of a list of calls; [] if it is something else."""
        values = _parsed(text)
        calls = [self._read(value) for value in values] if isinstance(values, list) else []
        return [call for call in calls if call is not None] if None not in calls else []

    def _read(self, call: Any) -> tuple[str, dict[str, Any]] | None:
        if not isinstance(call, dict) or (not self.call_marks and self.arguments not in call):
            return None
        name, arguments = call.get("name"), call.get(self.arguments, {})
        if not isinstance(name, str) or not name or not isinstance(arguments, dict):
            return None
        return name, arguments


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def as_plain_function(tool: Mapping[str, Any]) -> str:
    """Returns a tool as the template of Mistral Nemo writes it, with no escapes in its strings."""
    function = tool.get("function", tool)
    fields = ", ".join(
        f'"{key}": ' + (f'"{value}"' if isinstance(value, str) else as_json(value))
        for key, value in function.items()
        if key != "return"
    )
    return f'{{"type": "function", "function": {{{fields}}}}}'


def as_function(tool: Mapping[str, Any]) -> str:
    """Returns a tool with its signature in Python, as the template of Hermes writes it.

    Raises:
        ValueError: its parameters are no JSON schema.
    """
    function = tool.get("function", tool)
    name, parameters = function["name"], function.get("parameters") or {}
    properties = parameters.get("properties", {}) if isinstance(parameters, Mapping) else None
    if not isinstance(properties, Mapping) or not all(
        isinstance(field, Mapping) for field in properties.values()
    ):
        raise ValueError(
            f"parameters of {name!r} are {parameters!r:.80}: pass a JSON schema, such as "
            '{"type": "object", "properties": {"city": {"type": "string"}}}'
        )
    types = {key: _python_type(field) for key, field in properties.items()}
    signature = ", ".join(f"{key}: {kind}" for key, kind in types.items())
    returned = function.get("return")
    result = f" -> {_python_type(returned)}" if isinstance(returned, Mapping) else ""
    lines = [
        f"        {key}({types[key]}): {str(field.get('description', '')).strip()}"
        for key, field in properties.items()
    ]
    text = f"{name}({signature}){result} - {function.get('description', '')}\n\n"
    if lines:
        text += "    Args:\n" + "".join(lines)
    if isinstance(returned, Mapping) and "description" in returned:
        text += f"\n    Returns:\n        {returned['description']}"
    schema = as_json(parameters) if properties else "{}"
    return (
        f'{{"type": "function", "function": {{"name": "{name}", "description": "{text}", '
        f'"parameters": {schema}}}'
    )


def _python_type(schema: Any) -> str:
    """Returns the Python type of a JSON schema, as the published program does."""
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if isinstance(kind, list):
        return f"Union[{','.join(_python_type({'type': part}) for part in kind)}]"
    if kind is None:
        return "Union[]"
    if kind == "array":
        return "list[Union[]]"  # it looks for the type of the items in the wrong place
    if kind == "object":
        values = schema.get("additionalProperties", schema)
        return "dict" if values is schema else f"dict[str, {_python_type(values)}]"
    return _PYTHON_TYPES.get(kind, "Any") if isinstance(kind, str) else "Any"
