"""Runs the tutorials: their blocks of Python, in order, in one namespace."""

import re
from pathlib import Path

import pytest

TUTORIALS = sorted((Path(__file__).parents[2] / "docs" / "tutorials").glob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs(path, tmp_path, monkeypatch):
    text = path.read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "tutorial"}
    for block in BLOCK.finditer(text):
        line = text[: block.start(1)].count("\n")  # so that an error names the line of the page
        exec(compile("\n" * line + block[1], str(path), "exec"), names)
    assert "assert" in text
