"""The exports in the repository are complete and unchanged, and they work."""

from pathlib import Path

import pytest

from keras_transformers.saved_model import Predictor
from keras_transformers.saved_model.description import describe
from keras_transformers.saved_model.manifest import read, verify
from keras_transformers.tasks.answers import answer_type, answer_type_of

pytestmark = pytest.mark.kernels

FOLDER = Path(__file__).parents[1] / "saved_models"
ENTRIES = read(FOLDER / "manifest.json")

GOLDEN = Path(__file__).parent / "golden"  # <name>.tsv: texts and the export's answers


def test_every_file_is_the_published_one():
    """Beside the published exports there may be others, which a user made."""
    found = verify(FOLDER)
    assert {name: found[name] for name in ENTRIES} == {name: [] for name in ENTRIES}


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_tells_where_the_export_comes_from(name):
    entry = ENTRIES[name]
    assert entry["command"].startswith("python recipes/")
    assert len(entry["commit"]) == 40
    assert entry["scores"]
    assert entry["training_data"]
    assert entry["data_licence"]
    files = [path for path in (FOLDER / name).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 12_000_000


@pytest.mark.parametrize("name", ENTRIES)
def test_clients_find_the_type_of_its_answers(name):
    """Two of them have no signature that says their task."""
    described = describe(FOLDER / name)
    outputs = described["signatures"]["serving_default"]["outputs"]
    assert answer_type_of(outputs).type is answer_type(described["task"]).type


def golden(name):
    return dict(
        line.split("\t") for line in (GOLDEN / f"{name}.tsv").read_text("utf-8").splitlines()
    )


def test_masks_are_filled():
    expected = golden("fill_mask_en")
    rows = Predictor(FOLDER / "fill_mask_en" / "1")({"text": list(expected)})
    assert [row["num_masks"] for row in rows] == [1] * len(expected)
    assert [row["tokens"][0][0] for row in rows] == list(expected.values())
    assert all(1 >= row["probabilities"][0][0] > 0.1 for row in rows)


def test_opinions_are_reported_apart():
    expected = golden("sentiment_en")
    rows = Predictor(FOLDER / "sentiment_en" / "1")({"text": list(expected)})
    assert {text: row["label"] for text, row in zip(expected, rows, strict=True)} == expected


@pytest.mark.slow
def test_ten_sentences_are_translated():
    expected = golden("translate_de_en")
    assert len(expected) == 10
    rows = Predictor(FOLDER / "translate_de_en" / "1")({"text": list(expected)})
    found = {text: row["translation"] for text, row in zip(expected, rows, strict=True)}
    different = {text for text in found if found[text] != expected[text]}
    assert len(different) <= 1, f"other processors round otherwise, but hardly so often: {found}"
