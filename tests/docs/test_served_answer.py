"""The picture of the first page shows what the export in the repository answers."""

import html
import importlib.util
import json
import re
from pathlib import Path

import pytest

from keras_transformers.saved_model import Predictor

pytest.importorskip("starlette", reason="needs the extra serving")
ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("served", ROOT / "docs/site/served_answer.py")
served = importlib.util.module_from_spec(spec)
spec.loader.exec_module(served)


def test_the_pictures_show_the_exports_answer():
    """If not: python docs/site/served_answer.py."""
    (row,) = Predictor(served.EXPORT / "1")({"text": [served.TEXT]})
    for name in ("served_answer", "served_answer_narrow"):
        svg = (served.IMAGES / f"{name}.svg").read_text("utf-8")
        shown = json.loads(html.unescape(re.search("<desc>(.*?)</desc>", svg)[1]))
        assert (shown["text"], shown["label"]) == (served.TEXT, row["label"])
        assert shown["probabilities"] == pytest.approx(row["probabilities"], abs=2e-3)
        draw = served.wide if name == "served_answer" else served.narrow
        assert svg == draw(shown)
    page = (ROOT / "docs/index.md").read_text("utf-8")
    assert served.TEXT in page
    assert f"{max(shown['probabilities']):.3f}" in page
