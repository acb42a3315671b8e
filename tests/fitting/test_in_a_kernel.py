"""Runs the notebook of `fit` in a real kernel of Jupyter."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_dataframe_becomes_a_served_answer(monkeypatch):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    pytest.importorskip("pandas")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(ROOT / "docs/notebooks/fit_in_a_notebook.ipynb", as_version=4)
    for cell in notebook.cells:
        cell.outputs = []
    resources = {"metadata": {"path": ROOT / "docs/notebooks"}}  # it goes to a folder of its own
    nbclient.NotebookClient(
        notebook, timeout=500, kernel_name="python3", resources=resources
    ).execute()
    pages = [
        output.data["text/html"]
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "display_data" and "text/html" in output.data
    ]
    assert any(
        "<progress" in page and "val_accuracy" in page and "0:00 left" in page for page in pages
    )
    printed = "".join(
        output.text
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "stream" and output.name == "stdout"
    )
    assert "classes are never predicted" in printed
    assert "Classification(label=" in printed
    assert "Epoch 1/10" not in printed  # the bar shows it
