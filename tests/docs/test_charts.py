"""The pictures of results and performance show the figures in benchmarks/results, legibly."""

import html
import importlib.util
import json
import re
from pathlib import Path

import pytest
from checks import contrast

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


@pytest.mark.parametrize("light", charts.DARK)
def test_colours_have_contrast(light):
    """At least 4.5 to 1 on white and on the dark scheme's background, but for the guide lines."""
    if light == charts.GUIDE:
        return
    assert contrast(light, "#ffffff") >= 4.5
    assert contrast(charts.DARK[light], "#1e2129") >= 4.5


def pictures():
    found = [charts.IMAGES / f"{name}.svg" for name in charts.CHARTS]
    return found + sorted((charts.IMAGES / "results").glob("*.svg"))


@pytest.mark.parametrize("path", pictures(), ids=lambda path: path.stem)
def test_a_picture_fits_a_phone_in_both_schemes(path):
    svg = path.read_text("utf-8")
    width = float(re.search(r'<svg [^>]*width="([\d.]+)pt"', svg)[1])
    sizes = {float(size) for size in re.findall(r"font(?:-size)?: (?:bold )?([\d.]+)px", svg)}
    assert min(sizes) * 358 / width >= 11  # pixels of text, where a page of 390 has 358 for it
    assert set(re.findall(r"(?:fill|stroke): (#\w+)", svg.partition("</style>")[2])) <= set(
        charts.DARK
    )
    assert "prefers-color-scheme: dark" in svg


def test_series_differ_without_colour():
    assert len({look.marker for look in charts.LOOKS}) == len(charts.LOOKS)
    for table in charts.CONTESTS:
        names = dict.fromkeys(name for _, ratios in charts._ratios(table) for name in ratios)
        looks = charts.looks_of(names)
        assert len({look.marker for look in looks.values()}) == len(looks)
