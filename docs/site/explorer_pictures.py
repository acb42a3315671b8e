"""Photographs the explorer for the gallery: one picture per view.

    python docs/site/explorer_pictures.py MINILM SMOLLM2        # docs/images/explorer_*.png

MINILM and SMOLLM2 are what `kt.load` reads: MiniLM's folder and SmolLM2-135M-Instruct's GGUF file.
The pictures of translations need a translator's weights, `--translator WEIGHTS`; without them
those pictures stay as they are. Needs Chromium.
"""

import argparse
import contextlib
import dataclasses
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlencode

from playwright.sync_api import sync_playwright

import keras_transformers as kt
from keras_transformers.explorer import Subject, explorer_server, open_subjects
from keras_transformers.explorer.subjects import of_pipeline

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs/images"
GERMAN = "Zwei Hunde spielen im Schnee."
_NEXT_STEP = "document.querySelector('.steps button:nth-of-type(3)').click();"


class Picture(NamedTuple):
    """A view: its model, tab, texts, and what the page does before it is photographed."""

    model: str
    view: str
    texts: Mapping[str, str]
    act: str = ""  # JavaScript
    width: int = 900
    scheme: Literal["light", "dark"] = "light"
    height: int = 700  # at most


PICTURES = {
    "search": Picture("minilm", "search", {}),
    "chat": Picture("smollm2", "chat", {"message": "What is the capital of France?"}, width=390),
    "next": Picture("smollm2", "next", {"prompt": "The capital of France is"}, scheme="dark"),
    "decoding": Picture(
        "smollm2",
        "decoding",
        {"prompt": "The capital of France is"},
        _NEXT_STEP,
        scheme="dark",
        height=800,
    ),
    "qkv": Picture(
        "minilm",
        "qkv",
        {"text": "The river bank was steep."},
        f"document.querySelectorAll('#queries button')[3].click(); {_NEXT_STEP * 4}",
        width=1100,
        height=900,
    ),
    "inputs": Picture(
        "pairs",
        "inputs",
        {"text": "My dog is cute.", "text_b": "He likes playing."},
        width=1100,
        height=900,
    ),
    "tokens": Picture("minilm", "tokens", {"text": "Tokenization of unbelievable words"}),
    "parameters": Picture(
        "minilm",
        "parameters",
        {},
        "document.querySelectorAll('#panel > details details')[4].open = true",
    ),
    "masks": Picture(
        "fill_mask_en",
        "answer",
        {"text": "She opened the [MASK] and looked out of the window."},
    ),
    "alignment": Picture("translate_de_en", "answer", {"text": GERMAN}),
    "beams": Picture("translator", "beams", {"text": GERMAN}),
    "attention": Picture("translator", "attention", {"text": GERMAN}),
}


def photograph(subjects: list[Subject]) -> None:
    """Writes the pictures of the views that these models have."""
    names = [subject.name for subject in subjects]
    browser_path = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser_path is None:
        raise SystemExit("needs Chromium: apt install chromium")
    with (
        explorer_server(subjects, host="127.0.0.1", port=0) as server,
        sync_playwright() as driver,
        contextlib.closing(
            driver.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        ) as browser,
    ):
        server.wait_until_loaded(120)
        for name, picture in PICTURES.items():
            if picture.model not in names:
                continue
            page = browser.new_page(
                viewport={"width": picture.width, "height": 500},
                color_scheme=picture.scheme,
                locale="en-GB",
            )
            page.set_default_timeout(300_000)
            state = urlencode({"model": picture.model, "view": picture.view, **picture.texts})
            page.goto(f"http://127.0.0.1:{server.rest_port}/#{state}")
            page.wait_for_selector("#panel[data-shown]")
            if picture.act:
                page.evaluate(picture.act)
                page.wait_for_timeout(700)
            height = min(picture.height, page.evaluate("document.documentElement.scrollHeight"))
            path = IMAGES / f"explorer_{name}.png"
            page.screenshot(
                path=path,
                full_page=True,
                clip={"x": 0, "y": 0, "width": picture.width, "height": height},
            )
            page.close()
            print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes", file=sys.stderr)


def main() -> None:
    """Opens the models and photographs them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("minilm", type=Path)
    parser.add_argument("smollm2", type=Path)
    parser.add_argument("--translator", type=Path)
    options = parser.parse_args()
    given = {name: path for name, path in vars(options).items() if path is not None}
    subjects = [
        dataclasses.replace(subject, name=name)
        for name, subject in zip(given, open_subjects(list(given.values())), strict=True)
    ]
    exports = [ROOT / "saved_models" / name for name in ("fill_mask_en", "translate_de_en")]
    # What it reads does not depend on its head, which is new.
    pairs = kt.load(options.minilm, pipeline="regression", pair=True)
    photograph([*subjects, of_pipeline("pairs", pairs), *open_subjects(exports)])


if __name__ == "__main__":
    main()
