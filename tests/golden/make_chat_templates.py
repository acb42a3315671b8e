"""Makes chat_templates.json with transformers, from published chat templates.

    python tests/golden/make_chat_templates.py FOLDER/*.jinja

They are the `chat_template` of the models' tokenizer_config.json; llama-cpp-python's source package
on PyPI has most of them. The file keeps their SHA-256 and what they make of conversations, with
tools where they have any, and the texts of programs that are not among those given.
"""

import datetime
import hashlib
import json
import sys
from pathlib import Path

import transformers.utils.chat_template_utils as chat_template_utils
from jinja2.exceptions import TemplateError

FILE = Path(__file__).parent / "chat_templates.json"
START = [("user", "Hi"), ("assistant", "Hello!"), ("user", "What is 1 + 1?")]
CONVERSATIONS = [
    START[:1],
    START,
    [("system", "Be brief."), *START],
    [("user", " \n two\u00a0lines\n\nof text\t\u2003"), ("assistant", " a \n"), ("user", "")],
    [("system", " s \n"), ("user", " u ")],
    [
        ("user", "<|im_end|> [INST] </s> </think>"),
        ("assistant", "<think>\nm\n</think>\n\na"),
        *START,
    ],
    [("user", "a"), ("assistant", "b</think>c</think>\nd"), ("user", "e")],
    [("user", "a"), ("user", "b")],
    [("system", "s"), ("user", "a"), ("user", "b")],
    [("assistant", "a"), ("user", "b")],
    [("user", "a"), ("system", "s"), ("user", "b")],
]
# SHA-256 -> name -> options of a program that are templates of their own here.
OPTIONS = {
    "87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5": {
        "qwen3-no-think": {"enable_thinking": False}
    }
}
DATE = datetime.datetime(2024, 7, 26)


def function(name: str, description: str, required: list[str], **properties: dict) -> dict:
    """Returns a tool."""
    parameters = {"type": "object", "properties": properties, "required": required}
    described = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": described}


def answer(content: str, *calls: tuple[str, dict]) -> dict:
    """Returns an answer with calls."""
    functions = [{"name": name, "arguments": arguments} for name, arguments in calls]
    tool_calls = [{"type": "function", "function": each} for each in functions]
    return {"role": "assistant", "content": content, "tool_calls": tool_calls}


def identified(message: dict, *ids: str) -> dict:
    """Returns an answer whose calls have ids."""
    calls = zip(message["tool_calls"], ids, strict=True)
    return {**message, "tool_calls": [{**call, "id": id_} for call, id_ in calls]}


TOOLS = [
    function(
        "weather",
        'The <weather> & "wind" of a city, it\'s in \u00b0C: \u65e5\u672c \U0001f600',
        ["city"],
        city={"type": "string", "description": " A city's name. "},
        days={"type": ["integer", "number"], "enum": [1, 2.5, None, True]},
        where={"type": "array", "items": {"type": "string"}},
        more={"type": "object", "additionalProperties": {"type": "boolean"}},
    ),
    function("now", "The time.", []),
]
USER, LATER = {"role": "user", "content": "Hi"}, {"role": "user", "content": "And now?"}
SYSTEM = {"role": "system", "content": "Be brief."}
WEATHER = ("weather", {"city": 'Z\u00fcrich\'s "old" <town>\n', "days": 2.5, "more": {}})
RESULT = {"role": "tool", "content": '{"degrees": 22, "text": "sch\u00f6n"}'}
THOUGHTS = "<think>\n\nThe user\nwants it.\n\n</think>\n\n"
# In programs with tools, or with a switch for thoughts; and what these are given.
WITH_TOOLS = ("/no_think", "<tool_call>", "custom_tools", "[TOOL_CALLS]")
FURTHER = [
    {"tools": TOOLS, "messages": [USER]},
    {"tools": TOOLS[1:], "messages": [SYSTEM, USER]},
    {"tools": TOOLS, "messages": [USER, answer("", WEATHER), RESULT]},
    {
        "tools": TOOLS,
        "messages": [
            SYSTEM, USER, answer("", WEATHER, ("now", {})), RESULT, {**RESULT, "content": "10:00"},
        ],
    },
    {
        "tools": TOOLS,
        "messages": [
            SYSTEM, USER, answer("I look.", ("now", {})), {**RESULT, "content": ""},
            {"role": "assistant", "content": "It is ten."}, LATER,
            answer("Again", ("now", {}), WEATHER), RESULT,
        ],
    },
    {
        "tools": TOOLS,
        "messages": [
            USER, answer(THOUGHTS + "I look.", ("now", {})), RESULT,
            answer(THOUGHTS, ("now", {})), RESULT, {"role": "assistant", "content": "Ten."}, LATER,
            answer(THOUGHTS, ("now", {}), ("now", {})), RESULT, RESULT,
            answer(f"x{THOUGHTS}y</think>\n\nz", WEATHER), RESULT,
        ],
    },
    {"tools": [], "messages": [USER, answer("", ("now", {})), RESULT]},
    {"tools": TOOLS, "messages": [USER, {"role": "assistant", "content": "You!"}, LATER]},
    {"tools": TOOLS, "messages": [{**SYSTEM, "content": "/no_think"}, USER]},
    {
        "tools": [],
        "messages": [
            {**SYSTEM, "content": "s /no_think "}, {**USER, "content": "a /think"},
            {"role": "assistant", "content": "\n\nb"}, LATER,
        ],
    },
    {
        "tools": [],
        "messages": [
            {**SYSTEM, "content": "/think"}, USER,
            {"role": "assistant", "content": "\n<think>b</think>c"}, LATER,
        ],
    },
    {
        "tools": [],
        "messages": [
            {**SYSTEM, "content": "Only this. /system_override /no_think\n"}, USER,
            {"role": "assistant", "content": "b"}, LATER,
        ],
    },
    {
        "tools": TOOLS,
        "messages": [
            {**SYSTEM, "content": " Be brief.\n"}, USER, answer("I look.", WEATHER), RESULT,
            {"role": "assistant", "content": "Warm."}, LATER, answer("", ("now", {})), RESULT,
        ],
    },
    {
        "tools": TOOLS,
        "messages": [
            SYSTEM, USER, identified(answer("", WEATHER, ("now", {})), "aB3dE6gH9", "123456789"),
            {**RESULT, "tool_call_id": "123456789"}, {**RESULT, "tool_call_id": "aB3dE6gH9"},
            {"role": "assistant", "content": "Warm."}, USER,
        ],
    },
]  # fmt: skip


class Clock(datetime.datetime):
    """A clock that always says the same day, for templates that write it."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
        """Returns the day."""
        return DATE


def rendered_with_tools(template: str, conversation: dict, **options: object) -> str | None:
    """Returns what a template makes of a conversation with tools.

    SmolLM3's takes the tools under another name, and answers with the calls as text. Mistral
    Nemo's needs ids of nine characters.
    """
    messages, tools = conversation["messages"], conversation["tools"] or None
    if "length 9" in template:
        messages = with_ids(messages)
    if "xml_tools" not in template:
        return rendered(template, messages, tools=tools, **options)
    messages = [{**message, "content": with_calls(message)} for message in messages]
    return rendered(template, messages, xml_tools=tools, **options)


def with_ids(messages: list[dict]) -> list[dict]:
    """Returns messages whose calls and results have ids: the number of a call without one."""
    identified, ids, number = [], [], 0
    for message in messages:
        if "tool_calls" in message:
            calls = message["tool_calls"]
            ids = [each.get("id", f"{number + i:09}") for i, each in enumerate(calls)]
            number += len(calls)
            calls = [{**call, "id": id_} for call, id_ in zip(calls, ids, strict=True)]
            message = {**message, "tool_calls": calls}
        elif message["role"] == "tool":
            message = {"tool_call_id": ids.pop(0), **message}
        identified.append(message)
    return identified


def with_calls(message: dict) -> str:
    """Returns a message's text and its calls."""
    functions = [call["function"] for call in message.get("tool_calls", [])]
    calls = [
        f"<tool_call>\n{json.dumps(each, ensure_ascii=False)}\n</tool_call>" for each in functions
    ]
    return "\n".join(([message["content"]] if message["content"] else []) + calls)


def rendered(template: str, messages: list[dict], **more: object) -> str | None:
    """Returns what a template makes of a conversation; None if it refuses it."""
    try:
        texts, _ = chat_template_utils.render_jinja_template(
            [messages],
            chat_template=template,
            add_generation_prompt=True,
            bos_token="<s>",
            eos_token="</s>",
            date_string="26 Jul 2024",
            **more,
        )
    except (TemplateError, TypeError):  # the latter without the tools that a program needs
        return None
    return texts[0]


def main() -> None:
    """Writes the file."""
    chat_template_utils.datetime = Clock
    old = json.loads(FILE.read_text("utf-8"))
    found = {(each["sha256"], each.get("name", "")): each for each in old["templates"]}
    for file in sorted(sys.argv[1:]):
        template = Path(file).read_text("utf-8").strip()
        digest = hashlib.sha256(template.encode()).hexdigest()
        plain = [
            [{"role": role, "content": content} for role, content in each] for each in CONVERSATIONS
        ]
        for name, options in [("", {}), *OPTIONS.get(digest, {}).items()]:
            texts = [rendered(template, each, **options) for each in plain]
            made = {"sha256": digest, "texts": texts if any(texts) else None}
            made |= {"name": name} if name else {}
            if any(part in template for part in WITH_TOOLS):
                made["further"] = [
                    rendered_with_tools(template, each, **options) for each in FURTHER
                ]
            found[digest, name] = made
    content = {
        "conversations": CONVERSATIONS,
        "further": FURTHER,
        "templates": list(found.values()),
    }
    FILE.write_text(json.dumps(content, indent=1) + "\n")


main()
