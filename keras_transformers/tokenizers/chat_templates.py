"""Defines chat templates: how a conversation becomes a single text for a language model.

Hugging Face's templates are Jinja programs, which are never run here. Published ones are recognized
by their SHA-256, and each is defined below as data, from which the graph makes the same text.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Mapping
from typing import Any

from keras_transformers.tokenizers.chat_tools import (
    TOOL_ROLES,
    ToolFormat,
    as_function,
    as_json,
    as_plain_function,
)

__all__ = ["CHAT_TEMPLATES", "ChatTemplate", "ThoughtSwitch", "find_chat_template"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThoughtSwitch:
    """How the system message says whether the model thinks before it answers.

    Attributes:
        on: the word that makes it think, and the default.
        off: the word that makes it answer at once. Both are left out of the message.
        override: the word with which the system's turn is nothing but the message; "" for none.
        before: the string before the message, with {mode} for one of the words.
        defaults: the messages that replace an empty one, where the model thinks and where not.
        after: the string after the message, and after tools.
        ends_turn: whether the system's turn has its end without tools, too.
        no_thoughts: the string before answers without thoughts.
    """

    on: str = "/think"
    off: str = "/no_think"
    override: str = ""
    before: str
    defaults: tuple[str, str]
    after: str = "\n\n"
    ends_turn: bool
    no_thoughts: str = "<think>\n\n</think>\n"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChatTemplate:
    """A chat template as data.

    In its strings, {bos} and {eos} stand for the tokenizer's start and end token; the names of
    other special tokens stand for themselves.

    Attributes:
        name: its name in `TextGenerator(chat_template=...)`.
        turns: role -> the strings before and after a message of that role.
        opening: the string after the last message, where the model answers.
        start: the string before everything else.
        default_system: the system message for a conversation without one; None for none.
        system_in_user: the strings before and after a system message that is part of the user's
            first message; None if it has its own turn, or if there is no such role.
        system_in_last: whether it is part of the last message, if that is the user's, instead.
        skips_empty_system: whether an empty system message has no turn.
        strips: whether white space around messages is removed.
        strips_system: whether that holds for a system message in the user's message, too.
        alternates: whether the user and the assistant must take turns, but for calls of tools.
        system_first: whether a system message is only allowed first.
        drops_thoughts: whether text up to "</think>" is removed from earlier answers.
        drops_line_breaks: whether line breaks after it are removed, too.
        recent_thoughts: the strings before and after the thoughts of answers after the user's last
            message, which are not removed then; None if all are.
        thinking: how the system's turn says whether the model thinks; None if it does not.
        tools: how tools, calls and results are written; None if the template has none.
        hashes: SHA-256 of the published texts, without white space around them.
    """

    name: str
    turns: Mapping[str, tuple[str, str]]
    opening: str = ""
    start: str = ""
    default_system: str | None = None
    system_in_user: tuple[str, str] | None = None
    system_in_last: bool = False
    skips_empty_system: bool = False
    strips: bool = False
    strips_system: bool = True
    alternates: bool = False
    system_first: bool = False
    drops_thoughts: bool = False
    drops_line_breaks: bool = True
    recent_thoughts: tuple[str, str] | None = None
    thinking: ThoughtSwitch | None = None
    tools: ToolFormat | None = None
    hashes: tuple[str, ...] = ()

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that messages may have."""
        first = () if self.system_in_user is None else ("system",)
        tools = () if self.tools is None else TOOL_ROLES
        return (*first, *self.turns, *tools)

    @property
    def answer(self) -> tuple[str, str]:
        """What a model writes before and after an answer's text, up to the mark that ends it.

        Raises:
            ValueError: an earlier answer has another beginning than one that the model writes.
        """
        before, after = self.turns["assistant"]
        if not before.startswith(self.opening):
            raise ValueError(
                f"chat template {self.name!r}: the model answers after {self.opening!r}, but "
                f"earlier answers begin with {before!r}, so conversations do not show how to answer"
            )
        return before[len(self.opening) :], after.rstrip()


def _chatml(name: str, *hashes: str, system: str | None = None, **more: Any) -> ChatTemplate:
    roles = ("system", "user", "assistant")
    return ChatTemplate(
        name=name,
        turns={role: (f"<|im_start|>{role}\n", "<|im_end|>\n") for role in roles},
        opening="<|im_start|>assistant\n",
        default_system=system,
        hashes=hashes,
        **more,
    )


def _llama3(name: str, *hashes: str, before_system: str = "", **more: Any) -> ChatTemplate:
    def turn(role: str, before: str = "") -> tuple[str, str]:
        return f"<|start_header_id|>{role}<|end_header_id|>\n\n{before}", "<|eot_id|>"

    return ChatTemplate(
        name=name,
        turns={
            "system": turn("system", before_system),
            **{role: turn(role) for role in ("user", "assistant")},
        },
        start="{bos}",
        opening=turn("assistant")[0],
        strips=True,
        hashes=hashes,
        **more,
    )


def _instructions(
    name: str, *hashes: str, user: str = "[INST] ", answer: tuple[str, str], **more: Any
) -> ChatTemplate:
    """Returns a template with [INST] around the user's messages."""
    return ChatTemplate(
        name=name,
        turns={"user": (user, " [/INST]"), "assistant": answer},
        alternates=True,
        hashes=hashes,
        **more,
    )


def _gemma(name: str, *hashes: str, start: str = "", **more: Any) -> ChatTemplate:
    return ChatTemplate(
        name=name,
        turns={
            role: (f"<start_of_turn>{turn}\n", "<end_of_turn>\n")
            for role, turn in (("user", "user"), ("assistant", "model"))
        },
        start=start,
        opening="<start_of_turn>model\n",
        strips=True,
        alternates=True,
        hashes=hashes,
        **more,
    )


def _phi3(name: str, *hashes: str, **more: Any) -> ChatTemplate:
    roles = ("system", "user", "assistant")
    return ChatTemplate(
        name=name,
        turns={role: (f"<|{role}|>\n", "<|end|>\n") for role in roles},
        opening="<|assistant|>\n",
        hashes=hashes,
        **more,
    )


def _fullwidth(name: str) -> str:
    """Returns the name of a special token of DeepSeek."""
    return f"<\uff5c{name}\uff5c>"


_DATES = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
# What Qwen and SmolLM3 say after the tools.
_FOR_EACH_CALL = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    "within <tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)
_QWEN_TOOLS = ToolFormat(
    opening="# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n",
    closing=_FOR_EACH_CALL,
    results=("<|im_start|>user", "<|im_end|>\n"),
)
_HERMES_TOOLS = ToolFormat(
    opening="<|im_start|>system\nYou are a function calling AI model. You are provided with "
    "function signatures within <tools></tools> XML tags. You may call one or more functions to "
    "assist with the user query. Don't make assumptions about what values to plug into functions. "
    "Here are the available tools: <tools> ",
    closing=" </tools>Use the following pydantic model json schema for each tool call you will "
    'make: {"properties": {"name": {"title": "Name", "type": "string"}, "arguments": {"title": '
    '"Arguments", "type": "object"}}, "required": ["name", "arguments"], "title": "FunctionCall", '
    '"type": "object"}}\nFor each function call return a json object with function name and '
    "arguments within <tool_call></tool_call> XML tags as follows:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-dict>}\n</tool_call><|im_end|>\n',
    place="before",
    results=("<|im_start|>tool\n", "<|im_end|>"),
    result=("<tool_response>\n", "\n</tool_response>"),
    breaks_line=True,
    drops_text=True,
    written=as_function,
)
_SMOLLM3_TOOLS = ToolFormat(
    opening="### Tools\n\nYou may call one or more functions to assist with the user query.\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n\n<tools>\n",
    closing=_FOR_EACH_CALL,
    result=("<|im_start|>user\n", "<|im_end|>\n"),
    written=str,
)
_LLAMA_TOOLS = ToolFormat(
    opening="Given the following functions, please respond with a JSON for a function call with "
    "its proper arguments that best answers the given prompt.\n\nRespond in the format "
    '{"name": function name, "parameters": dictionary of argument name and its value}.'
    "Do not use variables.\n\n",
    between="\n\n",
    closing="\n\n",
    place="user",
    system=f"<|start_header_id|>system<|end_header_id|>\n\nEnvironment: ipython\n{_DATES}",
    call=("", ""),
    arguments="parameters",
    result=("<|start_header_id|>ipython<|end_header_id|>\n\n", "<|eot_id|>"),
    drops_text=True,
    marks=(),
    written=functools.partial(as_json, indent=4),
    written_result=lambda text, call_id: as_json(text),
)
_NEMO_TOOLS = ToolFormat(
    opening="[AVAILABLE_TOOLS][",
    between=", ",
    closing="][/AVAILABLE_TOOLS]",
    place="last_user",
    call=("", ""),
    call_list="[TOOL_CALLS]",
    id_length=9,
    result=("[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
    drops_text=True,
    marks=("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    written=as_plain_function,
    written_result=lambda text, call_id: f'{{"content": {text}, "call_id": "{call_id}"}}',
)
_SMOLLM3 = "You are a helpful AI assistant named SmolLM, trained by Hugging Face."
_SMOLLM3_DEFAULTS = (
    f"{_SMOLLM3} Your role as an assistant involves thoroughly exploring questions through a "
    "systematic thinking process before providing the final precise and accurate solutions. "
    "This requires engaging in a comprehensive cycle of analysis, summarizing, exploration, "
    "reassessment, reflection, backtracking, and iteration to develop well-considered thinking "
    "process. Please structure your response into two main sections: Thought and Solution "
    "using the specified format: <think> Thought section </think> Solution section. In the "
    "Thought section, detail your reasoning process in steps. Each step should include "
    "detailed considerations such as analysing questions, summarizing relevant findings, "
    "brainstorming new ideas, verifying the accuracy of the current steps, refining any "
    "errors, and revisiting previous steps. In the Solution section, based on various "
    "attempts, explorations, and reflections from the Thought section, systematically present "
    "the final solution that you deem correct. The Solution section should be logical, "
    "accurate, and concise and detail necessary steps needed to reach the conclusion.",
    _SMOLLM3,
)


def _smollm3(name: str, *hashes: str, thinking: ThoughtSwitch, **more: Any) -> ChatTemplate:
    return _chatml(name, *hashes, thinking=thinking, system_first=True, **more)


_QWEN3 = _chatml(
    "qwen3",
    "87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5",
    drops_thoughts=True,
    recent_thoughts=("<think>\n", "\n</think>\n\n"),
    tools=_QWEN_TOOLS,
)
_ALL = (
    _chatml(
        "chatml",
        "153280e3ff55d19da1398bdb3914ee2a51b80429bfaedde11d7d216c39db80f3",
        "fcf7a096fe99a48fd9ad2b250bf9237e96e8f48bffec1c7ea4d3f225176cd40e",
    ),
    _chatml(
        "smollm2",
        "872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788",
        "de9cde7d1b0ca0cc87459a6673e0d12fb89c070bdb24e4a30b6e4d187b226221",
        system="You are a helpful AI assistant named SmolLM, trained by Hugging Face",
    ),
    # Its text uses today's date, and this one by default: the same as that of Llama 3.1.
    _smollm3(
        "smollm3",
        "3982464ecf49b0b38514fec4a5c22273fe70b7259480735bf13e225e4b64bec2",
        "0dab472abbdc499c8d82acae3ad6e8404f672d2d50d9df582181daf062f66eb7",
        "b9b66f04c64fbb8695cf5b35c37780efd0b8e0829fbfe3e30fafb9f469b7d30e",
        thinking=ThoughtSwitch(
            override="/system_override",
            before="## Metadata\n\nKnowledge Cutoff Date: June 2025\nToday Date: 26 July 2024\n"
            "Reasoning Mode: {mode}\n\n## Custom Instructions\n\n",
            defaults=_SMOLLM3_DEFAULTS,
            ends_turn=False,
        ),
        tools=_SMOLLM3_TOOLS,
    ),
    # Unsloth's, which is also in llama.cpp.
    _smollm3(
        "smollm3-unsloth",
        "cbc1d50f777ec029b33f53b23d7a224cceb65bcc8c7fac54946dbb56514e4d1e",
        thinking=ThoughtSwitch(
            before="## Metadata\n\nKnowledge Cutoff Date: June 2025\nReasoning Mode: {mode}\n\n"
            "## Custom Instructions\n\n",
            defaults=_SMOLLM3_DEFAULTS,
            ends_turn=True,
        ),
    ),
    _chatml(
        "qwen2",
        "793202280c0910ab26bc6eb57c8212c2417324c6d8c4efd0d10d59092ab3e3eb",
        "f0206845c9ebc3abb4735d44f286eb81ce99238ad2accc710c6fc60e6cb8ccc8",
        "4039eed0f28b7aaa337e70c76cfedba3271ee32505835a095a8c92e536b3c355",
        system="You are a helpful assistant.",
    ),
    _chatml(
        "qwen2.5",
        "55b2f4a26ac9ee719330a61a0c39d9e538b0e9322212f048326318cff4f8674a",
        system="You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
        tools=_QWEN_TOOLS,
    ),
    _QWEN3,
    # What the same program writes with enable_thinking=False.
    dataclasses.replace(
        _QWEN3,
        name="qwen3-no-think",
        opening=f"{_QWEN3.opening}<think>\n\n</think>\n\n",
        hashes=(),
    ),
    _instructions(
        "llama2",
        "9780fae5bfea3cfd7be37d328c6edfd296a8869be8131495bbe7eb37e780c88c",
        "e8d5b5a546d3f19df16a5320c614fab05bdc4edd50e850f1afd947b503ea41cf",
        "5e53c989e0be846d15684f709272441562fff0321d7d47693d54c0f0ed9f4822",
        "7fcbb4353f3f484117a3dd8fcf597b435ab2d68cf856fd27acf69bb97c170793",
        user="{bos}[INST] ",
        answer=(" ", " {eos}"),
        system_in_user=("<<SYS>>\n", "\n<</SYS>>\n\n"),
        strips=True,
    ),
    _llama3(
        "llama3",
        "ba03a121d097859c7b5b9cd03af99aafe95275210d2876f642ad9929a150f122",
        "4f46ecd43418f216df8c26936c60e5d04bcc81db47db5d86fbe889f64212dd4c",
    ),
    # Its text uses today's date, and this one by default.
    _llama3(
        "llama3.1",
        "93c0e9aa3629bbd77e68dbc0f5621f6e6b23aa8d74b932595cdb8d64684526d7",
        "d82792f95932f1c9cef5c4bd992f171225e3bf8c7b609b4557c9e1ec96be819f",
        before_system=_DATES,
        default_system="",
        system_first=True,
        tools=_LLAMA_TOOLS,
    ),
    _instructions(
        "mistral",
        "7e995b379ec01747807246483647cd99030abf331653f1119e16d7ac041a3495",
        answer=("", "{eos} "),
        start="{bos}",
    ),
    _instructions(
        "mixtral",
        "26a59556925c987317ce5291811ba3b7f32ec4c647c400c6cc7e3a9993007ba7",
        answer=("", "{eos}"),
        start="{bos}",
    ),
    _gemma(
        "gemma",
        "ecd6ae513fe103f0eb62e8ab5bfa8d0fe45c1074fa398b089c93a7e70c15cfd6",
        "1e51d5c0fec2f83da1953fb850b7b532b7da02d0dc35f9201e671e0b9a35a123",
        start="{bos}",
    ),
    _gemma(
        "gemma3",
        "8d9e3a3c114fb2053ec500184677af4f7e5f8ec2582443cd535834e68b3ade29",
        start="{bos}",
        system_in_user=("", "\n\n"),
        strips_system=False,
    ),
    _phi3(
        "phi3",
        "5601fd7b9dac735cd1a9d029f73cbcf63a48f84b640df193dadc6ac6af980391",
        "dcaee66df77bfbb789ec541fe713218da30225a526f1db97138fc39ee6dc56aa",
    ),
    _phi3(
        "phi3.5",
        "107f446a0c69ad81516797efae2998f51b1c8e3ea6e74253dcaff6629306bfc7",
        "78d976a442bcde2f0be15aafbb8e3050e1104f86732266f68403251b89982a90",
        skips_empty_system=True,
    ),
    # The first Phi-3-mini: the answer's mark is part of the user's turn.
    ChatTemplate(
        name="phi3-first",
        turns={
            "system": ("<|system|>\n", "<|end|>\n"),
            "user": ("<|user|>\n", "<|end|>\n<|assistant|>\n"),
            "assistant": ("", "<|end|>\n"),
        },
        start="{bos}",
        hashes=(
            "f84a87af997b77b79c56ba109872e7a9917a24204225ad0d82897dde0981cb9f",
            "68e5b97472ceec7523b68d3678958db46f568999a43221ae354a6ba0bcf0a611",
        ),
    ),
    ChatTemplate(
        name="olmo2",
        turns={
            "system": ("<|system|>\n", "\n"),
            "user": ("<|user|>\n", "\n"),
            "assistant": ("<|assistant|>\n", "{eos}\n"),
        },
        start="{bos}",
        opening="<|assistant|>\n",
        hashes=(
            "a3fff33b9c6fb5c804dab4d85d06d33452e646ec1e038b1b29f170569e2f0380",
            "fe689ffbd6a4e2d0532d7480696b065b10e0e1eff3f9b9fc4bea415761e4bf4a",
        ),
    ),
    _chatml(
        "hermes",
        "68268d4bc1d650084b6b70d429c28c731b651126ee7bec82cd124cc782af9d0d",
        "a805e50fed68938a076b07e2e602639611b50b1ced0e50f11eb92f1ba25be4dc",
        # The program for tools, which folders have beside the other.
        "ce62e308475b364e1fc76699dccbddeb9ac08344f90d59719dba86a9922834d9",
        start="{bos}",
        tools=_HERMES_TOOLS,
    ),
    ChatTemplate(
        name="mistral-nemo",
        turns={"user": ("[INST]", "[/INST]"), "assistant": ("", "{eos}")},
        start="{bos}",
        system_in_user=("", "\n\n"),
        system_in_last=True,
        alternates=True,
        tools=_NEMO_TOOLS,
        hashes=("e7deee034838db2bfc7487788a3013d8a307ab69f72f3c54a85f06fd76007d4e",),
    ),
    ChatTemplate(
        name="deepseek-r1-distill",
        turns={
            "system": ("", ""),
            "user": (_fullwidth("User"), ""),
            "assistant": (_fullwidth("Assistant"), _fullwidth("end▁of▁sentence")),
        },
        start="{bos}",
        opening=f"{_fullwidth('Assistant')}<think>\n",
        system_first=True,
        drops_thoughts=True,
        drops_line_breaks=False,
        hashes=(
            "dd2675619a64a449cdcdd2b93e605a0a50764cee41e344f244752bc93643936c",
            "56a1447ad31926fdc21fb07e56e5642bd9c850c4f52d8c8af7bbe5f079a84f5f",
        ),
    ),
    ChatTemplate(
        name="zephyr",
        turns={role: (f"<|{role}|>\n", "{eos}\n") for role in ("system", "user", "assistant")},
        opening="<|assistant|>\n",
        hashes=(
            "66291cf0045c2425a3a667cf3cbb7af2b11f09e025c02f97245323ab79119362",
            "4f39e3a4b9e3d369b42fd00d93a78f171914bb4e58ec84fc420433d7a153288a",
        ),
    ),
)
CHAT_TEMPLATES: Mapping[str, ChatTemplate] = {template.name: template for template in _ALL}


def find_chat_template(text: str) -> ChatTemplate:
    """Returns the template with a name, or with the published Jinja text.

    Raises:
        ValueError: it is neither.
    """
    if text in CHAT_TEMPLATES:
        return CHAT_TEMPLATES[text]
    digest = hashlib.sha256(text.strip().encode()).hexdigest()
    for template in CHAT_TEMPLATES.values():
        if digest in template.hashes:
            return template
    raise ValueError(
        f"chat_template={' '.join(text.split())!r:.80}: not one of the published templates "
        f"{', '.join(CHAT_TEMPLATES)}; other programs are not run here: if it is equivalent to "
        "one of these, pass that name as chat_template=..."
    )
