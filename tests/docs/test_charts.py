"""The pictures of the page of results show the figures in benchmarks/results."""

import html
import importlib.util
import json
import re
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install -e .[translation]")
ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("charts", ROOT / "docs/site/charts.py")
charts = importlib.util.module_from_spec(spec)
spec.loader.exec_module(charts)


@pytest.mark.parametrize("name", charts.CHARTS)
def test_a_chart_is_that_of_the_figures(name):
    """If not: python docs/site/charts.py."""
    svg = (charts.IMAGES / f"{name}.svg").read_text("utf-8")
    shown = re.search("<dc:description>(.*?)</dc:description>", svg, re.DOTALL)[1]
    values = json.loads(json.dumps(charts.CHARTS[name]().values))
    assert json.loads(html.unescape(shown)) == values
