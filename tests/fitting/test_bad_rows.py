"""Rows that cannot be read: all are named before the first step, or left out."""

import json
import math

import numpy as np
import pandas
import pytest
import tensorflow as tf
import tiny
from test_every_task import DATA, LABELS, TEXTS, TRAINERS, bag_of_words
from test_labels import rows_of

import keras_transformers as kt
from keras_transformers.data.bad_rows import bad_rows
from keras_transformers.data.faults import faults
from keras_transformers.data.images import ImageFiles
from keras_transformers.data.text import (
    LabelledFiles,
    LabelSetFiles,
    TaggedFiles,
    TextPairFiles,
    load,
)

BAD = {3: None, 7: "a \ud83d film", 9: math.nan}
GOOD_ROWS = [row for row in range(24) if row not in BAD]


def frame():
    """A frame with three bad rows, whose index begins at 100."""
    texts = [BAD.get(row, text) for row, text in enumerate(TEXTS)]
    index = range(100, 124)
    return pandas.DataFrame({"text": pandas.Series(texts, index, object), "label": LABELS}, index)


def test_all_bad_rows_are_named_at_once_by_the_index_of_the_frame():
    with pytest.raises(ValueError, match="3 rows") as raised:
        kt.fit(bag_of_words(), frame(), validation=frame().iloc[10:], quiet=True)
    message = str(raised.value)
    parts = ["data, row 103: no text", "row 107", "surrogate", "row 109", "on_bad_rows='drop'"]
    assert all(part in message for part in parts), message
    with pytest.raises(ValueError, match="6 rows") as raised:
        kt.fit(bag_of_words(), frame(), validation=frame(), quiet=True)
    assert "validation, row 103" in str(raised.value)


def test_one_bad_row_is_named_with_its_remedy():
    with pytest.raises(ValueError, match="row 103: no text .*fill it in, or drop the row"):
        kt.fit(bag_of_words(), frame().drop([107, 109]), quiet=True)


def test_dropped_rows_leave_the_others_as_they_were(caplog):
    trainer, pipeline = TRAINERS["classification"], bag_of_words()
    (examples,) = trainer.read(pipeline, {"data": frame()}, {}, on_bad_rows="drop")
    assert examples.texts == [TEXTS[row] for row in GOOD_ROWS]
    assert examples.labels == [pipeline.labels[LABELS[row]] for row in GOOD_ROWS]
    (warning,) = [x.getMessage() for x in caplog.records if "left out" in x.getMessage()]
    assert "3 rows" in warning
    assert "data, row 107" in warning
    options = {"epochs": 1, "batch_size": 8, "quiet": True}
    one = kt.fit(pipeline, frame(), on_bad_rows="drop", **options).history["loss"]
    clean = ([TEXTS[row] for row in GOOD_ROWS], [LABELS[row] for row in GOOD_ROWS])
    assert one == kt.fit(bag_of_words(), clean, **options).history["loss"]


def test_rows_after_a_dropped_one_keep_their_names():
    wrong = frame()
    wrong.loc[115, "label"] = 7
    with pytest.raises(ValueError, match="data, row 115: unknown label 7"):
        kt.fit(bag_of_words(), wrong, on_bad_rows="drop", quiet=True)


def test_another_choice_is_refused():
    with pytest.raises(ValueError, match="on_bad_rows=.skip.*error.*drop"):
        kt.fit(bag_of_words(), (TEXTS, LABELS), on_bad_rows="skip")


def test_one_line_says_what_may_be_wrong_with_the_data(capsys):
    texts = ["", "a film", "A  film", "bad", "good"]
    kt.fit(bag_of_words(), (texts, [0, 1, 0, 0, 1]), validation=(["bad"], [0]), epochs=1)
    line = capsys.readouterr().out.splitlines()[0]
    parts = ["data: 1 of 5 rows empty", "1 repeated", "2 with different labels", "1 of 1"]
    assert all(part in line for part in [*parts, "validation"]), line


def test_data_of_bad_rows_alone_is_refused():
    with pytest.raises(ValueError, match="row 0: no text"):
        kt.fit(bag_of_words(), ([None, None], [0, 1]), on_bad_rows="drop")


HALF = "a \ud83d film"
# Task -> cells that cannot be read: column, value, what the message says.
BAD_CELLS = {
    "classification": [("text", None, "no text"), ("text", 3, "3"), ("label", math.nan, "label")],
    "multi_label_classification": [("text", HALF, "surrogate"), ("labels", None, "no labels")],
    "regression": [("score", "x", "'x'"), ("score", math.inf, "inf"), ("text_b", None, "text_b")],
    "reranking": [("score", [1.0, 0.0], "[1.0, 0.0]"), ("text", HALF, "surrogate")],
    "next_sentence": [("text_b", math.nan, "no text_b"), ("text", 5.5, "5.5")],
    "tagging": [
        ("words", ["a"], "4 labels for 1 words"),
        ("words", ["a", "good", HALF, "."], "surrogate"),
        ("words", ["a", "good", "film", 3], "3"),
        ("words", "a good film .", "expected a list"),
    ],
    "question_answering": [
        ("question", 3, "'question'"),
        ("context", None, "no context"),
        ("answers", {"text": ["good"], "answer_start": []}, "1 texts, but 0 starts"),
        ("answers", [{"text": "good"}], "answers[0]"),
    ],
    "multiple_choice": [
        ("choices", ["one"], "'one'"),
        ("choices", ["good", ""], "empty"),
        ("label", 7, "7"),
        ("label", [0, 1], "argmax"),
    ],
    "image_classification": [
        ("image", np.zeros((3, 3, 3)), "(3, 3, 3)"),
        ("image", np.full((8, 12, 3), np.nan), "nan"),
        ("image", [[1], [2, 3]], "shape"),
        ("image", None, "no image"),
    ],
    "translation": [("target", None, "no target"), ("text", 3, "3")],
    "embedding": [("text_b", 5, "5"), ("text", HALF, "surrogate")],
    "sparse_embedding": [("text_b", 5, "5"), ("text", HALF, "surrogate")],
    "late_interaction": [("text_b", 5, "5"), ("text", HALF, "surrogate")],
    "generation": [("text", math.nan, "no text")],
}


def content(examples):
    """Returns what examples hold, without their source."""
    if isinstance(examples, list):
        return examples
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in vars(examples).items()
        if name not in ("source", "decoder")
    }


def test_every_task_has_bad_cells():
    assert set(BAD_CELLS) == set(DATA)


@pytest.mark.parametrize("task", DATA)
def test_bad_rows_of_every_task(task, caplog):
    trainer, pipeline, rows = TRAINERS[task], tiny.pipeline(task), rows_of(task)
    bad = [rows[0] | {column: value} for column, value, _ in BAD_CELLS[task]]
    mixed = [rows[0], *bad, *rows[1:]]
    index = range(100, 100 + len(mixed))
    table = pandas.DataFrame(
        {name: pandas.Series([row[name] for row in mixed], index, object) for name in rows[0]}
    )
    with pytest.raises(ValueError, match=r"on_bad_rows='drop'") as raised:
        trainer.read(pipeline, {"data": table}, {}, on_bad_rows="error")
    message = str(raised.value)
    for number, (_, _, part) in enumerate(BAD_CELLS[task], start=101):
        assert f"data, row {number}: " in message
        assert part in message, message
    assert message.count("data, row") == len(bad)
    if len(bad) > 1:
        assert f"{len(bad)} rows" in message
    (kept,) = trainer.read(pipeline, {"data": table}, {}, on_bad_rows="drop")
    (good,) = trainer.read(pipeline, {"data": rows}, {})
    assert content(kept) == content(good)
    assert f"{len(bad)} row" in caplog.text
    assert "left out: data, row 10" in caplog.text


def test_weights_that_are_none_are_bad_rows():
    trainer, pipeline = TRAINERS["classification"], tiny.pipeline("classification")
    weights = [1.0] * 24
    weights[3], weights[5], weights[7] = -1, math.nan, "x"
    table = {"text": TEXTS, "label": LABELS, "weight": weights}
    with pytest.raises(ValueError, match="3 rows.*row 5: no weight.*row 3: .*-1.*row 7: .*'x'"):
        trainer.read(pipeline, {"data": table}, {}, weighted=True)
    (kept,) = trainer.read(pipeline, {"data": table}, {}, weighted=True, on_bad_rows="drop")
    assert (len(kept), kept.weights) == (21, [1.0] * 21)
    assert kept.texts == [text for row, text in enumerate(TEXTS) if row not in (3, 5, 7)]


# File -> the content, and the parts of the message, all of them for one row each.
TABLES = {
    "a.tsv": (
        "a good film\t1\na bad film\n\t\na bad film\t0\na film\t\n",
        [":2: 1 columns", ":3: an empty row", ":5: an empty label"],
    ),
    "a.csv": (
        'a good film,1\n"a, bad",film,0\na bad film,0\na film,\n',
        [":2: 3 columns", ":4: an empty label"],
    ),
    "a.jsonl": (
        '{"text": "a good film", "label": 1}\n{"text": null, "label": 0}\nno JSON\n[1]\n'
        '{"text": "a \\ud83d", "label": 1}\n{"text": "a bad film", "label": 0}\n{"label": 0}\n',
        [":2: ", ":3: not JSON", ":4: ", "surrogate", ":7: no"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_bad_rows_of_files(name, tmp_path, caplog):
    text, parts = TABLES[name]
    path = tmp_path / name
    path.write_text(text)
    columns = {} if name != "a.jsonl" else {"text_column": "text", "label_column": "label"}
    with pytest.raises(ValueError, match=f"^{len(parts)} rows cannot be read: {path}") as raised:
        load(path, **columns)
    assert all(part in str(raised.value) for part in parts), str(raised.value)
    with bad_rows("drop"):
        examples = load(path, **columns)
    assert (examples.texts, examples.labels) == (["a good film", "a bad film"], ["1", "0"])
    assert f"{len(parts)} rows are left out" in caplog.text
    with pytest.raises(ValueError, match=f"{len(parts)} rows .*--on-bad-rows drop leaves them"):
        LabelledFiles(train_file=path, **columns).read()
    caplog.clear()
    options = {"train_file": path, "dev_file": path, "labels": ("0", "1"), **columns}
    train, dev, *_ = LabelledFiles(**options, on_bad_rows="drop").read()
    assert train.texts == dev.texts == examples.texts
    assert "2 of 2 rows also in" in caplog.text


def test_bad_rows_of_parquet_with_their_weights(tmp_path):
    table = {"text": ["a", None, "c", "d"], "label": ["x", "y", None, "y"], "w": [1.0, 1, 1, -2]}
    pandas.DataFrame(table).to_parquet(tmp_path / "a.parquet")
    columns = {"text_column": "text", "label_column": "label", "weight_column": "w"}
    with pytest.raises(ValueError, match="3 rows.*parquet:2.*parquet:3.*parquet:4: weight is '-2"):
        load(tmp_path / "a.parquet", **columns)
    with bad_rows("drop"):
        examples = load(tmp_path / "a.parquet", **columns)
    assert (examples.texts, examples.labels, examples.weights) == (["a"], ["x"], [1.0])


def test_fit_drops_rows_of_files_of_all_kinds(tmp_path, caplog):
    squad = [
        {"id": str(i), "question": "q", "context": "a b", "answers": answers}
        for i, answers in enumerate([[{"text": "b", "answer_start": 2}], "b", []])
    ]
    choices = [{"text": "a", "choices": ["b", "c"], "label": label} for label in (0, 2, 1)]
    for task, name, text, count in (
        ("classification", "a.tsv", "a film\tpositive\na film\nb\tnegative\n", 2),
        ("multi_label_classification", "b.tsv", "a film\tjoy\na film\nb\tanger,anger\nc\t\n", 2),
        ("regression", "c.tsv", "a\tb\t0.5\na\tb\na\tb\t\na\tb\t0.1\n", 2),
        ("tagging", "d.conll", "a O\ngood B-X\n\na O O\nbad B-X\n\nfilm B-X\n", 2),
        ("question_answering", "e.jsonl", "\n".join(map(json.dumps, squad)), 2),
        ("multiple_choice", "f.jsonl", "\n".join(map(json.dumps, choices)), 2),
        ("translation", "g.tsv", "a\tb\na\nc\td\n", 2),
        ("embedding", "h.tsv", "a\tb\na\nc\td\n", 2),
    ):
        path = tmp_path / name
        path.write_text(text)
        trainer, pipeline = TRAINERS[task], tiny.pipeline(task)
        with pytest.raises(ValueError, match=f"{name}.*on_bad_rows='drop'"):
            trainer.read(pipeline, {"data": path}, {}, on_bad_rows="error")
        caplog.clear()
        (examples,) = trainer.read(pipeline, {"data": path}, {}, on_bad_rows="drop")
        assert len(examples) == count, task
        assert "left out" in caplog.text
        assert name in caplog.text


def test_bad_rows_of_several_files_are_named_together(tmp_path):
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text("a\tx\na\nb\ty\nc\tx\nd\ty\n")
    files = {"train_file": tmp_path / "train.tsv", "dev_file": tmp_path / "dev.tsv"}
    for kind in (LabelledFiles, LabelSetFiles):
        with pytest.raises(ValueError, match="2 rows.*train.tsv:2.*dev.tsv:2.*--on-bad-rows"):
            kind(**files).read()
        train, dev, *_ = kind(**files, on_bad_rows="drop").read()
        assert train.texts == dev.texts == ["a", "b", "c", "d"]
    pairs = {name: (path,) for name, path in files.items()}
    with pytest.raises(ValueError, match="2 rows.*train.tsv:2.*dev.tsv:2"):
        TextPairFiles(**pairs).read()
    assert len(TextPairFiles(**pairs, on_bad_rows="drop").read().train) == 4
    for path in files.values():
        path.write_text("a O\nb B-X\n\na O O\n\nc B-X\n")
    with pytest.raises(ValueError, match="2 rows.*train.tsv:4.*dev.tsv:4"):
        TaggedFiles(**files).read()
    assert TaggedFiles(**files, on_bad_rows="drop").read().dev.words == [["a", "b"], ["c"]]


def test_images_that_do_not_decode_are_bad_rows(tmp_path, caplog):
    decoder = tiny.pipeline("image_classification").decoder
    for label in ("no", "yes"):
        (tmp_path / label).mkdir()
        for i in range(10):
            image = tf.io.encode_png(np.full((9, 9, 3), 10 * i + len(label), np.uint8))
            (tmp_path / label / f"{i}.png").write_bytes(image.numpy())
    (tmp_path / "no" / "9.png").write_bytes(b"no image")
    (tmp_path / "yes" / "8.png").write_bytes((tmp_path / "no" / "8.png").read_bytes())
    files = ImageFiles(data=str(tmp_path))
    with pytest.raises(ValueError, match="9.png: does not decode.*repair.*--on-bad-rows drop"):
        files.read_images(decoder, seed=0)
    dropped = ImageFiles(data=str(tmp_path), on_bad_rows="drop").read_images(decoder, seed=0)
    assert sum(map(len, dropped)) == 19
    assert "2 with different labels" in caplog.text
    trainer, pipeline = TRAINERS["image_classification"], tiny.pipeline("image_classification")
    paths = [str(tmp_path / "no" / f"{i}.png") for i in (0, 1, 9, 99)]
    with pytest.raises(ValueError, match="row 2: .*9.png does not decode.*row 3: .*not exist"):
        trainer.read(pipeline, {"data": (paths, [0, 1, 0, 1])}, {})
    (kept,) = trainer.read(pipeline, {"data": (paths, [0, 1, 0, 1])}, {}, on_bad_rows="drop")
    assert kept.items.tolist() == paths[:2]


def test_a_file_of_bad_rows_alone_says_which(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": 3}\n{"text": null}\n')
    for choice in ("drop", "error"):
        with pytest.raises(ValueError, match="jsonl:1: .*no other row .*jsonl:2: no text"):
            kt.fit(tiny.pipeline("generation"), path, on_bad_rows=choice)


@pytest.mark.parametrize("task", DATA)
def test_contents_of_every_task(task):
    """Equal rows are repeated, and rows that are in both data sets are leaked."""
    trainer, pipeline, rows = TRAINERS[task], tiny.pipeline(task), rows_of(task)
    (examples,) = trainer.read(pipeline, {"data": rows}, {})
    (others,) = trainer.read(pipeline, {"data": rows[:1]}, {})
    line = faults(("data", trainer.contents(examples)), ("validation", trainer.contents(others)))
    is_repeated = task != "image_classification"
    assert ("repeated" in line) == is_repeated, line
    assert "different labels" not in line
    assert "validation: 1 of 1 rows also in data" in line
