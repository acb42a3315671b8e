"""Draws the pictures that explain Transformers, beside the text of the tutorials.

    python docs/site/pictures.py                 # docs/images/transformer.svg and the others
    python docs/site/pictures.py masks merges

A picture is a function in `topics`, and its file has the function's name. Its numbers come from the
code that they explain.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from drawing import Drawing
from topics import attention, bert, models, positions, recurrence, tokens, training

IMAGES = Path(__file__).parents[1] / "images"
PICTURES: dict[str, Callable[[], Drawing]] = {
    picture.__name__: picture
    for module in (attention, bert, models, positions, recurrence, tokens, training)
    for picture in module.PICTURES
}


def main() -> None:
    """Writes the pictures, or those that are named."""
    names = sys.argv[1:] or list(PICTURES)
    if unknown := [name for name in names if name not in PICTURES]:
        sys.exit(f"unknown picture {unknown[0]!r}: use {', '.join(PICTURES)}")
    for name in names:
        (IMAGES / f"{name}.svg").write_text(str(PICTURES[name]()), "utf-8")
        print(f"written: docs/images/{name}.svg", flush=True)


if __name__ == "__main__":
    main()
