"""Runs the tutorial on classification and writes the pictures of its reports.

    python docs/site/tutorial_pictures.py        # docs/images/python_changes_*.svg

The pictures are of trained models, so they vary with the processor.
"""

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import notebooks

IMAGES = Path(__file__).parents[1] / "images"


def main() -> None:
    """Writes the pictures."""
    names: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        notebooks.run(notebooks.TUTORIALS / "fit_in_a_notebook.md", Path(folder), names)
    pictures = {
        "before": names["before"].report.svg("confusion"),
        "after": names["report"].svg("confusion"),
        "reliability": names["report"].svg("reliability"),
        "why": names["why"].svg(),
    }
    for name, picture in pictures.items():
        path = IMAGES / f"python_changes_{name}.svg"
        path.write_text(picture, "utf-8")
        print(f"written: {path}")


if __name__ == "__main__":
    main()
