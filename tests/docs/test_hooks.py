"""What fails the build of the site: code that is too wide, and dead links."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIT = 95  # characters of code
WIDEST = "x" * FIT


@pytest.mark.parametrize(
    ("code", "is_wide"),
    [
        (WIDEST, False),
        (f"{WIDEST}x", True),
        (f"<span>{WIDEST[1:]}</span>&lt;", False),
        (f"<span>{WIDEST}</span>&lt;", True),
        (f"x\n{WIDEST}x\nx", True),
        ("中" * (FIT // 2), False),
        ("中" * (FIT // 2 + 1), True),
    ],
)
def test_wide_code_is_seen(hooks, code, is_wide):
    page = (
        f"<p>{WIDEST}{WIDEST}</p><pre id=a><code>{code}</code></pre><code>{WIDEST}{WIDEST}</code>"
    )
    assert hooks.WIDEST_CODE == FIT
    assert bool(hooks.wide_lines(page)) == is_wide


def test_make_docs_fails_at_wide_code_and_at_a_dead_link(tmp_path):
    pytest.importorskip("properdocs", reason="needs the extra docs")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/page.md").write_text(f"# Page\n\n    {WIDEST}x\n\n[a](nowhere.md)\n", "utf-8")
    (tmp_path / "hook.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'docs/site')!r})\n"
        "from hooks import on_page_content\n",
        "utf-8",
    )
    (tmp_path / "mkdocs.yml").write_text(
        "site_name: test\ntheme: material\nstrict: true\nhooks: [hook.py]\n"
        "nav: [page.md]\nplugins: []\n",
        "utf-8",
    )
    options = re.search(r"/properdocs (build.*)", (ROOT / "Makefile").read_text("utf-8"))[1]
    done = subprocess.run(
        [sys.executable, "-m", "properdocs", *options.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "page.md: a line of code takes the room of 96 characters" in done.stderr
    assert "nowhere.md" in done.stderr
