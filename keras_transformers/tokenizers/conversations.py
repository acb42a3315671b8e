"""Conversations as token ids, in the graph."""

from typing import Any

import tensorflow as tf

from keras_transformers.tokenizers.chat_templates import ChatTemplate
from keras_transformers.tokenizers.described.tokenizer import MARK, DescribedTokenizer

__all__ = ["tokenize_conversations"]

# What Python's str.strip and Jinja's trim remove.
_SPACE = r"[\t-\r\x1c-\x20\x{85}\p{Z}]"
_LEFT_OUT = "\ufffd"  # in place of marks in messages


def tokenize_conversations(
    template: ChatTemplate, tokenizer: DescribedTokenizer, roles: Any, texts: Any
) -> tf.RaggedTensor:
    """Converts conversations to token ids, in the graph, up to where the model answers.

    Names of special tokens in a message are ordinary text, so no message can end its turn or
    speak for another role. Otherwise the ids are those of transformers.

    Args:
        template: the model's.
        tokenizer: the model's.
        roles: strings (batch, messages), each one of the template's; "" fills up shorter rows.
        texts: strings (batch, messages).

    Returns:
        int32 (batch, None).

    Raises:
        tf.errors.InvalidArgumentError: a role is unknown or stands where it may not, or the
            last message is not the user's.
    """
    with tf.device("CPU:0"):
        roles, texts = tf.convert_to_tensor(roles), tf.convert_to_tensor(texts)
        with tf.control_dependencies(_checks(template, roles, texts)):
            rendered = _render(template, tokenizer, roles, tf.identity(texts))
        return tokenizer.tokenize_marked(rendered)


def _render(
    template: ChatTemplate, tokenizer: DescribedTokenizer, roles: Any, texts: Any
) -> tf.Tensor:
    """Returns the whole texts (batch,), with marks around special tokens."""

    def marked(text: str) -> str:
        return tokenizer.marked(_filled(text, tokenizer))

    texts = tf.strings.regex_replace(texts, MARK, _LEFT_OUT)
    is_system = roles[:, 0] == "system"  # (batch,)
    places = tf.range(tf.shape(roles)[1])[None]
    if template.system_in_user is not None:
        before, after = template.system_in_user
        system = tf.strings.join([before, texts[:, 0], after])
        at = tf.cast(is_system, tf.int32)[:, None]  # the user's first message
        joined = tf.strings.join([tf.broadcast_to(system[:, None], tf.shape(texts)), texts])
        texts = tf.where((places == at) & is_system[:, None], joined, texts)
    if template.drops_thoughts:
        answers = tf.strings.regex_replace(texts, r"(?s)\A.*</think>\n*", "")
        texts = tf.where(roles == "assistant", answers, texts)
    if template.strips:
        texts = tf.strings.regex_replace(texts, rf"\A{_SPACE}+|{_SPACE}+\z", "")
    pieces = tf.fill(tf.shape(texts), "")
    for role, turn in template.turns.items():
        before, after = map(marked, turn)
        pieces = tf.where(roles == role, tf.strings.join([before, texts, after]), pieces)
    start = tf.fill(tf.shape(is_system), marked(template.start))
    if template.default_system is not None:
        before, after = map(marked, template.turns["system"])
        own = tf.strings.join([start, before + template.default_system + after])
        start = tf.where(is_system, start, own)
    return tf.strings.join(
        [start, tf.strings.reduce_join(pieces, axis=1), marked(template.opening)]
    )


def _checks(template: ChatTemplate, roles: Any, texts: Any) -> list[Any]:
    """Returns assertions that conversations have the form that the template expects."""
    count = tf.reduce_sum(tf.cast(roles != "", tf.int32), axis=1)  # (batch,)
    places = tf.range(tf.shape(roles)[1])[None]
    given = places < count[:, None]
    is_known = tf.reduce_any(roles[..., None] == tf.constant(template.roles), axis=-1)
    last = tf.gather(roles, tf.maximum(count - 1, 0), batch_dims=1)
    rules = [
        (tf.reduce_all(count > 0), "a conversation has no message: give at least the user's"),
        (tf.reduce_all(given == (roles != "")), 'a role is "": only after the last message'),
        (tf.reduce_all(is_known | ~given), f"roles must be one of {', '.join(template.roles)}"),
        (tf.reduce_all(last == "user"), "the last message must be the user's"),
    ]
    if template.system_first:
        is_late = (roles == "system") & (places > 0)
        rules.append((~tf.reduce_any(is_late), "only the first message may be the system's"))
    if template.alternates:
        first, rule = 0, "user and assistant must take turns, the user first"
        if "system" in template.roles:
            first = tf.cast(roles[:, :1] == "system", tf.int32)  # (batch, 1)
            rule = f"after the system's message, {rule}"
        users = (places - first) % 2 == 0
        fits = tf.where(users, roles == "user", roles == "assistant")
        rules.append((tf.reduce_all(fits | ~given | (places < first)), rule))
    checks = [
        tf.debugging.Assert(holds, [f"chat template {template.name!r}: {rule}"])
        for holds, rule in rules
    ]
    message = "texts must have a value for each role"
    checks.append(tf.debugging.assert_equal(tf.shape(roles), tf.shape(texts), message))
    return [check for check in checks if check is not None]


def _filled(text: str, tokenizer: DescribedTokenizer) -> str:
    """Returns a template's string with the tokenizer's own special tokens."""
    for name, token_id in (("bos", tokenizer.start_token_id), ("eos", tokenizer.end_token_id)):
        field = f"{{{name}}}"
        if field in text:
            token = "" if token_id is None else tokenizer.vocabulary[token_id]
            text = text.replace(field, token)
    return text
