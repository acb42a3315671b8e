"""Reads the built site in Chromium: photographs every page and reports faults of layout.

    make docs
    python docs/site/browse.py                    # build/screenshots/<page>-<width>-<scheme>.png
    python docs/site/browse.py index.html chat.html

At 1,300 and 390 pixels, light and dark. The exit status is 1 if a table or code scrolls sideways at
1,300 pixels, if a page does so at either width, or if axe finds a serious fault.
"""

import argparse
import contextlib
import functools
import http.server
import itertools
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[2]
WIDTHS = (1300, 390)
SCHEMES = ("light", "dark")
# What is wider than the room it has, with the start of its text.
TOO_WIDE = """
() => [...document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code")]
  .filter((box) => box.scrollWidth > box.clientWidth + 1)
  .map((box) => `${box.tagName === "CODE" ? "code" : "a table"} is `
    + `${box.scrollWidth - box.clientWidth} pixels too wide: `
    + box.innerText.trim().replace(/\\s+/g, " ").slice(0, 60))
"""
_OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


def browser_path() -> str | None:
    """Returns where Chromium is."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextlib.contextmanager
def served(site: Path) -> Iterator[str]:
    """Serves a folder on a free port, and yields its address; search needs one."""
    handler = functools.partial(_Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Logs no request."""


def pages_of(site: Path) -> list[str]:
    """Returns the site's pages, as paths from its folder, without copies of other files."""
    found = (path.relative_to(site).as_posix() for path in sorted(site.rglob("*.html")))
    return [name for name in found if not name.startswith(("repository/", "404"))]


def faults(page: Page, width: int) -> list[str]:
    """Returns what is wrong with the page that is open, one line each."""
    found = page.evaluate(TOO_WIDE) if width >= 1000 else []
    if (pixels := page.evaluate(_OVERFLOW)) > 0:
        found.append(f"the page scrolls sideways by {pixels} pixels")
    for fault in Axe().run(page).response["violations"]:
        if fault["impact"] in ("serious", "critical"):
            node = fault["nodes"][0]
            found.append(f"axe, {fault['id']}, {len(fault['nodes'])} times: {node['html']:.120}")
    return found


def browse(site: Path, names: list[str], folder: Path | None = None) -> Iterator[str]:
    """Yields the faults of pages of a built site; photographs them if there is a folder for it."""
    with served(site) as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path(), args=["--no-sandbox"])
        for width, scheme in itertools.product(WIDTHS, SCHEMES):
            page = browser.new_page(
                viewport={"width": width, "height": 800},
                color_scheme=scheme,
                reduced_motion="reduce",
            )
            page.set_default_timeout(180_000)
            for name in names:
                page.goto(address + name)
                page.wait_for_load_state("networkidle")
                for fault in faults(page, width):
                    yield f"{name} at {width} pixels, {scheme}: {fault}"
                if folder:
                    stem = name.removesuffix(".html").replace("/", "_")
                    path = folder / f"{stem}-{width}-{scheme}.png"
                    page.screenshot(path=path, full_page=True)
            page.close()
        browser.close()


def main() -> int:
    """Browses the pages named, by default all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pages", nargs="*", help="such as index.html")
    parser.add_argument("--site", type=Path, default=ROOT / "build/site")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/screenshots")
    options = parser.parse_args()
    if browser_path() is None:
        raise SystemExit("needs Chromium: apt install chromium")
    if not (options.site / "index.html").is_file():
        raise SystemExit(f"{options.site} is no built site: run make docs")
    options.folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for fault in browse(options.site, options.pages or pages_of(options.site), options.folder):
        print(fault, flush=True)
        count += 1
    print(f"{count} faults; screenshots: {options.folder}", file=sys.stderr)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
