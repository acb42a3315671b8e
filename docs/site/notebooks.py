"""Runs the tutorials, and writes some of them as notebooks with what they print.

    python docs/site/notebooks.py

A page's blocks of Python and of shell commands run in order, in a folder that has the recipes. The
tests run all pages, and check that each notebook has its page's text and code.
"""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs/tutorials"
NOTEBOOKS = ROOT / "docs/notebooks"
AS_NOTEBOOKS = (
    *("transformer", "counting_bert", "recurrence_to_attention", "pretrain_to_serve"),
    *("fit_in_a_notebook", "bert_to_llama", "how_a_model_chooses"),
    "how_text_becomes_tokens",
)
SLOW = "<!-- slow -->"  # at the end of a page that takes more than a few seconds
# In a notebook the current folder is its own, which has no recipes or tables and should stay clean.
SETUP = """# Go to an empty folder with the clone's recipes and tables, which the cells below use.
import os
import tempfile
from pathlib import Path

sources = [Path("../../recipes"), *Path("../tutorials").glob("*.csv.gz")]
sources = [source.resolve() for source in sources]
os.chdir(tempfile.mkdtemp())
for source in sources:
    os.symlink(source, source.name)
"""
_BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```$\n?", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:)([^)]+)\)")


class Cell(NamedTuple):
    """A piece of a page: `kind` is "markdown", "python" or "bash"; `line` is where it starts."""

    kind: str
    text: str
    line: int


def cells(page: Path) -> Iterator[Cell]:
    """Yields a page's texts and blocks, in order."""
    text, end = page.read_text("utf-8").replace(SLOW, ""), 0
    for block in _BLOCK.finditer(text):
        if between := text[end : block.start()].strip():
            yield Cell("markdown", between, 0)
        yield Cell(block[1], block[2], text[: block.start(2)].count("\n"))
        end = block.end()
    if after := text[end:].strip():
        yield Cell("markdown", after, 0)


def run(page: Path, folder: Path, names: dict[str, Any] | None = None) -> list[str]:
    """Runs a page in a folder, the current one; returns what each cell prints.

    Args:
        page: the page.
        folder: the folder, which gets links to the recipes and to the tables beside the page.
        names: what the page's Python defines is put there.

    Raises:
        AssertionError: a command failed; errors of Python are raised as they are.
    """
    for source in (ROOT / "recipes", *TUTORIALS.glob("*.csv.gz")):
        if not (folder / source.name).exists():
            (folder / source.name).symlink_to(source)
    names = {} if names is None else names
    names["__name__"] = "tutorial"
    printed = []
    for cell in cells(page):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            if cell.kind == "python":
                # The empty lines let an error name the line of the page.
                exec(compile("\n" * cell.line + cell.text, str(page), "exec"), names)
            elif cell.kind == "bash":
                print(_run_commands(cell.text, f"{page}:{cell.line + 1}"), end="")
        printed.append(output.getvalue().replace(str(folder), "."))
    return printed


def _run_commands(lines: str, place: str) -> str:
    folders = [str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = os.environ | {"PATH": os.pathsep.join(folders), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", lines],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"{place}\n{done.stdout}\n{done.stderr[-4000:]}"
    return done.stdout


def notebook(page: Path, printed: list[str]) -> dict[str, Any]:
    """Returns a notebook, format 4.5, of a page and of what its cells print."""
    found = []
    for number, (cell, output) in enumerate(zip(cells(page), printed, strict=True)):
        if cell.kind == "markdown":
            text = _LINK.sub(r"](../tutorials/\1)", cell.text)
            found.append(
                {
                    "id": f"cell-{number}",
                    "metadata": {},
                    "cell_type": "markdown",
                    "source": text.splitlines(True),
                }
            )
            continue
        code = cell.text if cell.kind == "python" else f"%%bash\n{cell.text}"
        found.append(_code(f"cell-{number}", code, output))
    if any(name in page.read_text("utf-8") for name in ("python recipes/", ".csv.gz")):
        found.insert(1, _code("setup", SETUP, ""))  # after the title
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": found, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def _code(name: str, code: str, output: str) -> dict[str, Any]:
    stream = {"name": "stdout", "output_type": "stream", "text": output.splitlines(True)}
    return {
        "id": name,
        "metadata": {},
        "cell_type": "code",
        "source": code.rstrip("\n").splitlines(True),
        "execution_count": None,
        "outputs": [stream] if output else [],
    }


def _printed(path: Path, page: Path) -> list[str] | None:
    """Returns what a notebook's cells printed; None if there is none or the page has other code."""
    if not path.is_file():
        return None
    old = json.loads(path.read_text("utf-8"))["cells"]
    new = notebook(page, ["" for _ in cells(page)])["cells"]
    old, new = ([cell for cell in each if cell["id"] != "setup"] for each in (old, new))
    if [c["source"] for c in old if c["cell_type"] == "code"] != [
        c["source"] for c in new if c["cell_type"] == "code"
    ]:
        return None
    outputs = iter(
        "".join(line for output in cell["outputs"] for line in output["text"])
        for cell in old
        if "outputs" in cell
    )
    return [next(outputs) if "outputs" in c else "" for c in new]


def main() -> None:
    """Writes the notebooks. Those whose code is as it was keep what it printed; others run."""
    NOTEBOOKS.mkdir(exist_ok=True)
    for name in AS_NOTEBOOKS:
        page = TUTORIALS / f"{name}.md"
        printed = _printed(NOTEBOOKS / f"{name}.ipynb", page)
        if printed is None:
            with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
                printed = run(page, Path(folder))
        found = notebook(page, printed)
        text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
        (NOTEBOOKS / f"{name}.ipynb").write_text(text, "utf-8")
        print(f"written: {NOTEBOOKS / name}.ipynb")


if __name__ == "__main__":
    main()
