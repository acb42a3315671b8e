"""Texts with any number of labels: files, splits, and what becomes of CoNLL's."""

import json

import numpy as np
import pytest

from keras_transformers.data.text import (
    LabelSetFiles,
    LabelSets,
    Sentences,
    entity_types,
    label_names,
    load_label_sets,
    split_label_sets,
)

ROWS = [("Good!", ["joy"]), ("Oh, no.", []), ("What?", ["anger", "surprise"])]


def test_files(tmp_path):
    csv, tsv, jsonl = (tmp_path / f"a.{kind}" for kind in ("csv", "tsv", "jsonl"))
    csv.write_text('text,labels\nGood!,joy\n"Oh, no.",\nWhat?,"anger, surprise"\n')
    tsv.write_text("Good!\tjoy\nOh, no.\t\nWhat?\tanger,surprise\n")
    rows = ({"text": text, "labels": labels} for text, labels in ROWS)
    jsonl.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for path, options in ((csv, {}), (tsv, {"header": "absent"}), (jsonl, {})):
        if path is not tsv:
            options = {"text_column": "text", "label_column": "labels"}
        found = load_label_sets(path, **options)
        assert list(zip(found.texts, found.labels, strict=True)) == ROWS
    assert label_names(found) == ["anger", "joy", "surprise"]
    assert found.matrix(["joy", "anger", "surprise"]).tolist() == [[1, 0, 0], [0, 0, 0], [0, 1, 1]]


@pytest.mark.parametrize(
    ("cell", "options", "message"),
    [
        ("joy,joy", {}, "a.tsv:2: .*twice .*'joy', 'joy'"),
        ("joy,fear", {"labels": ["joy"]}, "a.tsv:2: .*'fear'"),
    ],
)
def test_wrong_rows(cell, options, message, tmp_path):
    (tmp_path / "a.tsv").write_text(f"text\tlabels\nGood!\t{cell}\nBad!\tjoy\n")
    with pytest.raises(ValueError, match=message):
        load_label_sets(tmp_path / "a.tsv", text_column="text", label_column="labels", **options)


def test_wrong_json(tmp_path):
    for cell, message in (
        ("[1]", "a.jsonl:1: 1 is not a string"),
        ('"joy"', "a.jsonl:1: labels are 'joy', expected a list"),
        ("null", "a.jsonl:1: labels are None, expected a list"),
    ):
        (tmp_path / "a.jsonl").write_text(f'{{"text": "a", "labels": {cell}}}\n')
        with pytest.raises(ValueError, match=message):
            load_label_sets(tmp_path / "a.jsonl", text_column="text", label_column="labels")
    with pytest.raises(ValueError, match="'tags' among text, labels"):
        load_label_sets(tmp_path / "a.jsonl", text_column="text", label_column="tags")


def test_unknown_labels_and_empty_sets():
    sets = LabelSets(["a", "b"], None, [["x"], []], "here")
    with pytest.raises(ValueError, match="here, row 0: .*'x', .*'y'"):
        sets.matrix(["y"])
    with pytest.raises(ValueError, match="here: 1 different labels"):
        label_names(sets)
    with pytest.raises(ValueError, match="here, row 0: a label occurs twice"):
        LabelSets(["a"], None, [["x", "x"]], "here")


def test_splits():
    sets = LabelSets([str(i) for i in range(10)], None, [["x"]] * 10)
    train, dev = split_label_sets(sets, 0.3)
    assert sorted(int(text) for text in [*train.texts, *dev.texts]) == list(range(10))
    assert len(dev) == 3
    with pytest.raises(ValueError, match="examples: .* 0.01 of 10"):
        split_label_sets(sets, 0.01)


def test_types_of_entities(tmp_path):
    sentences = Sentences([["Ada", "of", "London"], ["no", "one"]],
                          [["B-PER", "O", "B-LOC"], ["O", "O"]])  # fmt: skip
    found = entity_types(sentences)
    assert (found.texts, found.labels) == (["Ada of London", "no one"], [["LOC", "PER"], []])
    (tmp_path / "a").write_text("Ada B-PER\nof O\nLondon B-LOC\n\nno O\n\nAda B-PER\n\n" * 4)
    splits = LabelSetFiles(train_file=tmp_path / "a", conll=True, dev_fraction=0.25).read()
    assert splits.labels == ["LOC", "PER"]
    assert (len(splits.train), len(splits.dev), splits.test) == (9, 3, None)
    assert np.all(splits.train.matrix(splits.labels).sum(axis=0) > 0)
