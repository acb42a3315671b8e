"""Arranges conversations in columns, as chat models take them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keras_transformers.dependencies import tables
from keras_transformers.files.surrogates import as_utf8
from keras_transformers.tasks.generation.tools import Tool, WrittenCalls, written_tools
from keras_transformers.tokenizers.chat_templates import ChatTemplate

__all__: list[str] = []

# {"role": ..., "content": ...}, both strings; an answer may also have `tool_calls`, and the
# message of a tool `tool_call_id`.
Message = Mapping[str, Any]
# The options of decoding and their defaults: always the likeliest token.
OPTIONS: Mapping[str, Any] = {
    "max_length": 50,
    "temperature": 1.0,
    "top_k": 1,
    "top_p": 1.0,
    "seed": 0,
    "repetition_penalty": 1.0,
    "stop": (),
}
# The defaults of exports that do not state their own (`reading.OPTIONS_SIGNATURE`).
OLD_OPTIONS: dict[str, Any] = {**OPTIONS, "top_k": 0}


def as_conversations(messages: Sequence[Any]) -> tuple[list[Sequence[Message]], bool]:
    """Returns a list of conversations, and whether the messages are a single one.

    Raises:
        ValueError: the messages are a table.
    """
    if tables.is_table(messages):
        raise ValueError(
            f"messages are a {type(messages).__name__}: pass a list of messages, each "
            '{"role": "user", "content": "..."}, such as data.to_dict("records") of pandas'
        )
    one = isinstance(messages, Mapping | str) or (
        len(messages) > 0 and isinstance(messages[0], Mapping)
    )
    return ([messages] if one else list(messages)), one


def conversation_columns(
    conversations: Sequence[Sequence[Message]],
    tools: Sequence[Tool] = (),
    template: Callable[[], ChatTemplate | None] = lambda: None,
) -> tuple[list[list[bytes]], list[list[bytes]]]:
    """Returns the roles and the texts of conversations in UTF-8, as models take them.

    Args:
        conversations: sequences of messages, each {"role": ..., "content": ...}.
        tools: what the model may call in each conversation.
        template: returns the model's chat template; called if there are tools or calls.

    Raises:
        ValueError: a conversation has no message, a malformed one, or one with half of a surrogate
            pair, a tool is malformed, or the template has no tools; the error says which.
    """
    roles: list[list[bytes]] = [[] for _ in conversations]
    texts: list[list[bytes]] = [[] for _ in conversations]
    first = written_tools(tools, template()) if tools else []
    for row, messages in enumerate(conversations):
        if isinstance(messages, Mapping | str) or not messages:
            raise ValueError(
                f"conversation {row}: {messages!r:.100}; expected a sequence of messages, each "
                '{"role": "user", "content": "..."}'
            )
        columns = []
        written = WrittenCalls(template)
        for place, message in enumerate(messages):
            spot = f"conversation {row}, message {place}"
            fields = {key: value for key, value in _fields(message).items() if value is not None}
            if calls := fields.pop("tool_calls", None):
                fields.setdefault("content", "")
            _check_message(spot, message, fields, has_calls=bool(calls))
            columns.append((spot, fields["role"], fields["content"]))
            if calls:
                columns += [(spot, *call) for call in written.calls(spot, calls)]
            elif fields["role"] == "tool":
                if [role for _, role, _ in columns[-2:-1]] not in (["tool_call"], ["tool"]):
                    raise ValueError(
                        f"{spot}: role 'tool' without a call before it: put it after the "
                        "assistant's message that has the tool_calls"
                    )
                result = written.result(spot, fields["content"], fields.get("tool_call_id"))
                columns[-1] = (spot, "tool", result)
        place = int(columns[0][1] == "system")
        columns[place:place] = [("tools", *tool) for tool in first]
        for spot, role, text in columns:
            roles[row].append(as_utf8(f"{spot}: role", role))
            texts[row].append(as_utf8(f"{spot}: content", text))
    longest = max(map(len, roles), default=1)
    for padded in (*roles, *texts):
        padded.extend([b""] * (longest - len(padded)))
    return roles, texts


def _fields(message: Any) -> dict[Any, Any]:
    return dict(message) if isinstance(message, Mapping) else {}


def _check_message(spot: str, message: Any, fields: Mapping[str, Any], *, has_calls: bool) -> None:
    role = fields.get("role")
    names = {"role", "content"} | ({"tool_call_id", "name"} if role == "tool" else set())
    if not {"role", "content"} <= set(fields) <= names or not all(
        isinstance(value, str) and (value or field == "content") for field, value in fields.items()
    ):
        expected = '{"role": "user", "content": "..."}, both strings'
        if role == "tool":
            expected = '{"role": "tool", "content": "..."}, both strings, such as JSON of a value'
        raise ValueError(f"{spot}: {message!r:.100}; expected {expected}")
    if has_calls and role != "assistant":
        raise ValueError(
            f"{spot}: tool_calls of the role {role!r}: only the assistant calls tools; give the "
            'results with the role "tool"'
        )


def decoding_options(defaults: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options to decode with: those chosen, else the defaults.

    To choose a `temperature` or a `top_p` is to sample: where the likeliest token is the model's
    default and `top_k` is not chosen, all tokens take part.

    Args:
        defaults: all options.
        chosen: some of them.

    Raises:
        ValueError: one of those chosen does not exist.

    >>> chosen = decoding_options(OPTIONS, {"temperature": 0.7})
    >>> chosen["temperature"], chosen["top_k"]
    (0.7, 0)
    """
    if unknown := chosen.keys() - OPTIONS.keys():
        raise ValueError(
            f"options {', '.join(sorted(unknown))}: use {', '.join(OPTIONS)}; max_length counts "
            "new tokens"
        )
    samples = defaults["top_k"] == 1 and not {"temperature", "top_p"}.isdisjoint(chosen)
    return {**defaults, **({"top_k": 0} if samples else {}), **chosen}
