"""Converts conversations to token ids, in the graph."""

import functools
import re
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from keras_transformers.tokenizers.chat_templates import ChatTemplate
from keras_transformers.tokenizers.chat_tools import TOOL_ROLES
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
        further = [*(template.recent_thoughts or ())]
        if (tools := template.tools) is not None:
            around += [*tools.call, tools.call_list, *tools.results, *tools.result, *tools.marks]
            further += [tools.opening, tools.between, tools.closing, tools.system or ""]
        if (thinking := template.thinking) is not None:
            further += [thinking.before, *thinking.defaults, thinking.no_thoughts]
        texts = "\n".join(map(self._filled, [*around, *further]))
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
                last message is neither the user's nor a tool's. The message has the conversation's
                number and roles.
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
                if self.template.thinking is not None:
                    written = self._with_marked_thoughts(written)
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
        texts = messages = self._harmless(texts)
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
            has_system = (places == place) & (roles == "user") & is_system[:, None]
            texts = tf.where(has_system, joined, texts)
        thoughts = tf.fill(tf.shape(texts), "")
        if template.drops_thoughts:
            thoughts = self._recent_thoughts(roles, texts)
            pattern = r"(?s)\A.*</think>" + r"\n*" * template.drops_line_breaks
            answers = tf.strings.regex_replace(texts, pattern, "")
            texts = tf.where(roles == "assistant", answers, texts)
        if template.strips_system:
            texts = self._stripped(texts)
        opening = self._marked(template.opening)
        if template.thinking is not None:
            head, thoughts = self._thinking(roles, texts)
            opening = tf.strings.join([opening, thoughts])
            thoughts = tf.broadcast_to(thoughts[:, None], tf.shape(texts))
            answers = self._with_marked_thoughts(texts)
            texts = tf.where(roles == "assistant", answers, texts)
        else:
            head, texts = self._head(roles, texts)
        pieces = self._turns(roles, texts, thoughts)
        if template.tools is not None and template.tools.place == "last_user":
            tools = tf.where(_last_user(roles, messages), self._tools(roles, messages)[:, None], "")
            pieces = tf.strings.join([tools, pieces])
        return tf.strings.join([head, tf.strings.reduce_join(pieces, axis=1), opening])

    def _turns(self, roles: tf.Tensor, texts: tf.Tensor, thoughts: tf.Tensor) -> tf.Tensor:
        """Returns each message with what stands around it, strings (batch, messages)."""
        template, tools = self.template, self.template.tools
        nothing = tf.fill(tf.shape(texts), "")
        pieces = nothing
        is_call, next_is_call = roles == "tool_call", _next(roles) == "tool_call"
        if tools is not None and tools.drops_text:
            texts = tf.where(next_is_call & ~is_call, "", texts)
        for role, turn in template.turns.items():
            before, after = map(self._marked, turn)
            has_turn = roles == role
            if role == "system" and template.thinking is not None:
                continue
            if template.skips_empty_system and role == "system":
                has_turn &= texts != ""
            if role == "system" and tools is not None and tools.system is not None:
                has_tools = tf.reduce_any(roles == "tools", axis=1, keepdims=True)
                before = tf.where(has_tools, self._marked(tools.system), before)
                before = tf.broadcast_to(before, tf.shape(texts))
            parts = [before, texts, after]
            if role == "assistant":
                parts = [before, thoughts, texts, tf.where(next_is_call, "", after)]
            pieces = tf.where(has_turn, tf.strings.join(parts), pieces)
        if tools is None:
            return pieces
        # A call is part of the answer's turn.
        end = tf.where(next_is_call, "", self._marked(template.turns["assistant"][1]))
        previous_is_call = _previous(roles) == "tool_call"
        follows = previous_is_call | (_previous(texts) != "")
        start = tf.where(follows, "\n", "")
        if tools.call_list:
            start = tf.where(previous_is_call, ", ", self._marked(f"{tools.call_list}["))
            end = tf.where(next_is_call, "", tf.strings.join(["]", end]))
        before, after = map(self._marked, tools.call)
        parts = [start, before, texts, after, end]
        pieces = tf.where(is_call, tf.strings.join(parts), pieces)
        # Results in a row share a turn.
        first, last = map(self._marked, tools.results)
        before, after = map(self._marked, tools.result)
        start = tf.where(_previous(roles) == "tool", "", first)
        end = tf.where(_next(roles) == "tool", "", last)
        if tools.breaks_line:
            end = tf.strings.join([tf.where(_next(roles) == "", "", "\n"), end])
        parts = [start, before, texts, after, end]
        return tf.where(roles == "tool", tf.strings.join(parts), pieces)

    def _tools(self, roles: tf.Tensor, texts: tf.Tensor) -> tf.Tensor:
        """Returns the tools with what stands around them, strings (batch,), "" without tools."""
        tools = self.template.tools
        if tools is None:
            return tf.fill(tf.shape(roles)[:1], "")
        is_tool = roles == "tools"
        opening, between, closing = map(self._marked, (tools.opening, tools.between, tools.closing))
        before = tf.where(_previous(roles) == "tools", between, opening)
        after = tf.where(_next(roles) == "tools", "", closing)
        pieces = tf.where(is_tool, tf.strings.join([before, texts, after]), "")
        return tf.strings.reduce_join(pieces, axis=1)

    def _head(self, roles: tf.Tensor, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns what stands before all messages (batch,), and the texts with what they get.

        Tools are part of the first system message, or of one that the template adds.
        """
        template = self.template
        is_system = roles[:, 0] == "system"  # (batch,)
        head = tf.fill(tf.shape(is_system), self._marked(template.start))
        tools = self._tools(roles, texts)
        has_tools = tools != ""
        place = None if template.tools is None else template.tools.place
        if place == "user":
            is_user = roles == "user"
            is_first = (tf.cumsum(tf.cast(is_user, tf.int32), axis=1) == 1) & is_user
            texts = tf.strings.join([tf.where(is_first, tools[:, None], ""), texts])
        if place == "before":
            head = tf.strings.join([head, tools])
        if place != "system":
            tools = tf.fill(tf.shape(tools), "")
        else:
            has_rest = (is_system & has_tools)[:, None] & (tf.range(tf.shape(roles)[1]) == 0)
            rest = tf.where(has_rest, tf.strings.join(["\n\n", tools])[:, None], "")
            texts = tf.strings.join([texts, rest])
        if template.default_system is not None or place == "system":
            before, after = map(self._marked, template.turns["system"])
            default = template.default_system
            separator = "" if default is None else tf.where(tools != "", "\n\n", "")
            if template.tools is not None and template.tools.system is not None:
                before = tf.where(has_tools, self._marked(template.tools.system), before)
            added = tf.strings.join([head, before, default or "", separator, tools, after])
            has_turn = ~is_system & ((tools != "") | (default is not None))
            head = tf.where(has_turn, added, head)
        return head, texts

    def _thinking(self, roles: tf.Tensor, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the system's turn (batch,), and what is before answers, "" if the model thinks.

        The first message may say which; see `ThoughtSwitch`.
        """
        template, thinking = self.template, self.template.thinking
        assert thinking is not None
        before, after = map(self._marked, template.turns["system"])
        system = tf.where(roles[:, 0] == "system", texts[:, 0], "")
        is_off = _contains(system, thinking.off)
        for word in (thinking.off, thinking.on):
            system = tf.strings.regex_replace(system, re.escape(word), "")
        system = tf.strings.regex_replace(system, rf"{_SPACE}+\z", "")
        modes = [self._marked(thinking.before.replace("{mode}", mode))
                 for mode in (thinking.off, thinking.on)]  # fmt: skip
        on, off = map(self._marked, thinking.defaults)
        tools = self._tools(roles, texts)
        end = self._marked(thinking.after) + after
        parts = [
            self._marked(template.start) + before,
            tf.where(is_off, *modes),
            tf.where(system != "", system, tf.where(is_off, off, on)),
            thinking.after + (after if thinking.ends_turn else ""),
            tf.where(tools != "", tf.strings.join([tools, end]), ""),
        ]
        head = tf.strings.join(parts)
        if thinking.override:
            bare = tf.strings.regex_replace(system, re.escape(thinking.override), "")
            bare = tf.strings.regex_replace(bare, rf"{_SPACE}+\z", "")
            alone = tf.strings.join([parts[0], bare, after])
            head = tf.where(_contains(system, thinking.override), alone, head)
        return head, tf.where(is_off, self._marked(thinking.no_thoughts), "")

    def _recent_thoughts(self, roles: tf.Tensor, texts: tf.Tensor) -> tf.Tensor:
        """Returns the thoughts of answers that keep them, strings (batch, messages)."""
        if self.template.recent_thoughts is None:
            return tf.fill(tf.shape(texts), "")
        places = tf.range(tf.shape(roles)[1])[None]
        users = tf.where(roles == "user", places, -1)
        is_recent = places > tf.reduce_max(users, axis=1, keepdims=True)
        is_recent &= (roles == "assistant") & _contains(texts, "</think>")
        thoughts = tf.strings.regex_replace(texts, r"(?s)\n*</think>.*\z", "")
        thoughts = tf.strings.regex_replace(thoughts, r"(?s)\A.*<think>", "")
        thoughts = tf.strings.regex_replace(thoughts, r"\A\n+", "")
        before, after = map(self._marked, self.template.recent_thoughts)
        kept = is_recent & (thoughts != "")
        return tf.where(kept, tf.strings.join([before, thoughts, after]), "")

    def _with_marked_thoughts(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns answers without line breaks before them, with marks around those of thoughts."""
        texts = tf.strings.regex_replace(texts, r"\A\n+", "")
        before, after = map(self._marked, ("<think>", "</think>"))
        rewritten = rf"{before}\1{after}"
        return tf.strings.regex_replace(texts, r"(?s)\A<think>(.*?)</think>", rewritten)

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
        ]
        if template.tools is None:
            rules.append((last == "user", "the last message must be the user's"))
        else:
            rule = "the last message must be the user's or a tool's"
            rules.append(((last == "user") | (last == "tool"), rule))
            rules += _tool_rules(roles)
            if not template.tools.call_marks:
                several = (roles == "tool_call") & (_previous(roles) == "tool_call")
                rules.append((_all(~several), "there may be one tool_call at once"))
        if template.system_first:
            is_late = (roles == "system") & (places > 0)
            rules.append((_all(~is_late), "only the first message may be the system's"))
        if template.alternates:
            first, rule = 0, "user and assistant must take turns, the user first"
            if "system" in template.roles:
                first = tf.cast(roles[:, :1] == "system", tf.int32)  # (batch, 1)
                rule = f"after the system's message, {rule}"
            is_left_out = (places < first) | (roles == "assistant") & (_next(roles) == "tool_call")
            for role in TOOL_ROLES:
                is_left_out |= roles == role
            taken = tf.cumsum(tf.cast(~is_left_out, tf.int32), axis=1, exclusive=True)
            fits = tf.where(taken % 2 == 0, roles == "user", roles == "assistant")
            rules.append((_all(fits | ~is_message | is_left_out), rule))
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


def _tool_rules(roles: tf.Tensor) -> list[tuple[tf.Tensor, str]]:
    """Returns the rules about tools, each with the conversations that obey it: bool (batch,)."""
    before = _previous(roles)  # (batch, messages)
    places = tf.range(tf.shape(roles)[1])[None]
    is_start = (places == 0) | (before == "tools") | ((places == 1) & (before == "system"))

    def follows(role: str, *others: str) -> tf.Tensor:
        return _all((roles != role) | tf.reduce_any(before[..., None] == [role, *others], axis=-1))

    return [
        (_all((roles != "tools") | is_start), "tools must be first, or after the system's message"),
        (follows("tool_call", "assistant"), "a tool_call must be after the assistant's message"),
        (follows("tool", "tool_call"), "a tool's message must be after a tool_call"),
    ]


def _last_user(roles: tf.Tensor, texts: tf.Tensor) -> tf.Tensor:
    """Returns which messages are the user's last, or the same as it: bool (batch, messages)."""
    places = tf.where(roles == "user", tf.range(tf.shape(roles)[1])[None], -1)
    last = tf.gather(texts, tf.maximum(tf.reduce_max(places, axis=1), 0), batch_dims=1)
    return (roles == "user") & (texts == last[:, None])


def _previous(values: tf.Tensor) -> tf.Tensor:
    """Returns the value of the message before each, "" for the first: (batch, messages)."""
    return tf.pad(values, [[0, 0], [1, 0]], constant_values="")[:, :-1]


def _next(values: tf.Tensor) -> tf.Tensor:
    """Returns the value of the message after each, "" for the last: (batch, messages)."""
    return tf.pad(values, [[0, 0], [0, 1]], constant_values="")[:, 1:]


def _contains(texts: tf.Tensor, part: str) -> tf.Tensor:
    """Returns which texts have a part."""
    return tf.strings.regex_full_match(texts, rf"(?s).*{re.escape(part)}.*")


def _all(holds: tf.Tensor) -> tf.Tensor:
    """Returns which conversations (batch,) obey a rule in all messages (batch, messages)."""
    return tf.reduce_all(holds, axis=1)
