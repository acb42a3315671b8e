"""Runs the page that builds a chat model, and answers from its export."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="needs the extra serving")
pytest.importorskip("tokenizers")
ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("notebooks", ROOT / "docs/site/notebooks.py")
notebooks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(notebooks)


@pytest.mark.slow
def test_the_page_builds_a_model_that_answers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    printed = notebooks.run(ROOT / "docs/build_a_chat_model.md", tmp_path)
    assert "The capital of Kenya is Nairobi." in printed[-2]
