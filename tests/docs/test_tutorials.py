"""Runs the tutorials, in order, as in a clone; and compares the notebooks with their pages."""

import importlib.util
import json
from pathlib import Path

import pytest

from keras_transformers import registry

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("notebooks", ROOT / "docs/site/notebooks.py")
notebooks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(notebooks)


def tutorials():
    for path in sorted(notebooks.TUTORIALS.glob("*.md")):
        marks = [pytest.mark.slow] if notebooks.SLOW in path.read_text("utf-8") else []
        yield pytest.param(path, id=path.stem, marks=marks)


@pytest.mark.parametrize("path", tutorials())
def test_a_tutorial_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_additions", {})  # what a page registers ends with it
    notebooks.run(path, tmp_path)
    assert "assert" in path.read_text("utf-8")


@pytest.mark.parametrize("name", notebooks.AS_NOTEBOOKS)
def test_a_notebook_has_the_text_and_the_code_of_its_page(name):
    """If not: python docs/site/notebooks.py."""
    path = notebooks.NOTEBOOKS / f"{name}.ipynb"
    found = json.loads(path.read_text("utf-8"))
    page = notebooks.TUTORIALS / f"{name}.md"
    expected = notebooks.notebook(page, ["" for _ in notebooks.cells(page)])
    assert [cell["source"] for cell in found["cells"]] == [
        cell["source"] for cell in expected["cells"]
    ]
    assert "/tmp" not in path.read_text("utf-8")


@pytest.mark.parametrize("name", notebooks.AS_NOTEBOOKS)
def test_figures_of_trained_models_are_said_to_vary(name):
    """The last digits of a trained model's figures are those of one processor."""
    page = (notebooks.TUTORIALS / f"{name}.md").read_text("utf-8")
    trains = "fit(" in page or "python recipes/" in page
    assert ("vary with the processor" in " ".join(page.split())) == trains


def test_a_notebook_with_recipes_finds_them_from_its_own_folder(monkeypatch):
    found = json.loads((notebooks.NOTEBOOKS / "pretrain_to_serve.ipynb").read_text("utf-8"))
    monkeypatch.chdir(notebooks.NOTEBOOKS)
    exec("".join(found["cells"][1]["source"]), {})
    assert Path.cwd() != notebooks.NOTEBOOKS
    assert Path("recipes/pretrain_bert.py").is_file()
