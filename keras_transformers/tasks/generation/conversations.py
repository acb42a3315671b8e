"""Arranges conversations in columns, as chat models take them."""

from collections.abc import Mapping, Sequence
from typing import Any

from keras_transformers.dependencies import tables
from keras_transformers.files.surrogates import as_utf8

__all__: list[str] = []

# {"role": ..., "content": ...}, both strings.
Message = Mapping[str, str]
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
) -> tuple[list[list[bytes]], list[list[bytes]]]:
    """Returns the roles and the texts of conversations in UTF-8, as models take them.

    Args:
        conversations: sequences of messages, each {"role": ..., "content": ...}.

    Raises:
        ValueError: a conversation has no message, a malformed one, or one with half of a surrogate
            pair; the error says which.
    """
    roles: list[list[bytes]] = [[] for _ in conversations]
    texts: list[list[bytes]] = [[] for _ in conversations]
    for row, messages in enumerate(conversations):
        if isinstance(messages, Mapping | str) or not messages:
            raise ValueError(
                f"conversation {row}: {messages!r:.100}; expected a sequence of messages, each "
                '{"role": "user", "content": "..."}'
            )
        for place, message in enumerate(messages):
            fields = dict(message) if isinstance(message, Mapping) else {}
            spot = f"conversation {row}, message {place}"
            if set(fields) != {"role", "content"} or not all(
                isinstance(value, str) and (value or field == "content")
                for field, value in fields.items()
            ):
                raise ValueError(
                    f"{spot}: {message!r:.100}; expected "
                    '{"role": "user", "content": "..."}, both strings'
                )
            for field, column in (("role", roles), ("content", texts)):
                column[row].append(as_utf8(f"{spot}: {field}", fields[field]))
    longest = max(map(len, roles), default=1)
    for padded in (*roles, *texts):
        padded.extend([b""] * (longest - len(padded)))
    return roles, texts


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
