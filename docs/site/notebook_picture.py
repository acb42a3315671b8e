"""Runs the notebook of `fit` in a real kernel and photographs its page.

    pip install -e '.[dev]' nbconvert
    python docs/site/notebook_picture.py        # docs/images/fit_in_a_notebook.png

Needs Chromium.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import nbclient
import nbconvert
import nbformat
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs/notebooks/fit_in_a_notebook.ipynb"
PICTURE = ROOT / "docs/images/fit_in_a_notebook.png"
WIDTH, HEIGHT = 900, 614  # of the part that is shown, from the call of fit on


def main() -> None:
    """Writes the picture."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        raise SystemExit("needs Chromium: apt install chromium")
    os.environ["PYTHONPATH"] = str(ROOT)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        nbclient.NotebookClient(notebook, timeout=900, resources=resources).execute()
    for cell in notebook.cells:  # without TensorFlow's log
        outputs = cell.get("outputs", [])
        cell.outputs = [output for output in outputs if output.get("name") != "stderr"]
    html, _ = nbconvert.HTMLExporter().from_notebook_node(notebook)
    with tempfile.TemporaryDirectory() as place, sync_playwright() as driver:
        page_file = Path(place, "page.html")
        page_file.write_text(html, "utf-8")
        chromium = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(page_file.as_uri())
        cell = page.locator(".jp-CodeCell", has_text="kt.fit(").first
        top = cell.bounding_box()["y"] - 10
        page.screenshot(
            path=PICTURE,
            full_page=True,
            clip={"x": 0, "y": top, "width": WIDTH, "height": HEIGHT},
        )
        chromium.close()
    print(f"{PICTURE}: {PICTURE.stat().st_size:,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
