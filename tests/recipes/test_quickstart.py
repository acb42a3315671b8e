"""The quickstart's own steps; the classification recipe, which it runs, has its own tests."""

import csv
import runpy
import sys
from collections import Counter
from pathlib import Path

import pytest

from keras_transformers.data.text.examples import load

RECIPE = Path(__file__).parents[2] / "recipes" / "quickstart.py"


@pytest.fixture
def quickstart(tmp_path):
    """Returns the recipe's globals; its data go to a temporary folder."""
    names = runpy.run_path(str(RECIPE))
    names["main"].__globals__["DATA"] = tmp_path / "quickstart"
    return names


def write_reviews(path, rows):
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["text", "label", "source"], *rows])
    return path


def test_splits_are_balanced_disjoint_and_independent_of_the_order(quickstart, tmp_path):
    rows = [[f'a "quoted", film\t{i}\n', str(i % 2), "rotten_tomatoes"] for i in range(200)]
    rows += [["long review", "1", "imdb"], [*rows[0]], ["Twice", "0", "rotten_tomatoes"]]
    rows += [["twice ", "1", "rotten_tomatoes"]]
    parts = {}
    for order in (rows, rows[::-1]):
        quickstart["write_splits"](write_reviews(tmp_path / "reviews.csv", order))
        written = {p.stem: p.read_text() for p in (tmp_path / "quickstart").glob("*.tsv")}
        assert parts in ({}, written)
        parts = written
    examples = {name: load(tmp_path / "quickstart" / f"{name}.tsv") for name in parts}
    assert {name: len(part) for name, part in examples.items()} == {
        "train": 160,
        "dev": 20,
        "held_out": 20,
    }
    texts = [text for part in examples.values() for text in part.texts]
    assert len(set(texts)) == 200
    assert all(text.startswith('a "quoted", film ') for text in texts)
    for part in examples.values():
        assert set(Counter(part.labels).values()) == {len(part) // 2}


def test_a_missing_package_is_named_with_its_remedy(quickstart):
    with pytest.raises(FileNotFoundError, match="no_such_package.*install"):
        quickstart["package_folder"]("no_such_package", "this")


def test_a_program_that_fails_shows_what_it_said(quickstart, tmp_path, capsys):
    (tmp_path / "quickstart").mkdir()
    program = (
        "import sys; print('early\\n' * 30, 'error: the reason', file=sys.stderr); sys.exit(2)"
    )
    with pytest.raises(SystemExit) as stopped:
        quickstart["run"]([sys.executable, "-c", program], "train.log")
    assert stopped.value.code == 2
    assert capsys.readouterr().err.strip().endswith("error: the reason")
