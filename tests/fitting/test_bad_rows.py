"""Rows that cannot be read: all are named before the first step, or left out."""

import math

import pandas
import pytest
from test_every_task import LABELS, TEXTS, TRAINERS, fresh

import keras_transformers as kt

BAD = {3: None, 7: "a \ud83d film", 9: math.nan}
GOOD_ROWS = [row for row in range(24) if row not in BAD]


def frame():
    """A frame with three bad rows, whose index begins at 100."""
    texts = [BAD.get(row, text) for row, text in enumerate(TEXTS)]
    index = range(100, 124)
    return pandas.DataFrame({"text": pandas.Series(texts, index, object), "label": LABELS}, index)


def test_all_bad_rows_are_named_at_once_by_the_index_of_the_frame():
    with pytest.raises(ValueError, match="3 rows") as raised:
        kt.fit(fresh("classification"), frame(), validation=frame().iloc[10:], quiet=True)
    message = str(raised.value)
    parts = ["data, row 103: no text", "row 107", "surrogate", "row 109", "on_bad_rows='drop'"]
    assert all(part in message for part in parts), message
    with pytest.raises(ValueError, match="6 rows") as raised:
        kt.fit(fresh("classification"), frame(), validation=frame(), quiet=True)
    assert "validation, row 103" in str(raised.value)


def test_one_bad_row_is_named_with_its_remedy():
    with pytest.raises(ValueError, match="row 103: no text .*fill it in, or drop the row"):
        kt.fit(fresh("classification"), frame().drop([107, 109]), quiet=True)


def test_dropped_rows_leave_the_others_as_they_were(caplog):
    trainer, pipeline = TRAINERS["classification"], fresh("classification")
    (examples,) = trainer.read(pipeline, {"data": frame()}, {}, on_bad_rows="drop")
    assert examples.texts == [TEXTS[row] for row in GOOD_ROWS]
    assert examples.labels == [pipeline.labels[LABELS[row]] for row in GOOD_ROWS]
    (warning,) = [x.getMessage() for x in caplog.records if "left out" in x.getMessage()]
    assert "3 rows" in warning
    assert "data, row 107" in warning
    options = {"epochs": 1, "batch_size": 8, "quiet": True}
    one = kt.fit(pipeline, frame(), on_bad_rows="drop", **options).history["loss"]
    clean = ([TEXTS[row] for row in GOOD_ROWS], [LABELS[row] for row in GOOD_ROWS])
    assert one == kt.fit(fresh("classification"), clean, **options).history["loss"]


def test_rows_after_a_dropped_one_keep_their_names():
    wrong = frame()
    wrong.loc[115, "label"] = 7
    with pytest.raises(ValueError, match="data, row 115: unknown label 7"):
        kt.fit(fresh("classification"), wrong, on_bad_rows="drop", quiet=True)


def test_another_choice_is_refused():
    with pytest.raises(ValueError, match="on_bad_rows=.skip.*error.*drop"):
        kt.fit(fresh("classification"), (TEXTS, LABELS), on_bad_rows="skip")


def test_one_line_says_what_may_be_wrong_with_the_data(capsys):
    texts = ["", "a film", "A  film", "bad", "good"]
    kt.fit(fresh("classification"), (texts, [0, 1, 0, 0, 1]), validation=(["bad"], [0]), epochs=1)
    line = capsys.readouterr().out.splitlines()[0]
    parts = ["data: 1 of 5 rows empty", "1 repeated", "2 with different labels", "1 of 1"]
    assert all(part in line for part in [*parts, "validation"]), line


def test_data_of_bad_rows_alone_is_refused():
    with pytest.raises(ValueError, match="row 0: no text"):
        kt.fit(fresh("classification"), ([None, None], [0, 1]), on_bad_rows="drop")
