"""The site in a real browser: pages fit, axe finds no serious fault, and search finds pages."""

import contextlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="needs playwright: pip install -e .[dev]"
)
for package in ("axe_playwright_python", "properdocs", "material", "mkdocstrings"):
    pytest.importorskip(package, reason="needs the extras dev and docs")
ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("browse", ROOT / "docs/site/browse.py")
browse = importlib.util.module_from_spec(spec)
spec.loader.exec_module(browse)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        browse.browser_path() is None, reason="needs Chromium: apt install chromium"
    ),
]
PAGES = ["index.html", "performance.html", "tutorials/transformer.html", "gallery.html"]
PAGES += ["zh/index.html", "zh/tutorials/transformer.html", "zh/glossary.html"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "properdocs",
            "build",
            "-f",
            "mkdocs.yml",
            "--strict",
            "--site-dir",
            folder,
        ],
        cwd=ROOT,
        check=True,
    )
    return folder


def test_pages_have_no_fault(site):
    assert set(PAGES) <= set(browse.pages_of(site))
    assert list(browse.browse(site, PAGES)) == []


def test_faults_are_found(tmp_path):
    block = "<code tabindex=0 style='display: block; overflow: auto'>"
    code = f"<div class=md-typeset><pre>{block}{'x' * 300}</code></pre></div>"
    cells = "".join(f"<td>{'wide' * 9}</td>" for _ in range(9))
    wide = (
        f'<div class="md-typeset__scrollwrap" style="overflow: auto"><table>{cells}</table></div>'
    )
    pale = '<p style="color: #eee; background: #fff">pale</p>'
    page = "<!doctype html><html lang=en><title>t</title><body><main><h1>t</h1>{}</main></html>"
    bodies = {
        "wide": wide,
        "code": code,
        "pale": pale,
        "broad": '<div style="width: 500px">a</div>',
        "fine": "a",
    }
    for name, body in bodies.items():
        (tmp_path / f"{name}.html").write_text(page.format(body), "utf-8")
    found = list(browse.browse(tmp_path, [f"{name}.html" for name in bodies], tmp_path))
    assert [line for line in found if "fine.html" in line] == []
    assert sum("a table is" in line and "at 1300 pixels" in line for line in found) == 2
    assert sum("code is" in line and "at 1300 pixels" in line for line in found) == 2
    assert not [line for line in found if " is " in line and "at 390 pixels" in line]
    assert sum("axe, color-contrast" in line for line in found) == 4
    assert sum("the page scrolls sideways" in line and "at 390" in line for line in found) == 2
    assert len(list(tmp_path.glob("*.png"))) == 4 * len(bodies)


def test_no_code_scrolls_sideways(site):
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=browse.browser_path(), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": browse.WIDTHS[0], "height": 800})
        page.set_default_timeout(60_000)
        for path in sorted(site.rglob("*.html")):
            page.goto(path.as_uri())
            assert page.evaluate(browse.TOO_WIDE) == [], path
        browser.close()


@pytest.mark.parametrize("width", browse.WIDTHS)
@pytest.mark.parametrize("place", ["served", "from files"])
def test_search_finds_a_page_and_opens_it(site, width, place):
    opened = (
        contextlib.nullcontext(f"{site.as_uri()}/")
        if place == "from files"
        else browse.served(site)
    )
    with opened as address, sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=browse.browser_path(), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": width, "height": 800})
        page.set_default_timeout(60_000)
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{address}index.html")
        if width < 600:
            page.click("label.md-header__button[for=__search]")
        else:
            page.click(".md-search__input")
        page.keyboard.type("repetition penalty conversation")
        result = page.locator(".md-search-result__link[href*='chat.html']").first
        result.wait_for()
        result.click()
        page.wait_for_url("**/chat.html*")
        assert page.inner_text("h1").startswith("Chat")
        assert all(url.startswith((address, "data:", "blob:")) for url in asked)
        browser.close()


@pytest.fixture
def browser():
    with sync_api.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=browse.browser_path(), args=["--no-sandbox"])
        yield found
        found.close()


def test_search_finds_chinese_words_within_sentences(site, browser):
    pytest.importorskip("jieba", reason="needs the extra docs")
    with browse.served(site) as address:
        page = browser.new_page()
        page.set_default_timeout(60_000)
        for words in ("残差连接", "束搜索"):
            page.goto(f"{address}zh/index.html")
            page.fill(".md-search__input", words)
            link = ".md-search-result__link[href*='zh/tutorials/transformer.html']"
            page.locator(link).first.wait_for()


def test_the_theme_switches_the_language_of_a_page(site, browser):
    page = browser.new_page()
    page.goto((site / "tutorials/transformer.html").as_uri())
    for lang, title, menu in (("zh", "逐步理解", "术语表"), ("en", "The Transformer", "Guides")):
        page.hover(".md-header__option .md-select")
        page.click(f"a.md-select__link[hreflang={lang}]")
        page.wait_for_function(f"document.documentElement.lang == '{lang}'")
        assert page.inner_text("h1").startswith(title)
        shown = page.inner_text("nav.md-nav--primary")
        assert menu in shown
        assert ("Guides" in shown) == (lang == "en")
        assert ("术语表" in shown) == (lang == "zh")
    # A page in English only leads to the first page in Chinese.
    page.goto((site / "training.html").as_uri())
    link = page.locator("a.md-select__link[hreflang=zh]")
    assert link.get_attribute("href") == "zh/index.html"
