"""Prints the fields of OpenAI's requests into docs/gateway.md, from their types.

    python docs/site/fields.py

The table is between `<!-- fields -->` and `<!-- end -->`.
"""

import json
import re
from pathlib import Path
from typing import Any

from keras_transformers.serving.gateway.openai.chat import ChatRequest
from keras_transformers.serving.gateway.openai.completions import CompletionRequest

PAGE = Path(__file__).parents[1] / "gateway.md"
_BLOCK = re.compile(r"(<!-- fields -->\n).*?(<!-- end -->)", re.DOTALL)
_ROUTES = {"chat": ChatRequest, "completions": CompletionRequest}
_WIDTH = 120


def table() -> str:
    """Returns the table, and the fields that are ignored or not supported."""
    schemas = {route: kind.model_json_schema()["properties"] for route, kind in _ROUTES.items()}
    fields: dict[str, dict[str, Any]] = {}
    for schema in schemas.values():
        for name, field in schema.items():
            fields.setdefault(name, field)
    rows, ignored, neutral = [], [], []
    for name, field in sorted(fields.items()):
        if field["description"] == "Ignored.":
            ignored.append(f"`{name}`")
        elif field["description"] == "Not supported.":
            values = [f"`{json.dumps(value)}`" for value in field["enum"] if value is not None]
            neutral.append(f"`{name}`" + (f" ({' or '.join(values)})" if values else ""))
        else:
            about = {
                route: schemas[route][name]["description"]
                for route in schemas
                if name in schemas[route]
            }
            routes = " and ".join(about)
            if len(set(about.values())) == 1:
                about = {routes: next(iter(about.values()))}
            rows += [f"| `{name}` | {route} | {text} |" for route, text in about.items()]
    return "\n".join(
        [
            "| field | in | |",
            "|---|---|---|",
            *rows,
            "",
            *_wrapped(f"Accepted and ignored: {', '.join(ignored)}."),
            "",
            *_wrapped(
                "Not supported, so refused by name unless null, or the value in parentheses, which "
                f"asks for nothing: {', '.join(neutral)}."
            ),
        ]
    )


def printed(text: str) -> str:
    """Returns the page with the table of today."""
    return _BLOCK.sub(lambda block: f"{block[1]}\n{table()}\n\n{block[2]}", text)


def _wrapped(text: str) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        if len(lines[-1]) + len(word) >= _WIDTH:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines


if __name__ == "__main__":
    PAGE.write_text(printed(PAGE.read_text("utf-8")), "utf-8")
