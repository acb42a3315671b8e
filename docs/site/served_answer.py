"""Draws the picture of the first page: a text goes into TF Serving, its answer comes out.

    python docs/site/served_answer.py        # docs/images/served_answer.svg, ..._narrow.svg

The answer is that of `saved_models/sentiment_en`, asked through TF Serving's REST API, which the
local server speaks. The pictures hold it as a description, which a test compares with the export.
"""

import html
import json
import textwrap
from pathlib import Path
from typing import Any

from keras_transformers.saved_model.models_config import VersionPolicy
from keras_transformers.serving import Client, ModelSettings, Server

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs/images"
EXPORT = ROOT / "saved_models/sentiment_en"
TEXT = "The plot is thin, but the actors are wonderful."
_MEANINGS = ("negative", "positive")  # of the labels 0 and 1
_STYLE = """
text { font: 15px system-ui, sans-serif; fill: #1b1f24; }
.soft { fill: #57606a; font-size: 13px; }
.code { font: 13px ui-monospace, monospace; }
.bold { font-weight: 600; }
.box { fill: #f6f8fa; stroke: #8c959f; }
.served { fill: #dbe9fb; stroke: #2457a6; }
.step { fill: #ffffff; stroke: #8c959f; }
.bar { fill: #2457a6; }
.rail { fill: #d0d7de; }
.arrow { fill: none; stroke: #2457a6; stroke-width: 2; }
.head { fill: #2457a6; }
.dot { fill: #2457a6; animation: go 2.4s ease-in-out infinite; }
@keyframes go {
from { transform: none; opacity: 0; }
20%, 80% { opacity: 1; }
to { transform: var(--way); opacity: 0; }
}
@media (prefers-reduced-motion: reduce) { .dot { display: none; } }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; }
.soft { fill: #9aa7b4; }
.box { fill: #171c23; stroke: #6e7681; }
.served { fill: #16294a; stroke: #6ea8fe; }
.step { fill: #0f1318; stroke: #6e7681; }
.bar, .head, .dot { fill: #6ea8fe; }
.rail { fill: #30363d; }
.arrow { stroke: #6ea8fe; }
}
"""


def ask() -> dict[str, Any]:
    """Returns the export's answer to `TEXT`, from the local server's REST API."""
    published = VersionPolicy("specific", versions=(1,))  # not what was exported beside it
    settings = [ModelSettings(EXPORT.name, EXPORT, published)]
    with Server(settings, rest_port=0, grpc_port=None) as server:
        server.wait_until_loaded(60)
        with Client(f"http://127.0.0.1:{server.rest_port}") as client:
            (row,) = client.rows([TEXT], model=EXPORT.name)
    probabilities = [round(float(value), 3) for value in row["probabilities"]]
    return {"text": TEXT, "label": row["label"], "probabilities": probabilities}


def wide(answer: dict[str, Any]) -> str:
    """Returns the picture for a wide page: from left to right."""
    return _svg(
        (862, 186),
        answer,
        _given((1, 30), answer["text"], 150),
        _arrow((230, 105), (276, 105)),
        _server((283, 30)),
        _arrow((582, 105), (628, 105)),
        _answer((635, 30), answer),
    )


def narrow(answer: dict[str, Any]) -> str:
    """Returns the picture for a phone: from top to bottom."""
    return _svg(
        (342, 558),
        answer,
        _given((58, 28), answer["text"], 100),
        _arrow((171, 134), (171, 160)),
        _server((26, 192)),
        _arrow((171, 348), (171, 374)),
        _answer((58, 406), answer),
    )


def _given(place: tuple[int, int], text: str, height: int) -> list[str]:
    x, y = place
    lines = textwrap.wrap(f"\u201c{text}\u201d", 24)
    return [
        _words(x, y - 12, "Text in", "bold"),
        _box(x, y, 222, height, "box"),
        *(_words(x + 16, y + height / 2 - 18 + 24 * i, line) for i, line in enumerate(lines)),
    ]


def _server(place: tuple[int, int]) -> list[str]:
    x, y = place
    metadata = json.loads((EXPORT / "1/assets.extra/keras_transformers.json").read_text("utf-8"))
    steps = (
        "tokenizer, in the graph",
        f"BERT, {metadata['model']['num_parameters']:,} parameters",
        "label and probabilities",
    )
    parts = [
        _words(x, y - 12, "TF Serving", "bold"),
        _words(x + 292, y - 12, f"saved_models/{EXPORT.name}", "code", "end"),
        _box(x, y, 292, 150, "served"),
    ]
    for i, step in enumerate(steps):
        parts.append(_box(x + 16, y + 14 + 43 * i, 260, 35, "step"))
        parts.append(_words(x + 146, y + 37 + 43 * i, step, "", "middle"))
    return parts


def _answer(place: tuple[int, int], answer: dict[str, Any]) -> list[str]:
    x, y = place
    parts = [_words(x, y - 12, "Answer out", "bold"), _box(x, y, 226, 150, "box")]
    parts.append(_words(x + 16, y + 32, f'"label": "{answer["label"]}"', "code"))
    shown = sorted(enumerate(answer["probabilities"]), key=lambda pair: -pair[1])
    for i, (label, probability) in enumerate(shown):
        top = y + 62 + 44 * i
        parts += [
            _words(x + 16, top, f"{label}, {_MEANINGS[label]}"),
            _words(x + 210, top, f"{probability:.3f}", "", "end"),
            _box(x + 16, top + 8, 194, 8, "rail", 4),
            _box(x + 16, top + 8, round(194 * probability, 1), 8, "bar", 4),
        ]
    return parts


def _arrow(start: tuple[int, int], end: tuple[int, int]) -> list[str]:
    (x1, y1), (x2, y2) = start, end
    way = f"--way: translate({x2 - x1}px, {y2 - y1}px)"
    tip = "M0 0 L-10 -6 L-10 6 z" if y1 == y2 else "M0 0 L-6 -10 L6 -10 z"
    return [
        f'<path class="arrow" d="M{x1} {y1} L{x2} {y2}"/>',
        f'<path class="head" transform="translate({x2} {y2})" d="{tip}"/>',
        f'<circle class="dot" cx="{x1}" cy="{y1}" r="4" style="{way}"/>',
    ]


def _words(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return (
        f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{html.escape(words)}</text>'
    )


def _box(x: float, y: float, width: float, height: float, kind: str, corner: int = 8) -> str:
    size = f'width="{width}" height="{height}" rx="{corner}"'
    return f'<rect x="{x}" y="{y}" {size} class="{kind}"/>'


def _svg(size: tuple[int, int], answer: dict[str, Any], *parts: list[str]) -> str:
    width, height = size
    title = f"TF Serving answers \u201c{answer['text']}\u201d with label {answer['label']}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">',
        f"<title>{html.escape(title)}</title>",
        f"<desc>{html.escape(json.dumps(answer), quote=False)}</desc>",
        f"<style>{_STYLE}</style>",
        *(line for part in parts for line in part),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Writes the pictures."""
    answer = ask()
    for draw in (wide, narrow):
        path = IMAGES / f"served_answer{'' if draw is wide else '_narrow'}.svg"
        path.write_text(draw(answer), "utf-8")
        print(f"written: {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
