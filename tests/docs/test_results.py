"""The pages of results and README's table show the figures in benchmarks/results alone."""

import html
import json
import re
import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install -e .[translation]")
ROOT = Path(__file__).parents[2]
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
TABLE = re.compile(r"^\|.*\|$", re.MULTILINE)
CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w]|\.\d)")


@pytest.fixture(scope="module")
def results():
    """The script that prints the pages."""
    sys.path.insert(0, str(ROOT / "docs/site"))
    import results

    yield results
    sys.path.remove(str(ROOT / "docs/site"))


@pytest.fixture(scope="module")
def record():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import record

    yield record
    sys.path.remove(str(ROOT / "benchmarks"))


def pages():
    return [ROOT / "README.md", ROOT / "docs/results.md", *(ROOT / "docs/results").glob("*.md")]


def guides():
    """The other pages that have a chart of a study."""
    return [
        page
        for page in (ROOT / "docs").glob("*.md")
        if "<!-- printed: chart " in page.read_text("utf-8")
    ]


@pytest.mark.parametrize("page", pages() + guides(), ids=lambda page: page.stem)
def test_a_page_is_printed_from_the_files(page, results):
    """If not: python docs/site/results.py."""
    text = page.read_text("utf-8")
    assert results.printed(text) == text
    assert results.BLOCK.search(text)


@pytest.mark.parametrize("page", pages()[1:], ids=lambda page: page.stem)
def test_no_table_of_figures_is_written_by_hand(page, results):
    assert not TABLE.findall(results.BLOCK.sub("", page.read_text("utf-8")))


def test_no_figure_of_readmes_table_is_written_by_hand(results):
    text = (ROOT / "README.md").read_text("utf-8")
    measured = re.search(r"^## Measured\n(.*?)^## ", text, re.DOTALL | re.MULTILINE)[1]
    assert not TABLE.findall(results.BLOCK.sub("", measured))
    assert len(TABLE.findall(measured)) == 2 + len(results.README)


@pytest.mark.parametrize("page", pages()[1:], ids=lambda page: page.stem)
def test_every_score_in_the_text_is_in_a_file(page, results):
    """A number with a decimal point is one of a file of this page, rounded, or a share of one."""
    text = page.read_text("utf-8")
    linked = re.findall(r"\]\((?:results/)?(\w+)\.md[^)]*\)", text)  # a page may quote another one
    others = [ROOT / f"docs/results/{name}.md" for name in linked]
    texts = [text, *(other.read_text("utf-8") for other in others if other.exists())]
    names = re.findall(r"<!-- printed: study (\w+) -->", "".join(texts))
    files = [results.RESULTS / f"studies/{name}.json" for name in names]
    files += [(page.parent / link) for link in re.findall(r"\]\(([^)]*results/\w+\.txt)\)", text)]
    for name, result in results.scores().items():
        if result["task"] in (page.stem, *linked) or "<!-- printed: encoders -->" in text:
            files.append(results.RESULTS / f"scores/{name}.json")
    known = {number(found) for file in files for found in NUMBER.findall(file.read_text("utf-8"))}
    prose = CODE.sub("", re.sub(r"\]\([^)]*\)", "", results.BLOCK.sub("", text)))
    for figure in [found for found in NUMBER.findall(prose) if "." in found]:
        half = 0.5001 * 10 ** -len(figure.partition(".")[2])
        value = number(figure)
        sizes = (1, 100, 1e-6)  # a share may be a percentage, a count may be in millions
        near = [one for one in known for size in sizes if abs(size * one - value) <= half]
        assert near, f"{page.name}: {figure} is in none of its files"


def number(text):
    return float(text.replace(",", ""))


def test_every_result_is_complete(record, results):
    found = results.scores()
    assert len(found) > 50
    for name, result in found.items():
        record.check(name, result)
        assert result["task"] in results.TASKS, name
        assert result["commands"] or result["notes"], name


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"scores": {}}, "give at least one"),
        ({"scores": {"accuracy": "0.8"}}, "numbers alone"),
        ({"seeds": [0, 1]}, "accuracy of 3 seeds"),
        ({"by_seed": {"accuracy": [0.7, 0.8, 0.9]}}, "but the mean is 0.8"),
        ({"baselines": []}, "no baseline"),
        ({"baselines": [{"name": "x", "scores": {"F1": 1.0}, "command": None}]}, "no 'accuracy'"),
        ({"published": [{"name": "x", "scores": {"F1": 1.0}}]}, "published has"),
        ({"parameters": "22 M"}, "parameters is '22 M'"),
        ({"speed": 1}, r"\['speed'\]"),
    ],
)
def test_an_incomplete_result_is_refused(change, said, record, results):
    result = results.scores()["classification_sst2_minilm"]
    with pytest.raises(ValueError, match=said):
        record.check("one", result | change)


def test_a_study_has_the_figures_of_its_measurement(results):
    for name in results.studies():
        study = results.study(name)
        assert all(len(row) == len(study["columns"]) for row in study["rows"]), name
        if study["measured_in"]:
            text = (results.RESULTS / study["measured_in"]).read_text("utf-8")
            known = {number(found) for found in NUMBER.findall(text)}
            cells = [cell for row in study["rows"] for cell in row]
            flat = [one for cell in cells for one in (cell if isinstance(cell, list) else [cell])]
            missing = {one for one in flat if isinstance(one, int | float)} - known
            assert not missing, (name, missing)


def test_a_chart_is_that_of_the_figures(results):
    """If not: python docs/site/results.py."""
    found = results.charts()
    assert not set(results.TASKS) & set(results.studies())  # else one chart replaces the other
    assert {path.stem for path in results.IMAGES.glob("*.svg")} == found.keys()
    for name, make in found.items():
        svg = (results.IMAGES / f"{name}.svg").read_text("utf-8")
        shown = re.search("<dc:description>(.*?)</dc:description>", svg, re.DOTALL)[1]
        values = json.loads(json.dumps(make().values))
        assert json.loads(html.unescape(shown)) == values, name


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("accuracy", 0.8005, "0.801"),
        ("F1, %", 45.2, "45.2"),
        ("perplexity", 26.07, "26.1"),
        ("perplexity", 4555, "4,555"),
    ],
)
def test_a_value_has_the_digits_of_its_metric(metric, value, text, results):
    assert results.number(metric, value) == text


def test_a_cell_of_a_study_is_rounded_as_scores_are(results):
    assert results.cell({"format": "{:.3f}"}, 0.9025) == "0.903"
    assert results.cell({"format": "{:.3f}"}, [0.5, 0.25]) == "0.500, 0.250"
    assert results.cell({"format": "{:.1f} ({:.2f})"}, [34.1, 0.99]) == "34.1 (0.99)"
    assert results.cell({}, 2_349_568) == "2,349,568"
    assert results.cell({}, None) == "-"


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="needs Chromium: apt install chromium")
def test_a_click_on_a_heading_sorts(tmp_path):
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs the extra dev")
    rows = [("tagging", "F1 0.9"), ("images", "accuracy 0.95"), ("tagging", "perplexity 4,555")]
    rows += [("speech", "perplexity 88.8"), ("images", "accuracy 0.8")]
    body = "".join(f"<tr><td>{one}</td><td>{other}</td></tr>" for one, other in rows)
    page_file = tmp_path / "page.html"
    page_file.write_text(
        "<div class='sortable'><table><thead><tr><th>task</th><th>score</th></tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
        f"<script>{(ROOT / 'docs/tables.js').read_text('utf-8')}</script>",
        "utf-8",
    )
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(page_file.as_uri())  # from a folder, without a server

        def column(place):
            return page.locator(f"tbody td:nth-child({place})").all_text_contents()

        heading = page.get_by_role("button", name="score")
        heading.click()
        score = ["accuracy 0.8", "accuracy 0.95", "F1 0.9", "perplexity 88.8", "perplexity 4,555"]
        assert column(2) == score
        heading.press("Enter")
        assert column(2) == score[::-1]
        assert page.locator("th[aria-sort=descending]").inner_text() == "score"
        page.get_by_role("button", name="task").click()
        assert column(1) == sorted(column(1))
        assert page.locator("[aria-sort]").count() == 1
        browser.close()


def test_the_figures_of_readmes_text_and_of_the_first_page(record):
    readme, first = ((ROOT / name).read_text("utf-8") for name in ("README.md", "docs/index.md"))

    def scores(name):
        return json.loads((record.SCORES / f"{name}.json").read_text("utf-8"))["scores"]

    quickstart = scores("classification_rotten_tomatoes_quickstart")["accuracy"]
    assert f"is right on {quickstart * 100:.0f} % of 854 held-out sentences" in readme
    bleu = next(iter(scores("translation_multi30k_diversified").values()))
    assert f"[{bleu:.1f} BLEU](" in first
    table = json.loads((ROOT / "benchmarks/results/suite/encoders.json").read_text("utf-8"))
    times = table["rows"]["MiniLM-L6, 32 sentences of 8 to 66"]
    medians = {name: found["median"] for name, found in times.items()}
    best = min(median for name, median in medians.items() if not name.startswith("ours"))
    assert f"[{medians['ours'] / best:.2f}](performance.md)" in first
