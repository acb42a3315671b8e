"""Makes chat_templates.json with transformers, from published chat templates.

    python tests/golden/make_chat_templates.py FOLDER/*.jinja

They are the `chat_template` of the models' tokenizer_config.json; llama-cpp-python's source package
on PyPI has most of them. The file keeps their SHA-256 and what they make of conversations.
"""

import hashlib
import json
import sys
from pathlib import Path

from jinja2.exceptions import TemplateError
from transformers.utils.chat_template_utils import render_jinja_template

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


def rendered(template: str, conversation: list[tuple[str, str]]) -> str | None:
    """Returns what a template makes of a conversation; None if it refuses it."""
    messages = [{"role": role, "content": content} for role, content in conversation]
    try:
        texts, _ = render_jinja_template(
            [messages],
            chat_template=template,
            add_generation_prompt=True,
            bos_token="<s>",
            eos_token="</s>",
            date_string="26 Jul 2024",
        )
    except TemplateError:
        return None
    return texts[0]


def main() -> None:
    """Writes the file."""
    found = []
    for file in sorted(sys.argv[1:]):
        template = Path(file).read_text("utf-8").strip()
        found.append(
            {
                "sha256": hashlib.sha256(template.encode()).hexdigest(),
                "texts": [rendered(template, each) for each in CONVERSATIONS],
            }
        )
    FILE.write_text(
        json.dumps({"conversations": CONVERSATIONS, "templates": found}, indent=1) + "\n"
    )


main()
