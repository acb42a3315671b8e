"""The README's links lead somewhere. tests/release runs its lines."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_readmes_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#:]+)\)", README.read_text("utf-8"))
    assert len(links) > 5
    for link in links:
        assert (README.parent / link).exists(), link
