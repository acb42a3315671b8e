"""Converts conversations to token ids, in the graph."""

import functools
import re
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from keras_transformers.tokenizers.chat_templates import ChatTemplate
from keras_transformers.tokenizers.described.tokenizer import DescribedTokenizer

__all__ = ["ConversationTokenizer"]

# What Python's str.strip and Jinja's trim remove.
_SPACE = r"[\t-\r\x1c-\x20\x{85}\p{Z}]"
# Around the template's special tokens: a noncharacter, which is not meant for exchange.
_MARK = "\U0010fffe"
_LEFT_OUT = "\ufffd"  # replaces marks in messages
# What may break a plain mark of the template in a message.
_BREAKS = (" ", "_", "\ufffd")


class ConversationTokenizer:
    """Converts conversations to token ids by a chat template, up to where the model answers.

    No message can end its turn or speak for another role. The names of special tokens and of the
    template's other tokens are ordinary text in it. The template's plain marks, which are no tokens
    ("[INST]" and "<<SYS>>" in Llama 2's), are broken after their first character: "[ INST]".
    Otherwise the ids are those of transformers.

    Args:
        template: the model's template.
        tokenizer: the model's tokenizer.
    """

    def __init__(self, template: ChatTemplate, tokenizer: DescribedTokenizer) -> None:
        self.template = template
        vocabulary = tokenizer.vocabulary
        self._names = {
            field: "" if token_id is None else vocabulary[token_id]
            for field, token_id in (
                ("{bos}", tokenizer.start_token_id),
                ("{eos}", tokenizer.end_token_id),
            )
        }
        turns = [text for turn in template.turns.values() for text in turn]
        around = [template.start, *turns, *(template.system_in_user or ()), template.opening]
        texts = "\n".join(map(self._filled, around))
        self._marked_names = {
            name: f"{_MARK}{name}{_MARK}"
            for token in tokenizer.description.get("added_tokens") or []
            if (name := token["content"]) in texts or token.get("special")
        }
        self._tokenize = tokenizer.spelled_otherwise(self._marked_names)
        self._fold = tokenizer.folded
        self._breaks = self._broken(self._plain_marks(around))

    def __call__(self, roles: tf.Tensor, texts: tf.Tensor) -> tf.RaggedTensor:
        """Converts conversations, in the graph.

        Args:
            roles: strings (batch, messages), each one of the template's roles; "" pads shorter
                rows.
            texts: strings (batch, messages).

        Returns:
            int32 (batch, None).

        Raises:
            tf.errors.InvalidArgumentError: a role is unknown or not allowed in its place, or the
                last message is not the user's. The message has the conversation's number and roles.
        """
        with tf.device("CPU:0"):
            return self._tokenize(self._checked(roles, texts))

    @functools.cached_property
    def with_answers(self) -> Callable[..., tf.RaggedTensor]:
        """Converts conversations, and these with the answers that a model should write.

        A function of `roles` and `texts`, as in a call, and `answers`, strings (batch,). It returns
        int32 (2 batch, None): the conversations, then the same with their answers, each up to the
        mark that ends it.
        """
        messages = tf.TensorSpec([None, None], tf.string)

        def convert(roles: tf.Tensor, texts: tf.Tensor, answers: tf.Tensor) -> tf.RaggedTensor:
            with tf.device("CPU:0"):
                prompts = self._checked(roles, texts)
                written = self._stripped(self._harmless(answers[:, None]))[:, 0]
                before, after = map(self._marked, self.template.answer)
                answered = tf.strings.join([prompts, before, written, after])
                return self._tokenize(tf.concat([prompts, answered], axis=0))

        signature = [messages, messages, tf.TensorSpec([None], tf.string)]
        traced: Callable[..., tf.RaggedTensor] = tf.function(
            convert, input_signature=signature, autograph=False
        )
        return traced

    @property
    def end(self) -> tuple[str, list[int]]:
        """The mark that ends an answer, and its tokens."""
        mark = self.template.answer[1]
        return self._filled(mark), self._tokenize([self._marked(mark)]).values.numpy().tolist()

    def faults(self, roles: tf.Tensor) -> list[str]:
        """Returns the rule of the template that each conversation breaks, or "".

        Args:
            roles: strings (batch, messages), as for a call.
        """
        roles = tf.convert_to_tensor(roles)
        faults = [""] * len(roles)
        for obeys, rule in self._rules(roles):
            for row in np.flatnonzero(~obeys.numpy()):
                faults[row] = faults[row] or rule
        return faults

    def _checked(self, roles: tf.Tensor, texts: tf.Tensor) -> tf.Tensor:
        """Returns the whole texts (batch,) of conversations that obey the rules."""
        roles, texts = tf.convert_to_tensor(roles), tf.convert_to_tensor(texts)
        with tf.control_dependencies(self._checks(roles, texts)):
            return self._render(roles, tf.identity(texts))

    def _render(self, roles: tf.Tensor, texts: tf.Tensor) -> tf.Tensor:
        """Returns the whole texts (batch,), with marks around the template's special tokens."""
        template = self.template
        texts = self._harmless(texts)
        is_system = roles[:, 0] == "system"  # (batch,)
        places = tf.range(tf.shape(roles)[1])[None]
        if not template.strips_system:
            texts = tf.where(roles == "system", texts, self._stripped(texts))
        if template.system_in_user is not None:
            before, after = map(self._marked, template.system_in_user)
            system = tf.strings.join([before, texts[:, 0], after])
            joined = tf.strings.join([tf.broadcast_to(system[:, None], tf.shape(texts)), texts])
            last = tf.reduce_sum(tf.cast(roles != "", tf.int32), axis=1, keepdims=True) - 1
            place = last if template.system_in_last else 1
            texts = tf.where((places == place) & is_system[:, None], joined, texts)
        if template.drops_thoughts:
            thoughts = r"(?s)\A.*</think>" + r"\n*" * template.drops_line_breaks
            answers = tf.strings.regex_replace(texts, thoughts, "")
            texts = tf.where(roles == "assistant", answers, texts)
        if template.strips_system:
            texts = self._stripped(texts)
        pieces = tf.fill(tf.shape(texts), "")
        for role, turn in template.turns.items():
            before, after = map(self._marked, turn)
            has_turn = roles == role
            if template.skips_empty_system and role == "system":
                has_turn &= texts != ""
            pieces = tf.where(has_turn, tf.strings.join([before, texts, after]), pieces)
        start = tf.fill(tf.shape(is_system), self._marked(template.start))
        if template.default_system is not None:
            before, after = map(self._marked, template.turns["system"])
            with_default = tf.strings.join([start, before + template.default_system + after])
            start = tf.where(is_system, start, with_default)
        opening = self._marked(template.opening)
        return tf.strings.join([start, tf.strings.reduce_join(pieces, axis=1), opening])

    def _stripped(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns messages without the white space around them, if the template removes it."""
        if not self.template.strips:
            return texts
        return tf.strings.regex_replace(texts, rf"\A{_SPACE}+|{_SPACE}+\z", "")

    def _harmless(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns messages (batch, messages) that the template's marks have been broken in.

        Others stay as they are, although the marks are looked for in what the tokenizer reads.
        """
        texts = tf.strings.regex_replace(texts, _MARK, _LEFT_OUT)
        if not self._breaks:
            return texts
        folded = tf.reshape(self._fold(tf.reshape(texts, [-1])), tf.shape(texts))
        broken = folded
        for mark, instead in self._breaks.items():
            rewritten = instead.replace("\\", r"\\")
            broken = tf.strings.regex_replace(broken, re.escape(mark), rewritten)
        return tf.where(broken == folded, texts, broken)

    def _plain_marks(self, around: Sequence[str]) -> list[str]:
        """Returns what the strings around messages consist of besides tokens.

        No message can have a token, so a word beside one, such as a role's name, marks nothing by
        itself.
        """
        marks = set()
        for text in around:
            parts = self._marked(text).split(_MARK)  # every other one is a token
            for part in map(str.strip, parts[::2]):
                if part and (len(parts) == 1 or not part[0].isalnum()):
                    marks.add(part)
        return sorted(marks)

    def _broken(self, marks: Sequence[str]) -> dict[str, str]:
        """Returns mark, as the tokenizer reads it -> how messages have it instead."""
        if not marks:
            return {}
        read = [mark.decode() for mark in self._fold(marks).numpy()]
        for separator in _BREAKS:
            broken = [
                f"{mark[:1]}{separator}{mark[1:]}" if mark[1:] else separator for mark in read
            ]
            again = [text.decode() for text in self._fold(broken).numpy()]
            if not any(mark in text for mark in read for text in again):
                return dict(zip(read, broken, strict=True))
        raise ValueError(f"chat template {self.template.name!r}: cannot tell {marks} from text")

    def _checks(self, roles: tf.Tensor, texts: tf.Tensor) -> list[tf.Operation]:
        """Returns assertions that conversations have the form that the template expects."""
        # TensorFlow cannot raise an error whose message is not UTF-8.
        shown = tf.strings.unicode_transcode(roles, "UTF-8", "UTF-8", errors="replace")

        def breach(obeys: tf.Tensor, rule: str) -> tf.Operation | None:
            wrong = tf.where(~obeys)[:1, 0]  # the first of them, if there is one
            message = f"chat template {self.template.name!r}: {rule}; the roles of conversation"
            data = [message, wrong, "are", tf.gather(shown, wrong)]
            return tf.debugging.Assert(tf.reduce_all(obeys), data, summarize=20)

        message = "texts must have a value for each role"
        same = tf.debugging.assert_equal(tf.shape(roles), tf.shape(texts), message)
        breaches = (breach(*rule) for rule in self._rules(roles))
        return [check for check in (same, *breaches) if check is not None]

    def _rules(self, roles: tf.Tensor) -> list[tuple[tf.Tensor, str]]:
        """Returns the template's rules, each with the conversations that obey it: bool (batch,)."""
        template = self.template
        is_message = roles != ""  # (batch, messages)
        count = tf.reduce_sum(tf.cast(is_message, tf.int32), axis=1)  # (batch,)
        places = tf.range(tf.shape(roles)[1])[None]
        has_role = tf.reduce_any(roles[..., None] == tf.constant(template.roles), axis=-1)
        last = tf.gather(roles, tf.maximum(count - 1, 0), batch_dims=1)
        rules = [
            (count > 0, "expected at least one user message"),
            (
                _all((places < count[:, None]) == is_message),
                "no role may be missing between others",
            ),
            (_all(has_role | ~is_message), f"roles must be one of {', '.join(template.roles)}"),
            (last == "user", "the last message must be the user's"),
        ]
        if template.system_first:
            is_late = (roles == "system") & (places > 0)
            rules.append((_all(~is_late), "only the first message may be the system's"))
        if template.alternates:
            first, rule = 0, "user and assistant must take turns, the user first"
            if "system" in template.roles:
                first = tf.cast(roles[:, :1] == "system", tf.int32)  # (batch, 1)
                rule = f"after the system's message, {rule}"
            users = (places - first) % 2 == 0
            fits = tf.where(users, roles == "user", roles == "assistant")
            rules.append((_all(fits | ~is_message | (places < first)), rule))
        return rules

    def _marked(self, text: str) -> str:
        """Returns a string of the template with marks around the names of tokens."""
        names = sorted(self._marked_names, key=len, reverse=True)
        if not names:
            return self._filled(text)
        pattern = "|".join(map(re.escape, names))
        return re.sub(pattern, lambda name: self._marked_names[name[0]], self._filled(text))

    def _filled(self, text: str) -> str:
        """Returns a string of the template with the tokenizer's start and end token."""
        for field, name in self._names.items():
            text = text.replace(field, name)
        return text


def _all(holds: tf.Tensor) -> tf.Tensor:
    """Returns which conversations (batch,) obey a rule in all messages (batch, messages)."""
    return tf.reduce_all(holds, axis=1)
