"""The pictures of the page of results show the figures in benchmarks/results."""

import importlib.util
import io
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install -e .[translation]")
ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("charts", ROOT / "docs/site/charts.py")
charts = importlib.util.module_from_spec(spec)
spec.loader.exec_module(charts)


def marks(svg):
    """The lines of an SVG that place points and labels, without what versions of matplotlib change."""
    return [line for line in svg.splitlines() if "<use " in line or "<text" in line]


@pytest.mark.parametrize("name", charts.CHARTS)
def test_a_chart_is_that_of_the_figures(name):
    """If not: python docs/site/charts.py."""
    drawn = io.BytesIO()
    charts.draw(name, drawn)
    assert marks(drawn.getvalue().decode()) == marks((charts.IMAGES / f"{name}.svg").read_text())
