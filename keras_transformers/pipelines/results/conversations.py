"""Conversations in columns, as chat models take them."""

from collections.abc import Mapping, Sequence
from typing import Any

__all__: list[str] = []


def conversation_columns(conversations: Sequence[Any]) -> tuple[list[list[str]], list[list[str]]]:
    """Returns the roles and the texts of conversations, as models take them.

    Args:
        conversations: sequences of messages, each {"role": ..., "content": ...}.

    Raises:
        ValueError: a message has another form; the error has its place.
    """
    roles, texts = [], []
    for row, messages in enumerate(conversations):
        for place, message in enumerate(messages):
            fields = dict(message) if isinstance(message, Mapping) else {}
            if set(fields) != {"role", "content"} or not all(
                isinstance(value, str) for value in fields.values()
            ):
                raise ValueError(
                    f"conversation {row}, message {place}: {message!r:.100}; expected "
                    '{"role": "user", "content": "..."}, both strings'
                )
        roles.append([message["role"] for message in messages])
        texts.append([message["content"] for message in messages])
    longest = max(map(len, roles), default=0) or 1
    for column in (*roles, *texts):
        column.extend([""] * (longest - len(column)))
    return roles, texts
