"""Reads conversations to learn from: which of their tokens the assistant writes."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformers.data.bad_rows import check_rows
from keras_transformers.data.language_models.conversations import Conversations, LearnedText
from keras_transformers.files.surrogates import as_utf8
from keras_transformers.tasks.generation.pipeline import TextGenerator
from keras_transformers.tasks.source import Source
from keras_transformers.tokenizers.chat_tools import TOOL_ROLES
from keras_transformers.tokenizers.conversations import ConversationTokenizer

__all__: list[str] = []

_logger = logging.getLogger(__name__)

_ASSISTANT = "assistant"
# ShareGPT's keys and roles.
_FIELDS = {"from": "role", "value": "content"}
_PAIRS = (tuple(_FIELDS.values()), tuple(_FIELDS))
_ROLES = {"human": "user", "gpt": _ASSISTANT}
_AT_ONCE = 256  # answers that are converted to tokens together
_NUM_NAMED = 10  # conversations in a message


class Message(NamedTuple):
    """A message of a conversation.

    Attributes:
        role: such as "user" or "assistant".
        content: its text, which is not empty.
        is_learned: whether the model learns to write it.
    """

    role: str
    content: str
    is_learned: bool


class _Answer(NamedTuple):
    """An answer in its conversation.

    Attributes:
        row: the number of the conversation.
        place: the number of the message.
        prompt: the messages before it, as the model reads them: int32 (tokens,).
        text: the prompt and the answer, with its end: int32 (tokens,).
        is_learned: see `Message`.
    """

    row: int
    place: int
    prompt: np.ndarray
    text: np.ndarray
    is_learned: bool


def is_conversation(value: Any) -> bool:
    """Returns whether a value is a list of messages, in one of the forms that are read."""
    is_list = isinstance(value, list | tuple) and len(value) > 0
    return is_list and isinstance(value[0], Mapping) and has_message_keys(value[0])


def has_message_keys(names: Iterable[Any]) -> bool:
    """Returns whether names are those of a message's parts."""
    return any({*pair} <= {*names} for pair in _PAIRS)


def learned_conversations(
    cells: Sequence[Any], pipeline: TextGenerator, source: Source
) -> Conversations:
    """Returns conversations as tokens, of which a model learns those that the assistant writes.

    An answer begins where `TextGenerator.chat` lets the model write, and ends with the mark that
    ends its turn. The tokens before it are those that `chat` would have read.

    Answers that do not fit into the pipeline's `max_sequence_length` are left out whole, with what
    comes after them; if it is the first, its end is cut. A warning says which.

    Args:
        cells: a list of messages for each conversation: {"role": ..., "content": ...} as OpenAI and
            Hugging Face have it, or ShareGPT's {"from": ..., "value": ...}. `"weight": 0` makes an
            answer one that is only read.
        pipeline: has the chat template.
        source: where the conversations come from.

    Raises:
        ValueError: the pipeline has no chat template, or does not end texts where it ends answers.
        BadRowsError: conversations are malformed, break the template's rules, or have no answer
            that can be learned.
    """
    if not cells:
        raise ValueError(f"{source}: no conversation is left to learn from")
    tokenizer = pipeline.conversation_tokenizer()
    _check_end(tokenizer, pipeline)
    reasons: dict[int, str] = {}
    conversations = {}
    for row, cell in enumerate(cells):
        try:
            conversations[row] = _up_to_last_answer(messages_of(cell))
        except ValueError as error:
            reasons[row] = str(error)
    texts: dict[int, list[LearnedText]] = {row: [] for row in conversations}
    cut, left_out = [], []
    for answer in _answers(conversations, tokenizer, reasons):
        room = pipeline.max_sequence_length + 1  # the last token is only written
        if len(answer.text) > room:
            if texts[answer.row] or len(answer.prompt) >= room:
                left_out.append(answer)
                continue
            cut.append(answer)
            answer = answer._replace(text=answer.text[:room])
        _add(texts[answer.row], answer)
    for row, parts in texts.items():
        if row not in reasons and not any(part.is_learned.any() for part in parts):
            reasons[row] = (
                f"no answer fits into the model's {pipeline.max_sequence_length} tokens: shorten "
                "the messages before the first one"
            )
    check_rows(str(source), dict(sorted(reasons.items())))
    _warn(cut, left_out, pipeline.max_sequence_length, source)
    return Conversations(list(texts.values()), str(source))


def messages_of(cell: Any) -> list[Message]:
    """Returns the messages of a conversation.

    Raises:
        ValueError: it is no list of messages, or a message has no text or has something else.
    """
    if not isinstance(cell, list | tuple) or not all(isinstance(item, Mapping) for item in cell):
        raise ValueError(
            f'the conversation is {cell!r:.80}: pass a list of {{"role": "user", "content": "..."}}'
        )
    messages = []
    for place, item in enumerate(cell):
        try:
            messages.append(_message(item))
        except ValueError as error:
            raise ValueError(f"message {place}: {error}") from None
    if not any(message.role == _ASSISTANT and message.is_learned for message in messages):
        roles = ", ".join(message.role for message in messages) or "no messages"
        raise ValueError(
            f"no assistant message to learn ({roles}): add the answer, or leave out the row"
        )
    return messages


def _message(item: Mapping[Any, Any]) -> Message:
    # Tables have all keys of their rows, without values in some.
    fields = {key: value for key, value in item.items() if value is not None}
    if "from" in fields and "role" not in fields:
        fields = {_FIELDS.get(key, key): value for key, value in fields.items()}
    role, content, weight = (fields.pop(key, None) for key in ("role", "content", "weight"))
    if other := [key for key, value in fields.items() if value not in ("", [], {})]:
        raise ValueError(
            f"{other[0]} is {fields[other[0]]!r:.60}: only texts are learned; a message has a role "
            "and a content"
        )
    if not isinstance(role, str) or not role:
        raise ValueError(f"role is {role!r:.60}: pass user, assistant or another of the template")
    if role in TOOL_ROLES:
        raise ValueError(f"role is {role!r}: tools, calls and results are not learned: leave out "
                         "the conversation")  # fmt: skip
    if isinstance(content, list):
        types = ", ".join(str(part.get("type") if isinstance(part, Mapping) else part)[:20]
                          for part in content)  # fmt: skip
        raise ValueError(f"content is a list of parts ({types}): pass one string; images and other "
                         "parts are not supported")  # fmt: skip
    if not isinstance(content, str) or not content.strip():
        raise ValueError(f"content is {content!r:.60}: pass a text that is not empty")
    if weight not in (None, 0, 1):
        raise ValueError(f"weight is {weight!r:.60}: pass 0, to only read it, or 1, to learn it")
    return Message(_ROLES.get(role, role), content, weight != 0)


def _up_to_last_answer(messages: Sequence[Message]) -> list[Message]:
    """Returns messages without the last ones, after which nothing is learned."""
    places = [i for i, message in enumerate(messages) if message.role == _ASSISTANT]
    return list(messages[: places[-1] + 1])


def _answers(
    conversations: Mapping[int, Sequence[Message]],
    tokenizer: ConversationTokenizer,
    reasons: dict[int, str],
) -> Iterator[_Answer]:
    """Yields the answers of conversations in order, without those of which `reasons` get one."""
    prompts = [
        (row, place)
        for row, messages in conversations.items()
        for place, message in enumerate(messages)
        if message.role == _ASSISTANT
    ]
    for start in range(0, len(prompts), _AT_ONCE):
        batch = prompts[start : start + _AT_ONCE]
        before = [conversations[row][:place] for row, place in batch]
        faults = tokenizer.faults(tf.constant(_column(before, "role"), tf.string))
        for (row, place), fault in zip(batch, faults, strict=True):
            if fault:
                reasons.setdefault(row, _fault(conversations[row][: place + 1], tokenizer, fault))
        batch = [(row, place) for row, place in batch if row not in reasons]
        if not batch:
            continue
        before = [conversations[row][:place] for row, place in batch]
        written = [conversations[row][place] for row, place in batch]
        tokens = tokenizer.with_answers(
            tf.constant(_column(before, "role"), tf.string),
            tf.constant(_column(before, "content"), tf.string),
            tf.constant([as_utf8("content", message.content) for message in written]),
        )
        both = np.split(tokens.values.numpy(), tokens.row_splits.numpy()[1:-1])
        for number, ((row, place), message) in enumerate(zip(batch, written, strict=True)):
            prompt, text = both[number], both[number + len(batch)]
            if row in reasons:
                continue
            if not np.array_equal(prompt, text[: len(prompt)]):
                reasons[row] = (
                    f"message {place}: the tokenizer joins the beginning of {message.content!r:.30}"
                    " with the template's mark before it, so the model could not write it: remove "
                    "white space at its beginning"
                )
                continue
            yield _Answer(row, place, prompt, text, message.is_learned)


def _fault(messages: Sequence[Message], tokenizer: ConversationTokenizer, rule: str) -> str:
    roles = ", ".join(message.role for message in messages)
    return (
        f"message {len(messages) - 1}: chat template {tokenizer.template.name!r}: before an "
        f"answer, {rule}; the roles are {roles}"
    )


def _column(conversations: Sequence[Sequence[Message]], field: str) -> list[list[bytes]]:
    """Returns a field of all messages in UTF-8: a row per conversation, padded with ""."""
    longest = max(map(len, conversations), default=0)
    return [
        [as_utf8(field, getattr(message, field)) for message in messages]
        + [b""] * (longest - len(messages))
        for messages in conversations
    ]


def _add(texts: list[LearnedText], answer: _Answer) -> None:
    """Adds an answer to the texts of its conversation, to the last of them if it continues it."""
    is_learned = np.arange(len(answer.text)) >= len(answer.prompt)
    is_learned &= answer.is_learned
    if texts:
        token_ids, earlier = texts[-1]
        if np.array_equal(token_ids, answer.text[: len(token_ids)]):
            is_learned[: len(token_ids)] |= earlier
            texts.pop()
    texts.append(LearnedText(answer.text, is_learned))


def _check_end(tokenizer: ConversationTokenizer, pipeline: TextGenerator) -> None:
    """Checks that a generator stops after the mark that ends its answers."""
    mark, token_ids = tokenizer.end
    ends = {pipeline.tokenizer.end_token_id, *pipeline.also_end_token_ids}
    if (token_ids and token_ids[-1] in ends) or any(stop in mark for stop in pipeline.stop):
        return
    remedy = f"also_end_token_ids={token_ids}" if len(token_ids) == 1 else f"stop={[mark]}"
    raise ValueError(
        f"chat template {tokenizer.template.name!r} ends an answer with {mark!r}, but this "
        f"pipeline's texts go on after it: pass {remedy} to kt.load or TextGenerator"
    )


def _warn(
    cut: Sequence[_Answer], left_out: Sequence[_Answer], longest: int, source: Source
) -> None:
    if not cut and not left_out:
        return
    rows = sorted({answer.row for answer in (*cut, *left_out)})
    named = ", ".join(source.row(row) for row in rows[:_NUM_NAMED])
    more = f" and {len(rows) - _NUM_NAMED} more" if len(rows) > _NUM_NAMED else ""
    parts = [
        f"{what}: {len(answers)}"
        for answers, what in ((left_out, "answers left out"), (cut, "answers without their end"))
        if answers
    ]
    _logger.warning(
        "%s%s: longer than the model's %d tokens; %s", named, more, longest, ", ".join(parts)
    )
