"""Makes the data of the tutorial on classification from Python's changelog.

    python docs/site/python_changes.py CHANGELOG_HTML    # docs/tutorials/python_changes.csv.gz

CHANGELOG_HTML is https://docs.python.org/3.11/whatsnew/changelog.html, or the file of that name in
Debian's package python3.11-doc. Each row is a change and the section it stands in; the issue's
number is cut off. Copyright Python Software Foundation, under the PSF License Version 2.
"""

import csv
import gzip
import html
import io
import random
import re
import sys
from pathlib import Path

FILE = Path(__file__).parents[1] / "tutorials/python_changes.csv.gz"
NUM_ROWS = 2600
_PART = re.compile(r"<h3>(\w[^<]*)<a |<li>(.*?)(?=<li>|</ul>)", re.DOTALL)
_ISSUE = re.compile(r"^((bpo|gh)-\d+(, )?)+:?\s*")


def changes(page: str) -> list[tuple[str, str]]:
    """Returns each change with its section, in the page's order, with those that recur."""
    rows, section = [], ""
    for heading, item in _PART.findall(page.split('<div class="sphinxsidebar"')[0]):
        if heading:
            section = heading.lower()
            continue
        text = " ".join(html.unescape(re.sub(r"<[^>]+>", "", item)).split())
        if section and (text := _ISSUE.sub("", text)):
            rows.append((text, section))
    return rows


def main() -> None:
    """Writes a random part of the changes."""
    rows = changes(Path(sys.argv[1]).read_text("utf-8"))
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["change", "section"])
    writer.writerows(random.Random(0).sample(rows, NUM_ROWS))
    FILE.write_bytes(gzip.compress(table.getvalue().encode(), mtime=0))
    print(f"{FILE}: {NUM_ROWS:,} of {len(rows):,} changes", file=sys.stderr)


if __name__ == "__main__":
    main()
