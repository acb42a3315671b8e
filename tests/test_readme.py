"""The README's Python runs as printed, in order, in a folder where `minilm/` is MiniLM."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_readme_is_a_screen_and_a_half():
    assert len(README.read_text("utf-8").splitlines()) <= 120


def test_the_readmes_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#:]+)\)", README.read_text("utf-8"))
    assert len(links) > 5
    for link in links:
        assert (README.parent / link).exists(), link


@pytest.mark.slow
def test_the_readmes_python_runs(minilm_dir, tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    assert blocks
    (tmp_path / "minilm").symlink_to(minilm_dir)
    result = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(README.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert (tmp_path / "saved_models" / "mine" / "1" / "saved_model.pb").is_file()
