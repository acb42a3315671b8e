"""Columns of labels are read one way, as names or as indices, or refused with a remedy."""

import json

import numpy as np
import pytest
import tiny
from test_every_task import DATA, LABELS, TEXTS, bag_of_words

import keras_transformers as kt
from keras_transformers.tasks.labels import LabelColumn
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.task import trainer_of

STARS = ["1", "2", "3", "4", "5"]


def read(labels, *columns, labels_are=None, cells="one"):
    """Returns the names in columns; the first is the training data's."""
    column = LabelColumn(labels=lambda pipeline: labels, cells=cells)
    named = [(Source(name), c) for name, c in zip(("data", "validation"), columns, strict=False)]
    found = column.as_names(None, named, labels_are)
    return found[0] if len(columns) == 1 else found


@pytest.mark.parametrize(
    ("labels", "column", "expected"),
    [
        (["bad", "good"], [0, 1, 1], ["bad", "good", "good"]),
        (["bad", "good"], ["good", " bad "], ["good", "bad"]),
        (["bad", "good"], [1.0, 0.0], ["good", "bad"]),
        (["0", "1"], ["0", "1"], ["0", "1"]),
        (["0", "1"], [0, 1], ["0", "1"]),  # both readings agree
        (["1", "0"], ["1", "0"], ["1", "0"]),
        (STARS, [0, 1, 2, 3, 4], STARS),  # 0 is only an index
        (STARS, [1, 2, 3, 4, 5], STARS),  # 5 is only a name
        (STARS, [1.0, 5.0], ["1", "5"]),
        (STARS, ["1", "2"], ["1", "2"]),  # strings are names
        (["1.0", "2.0"], [1.0, 2.0], ["1.0", "2.0"]),
        (["0.5", "1.5"], [0.5, 1.5], ["0.5", "1.5"]),
        (["-1", "1"], [-1, 1], ["-1", "1"]),
        (["false", "true"], [True, False], ["true", "false"]),
        (["False", "True"], [True, False], ["True", "False"]),
        (["", "x"], ["", "x"], ["", "x"]),
    ],
)
def test_what_can_be_read_in_one_way_only(labels, column, expected):
    assert read(labels, column) == expected


@pytest.mark.parametrize(
    ("labels", "column", "names", "indices"),
    [
        (["1", "2"], [0, 1, 1], None, ["1", "2", "2"]),
        (STARS, [1, 2, 3, 4], ["1", "2", "3", "4"], ["2", "3", "4", "5"]),
        (["1", "0"], [1, 0], ["1", "0"], ["0", "1"]),
        (["bad", "good"], ["1", "0"], None, ["good", "bad"]),  # as stated, strings are indices too
        (["1", "2"], ["1", "0.0"], None, ["2", "1"]),
    ],
)
def test_stated_readings(labels, column, names, indices):
    assert read(labels, column, labels_are="indices") == indices
    if names is None:
        with pytest.raises(ValueError, match=r"data, row \d: unknown label"):
            read(labels, column, labels_are="names")
    else:
        assert read(labels, column, labels_are="names") == names
        with pytest.raises(ValueError, match="data, row 0: the label 1 is") as caught:
            read(labels, column)
        assert "pass labels_are='names' or labels_are='indices'" in str(caught.value)


def test_training_and_validation_decide_together():
    # The training data shows that 1 is a name, or that it is an index.
    assert read(STARS, [1, 2, 5], [1, 2]) == [["1", "2", "5"], ["1", "2"]]
    assert read(STARS, [1, 2], [1, 5]) == [["1", "2"], ["1", "5"]]
    assert read(STARS, [0, 4], [1, 2]) == [["1", "5"], ["2", "3"]]
    assert read(["bad", "good"], ["bad", "good"], [1, 0]) == [["bad", "good"], ["good", "bad"]]
    with pytest.raises(ValueError, match=r"data, row 1: 5 .*names.*|validation, row 0: 0 "):
        read(STARS, [1, 5], [0, 4])
    with pytest.raises(ValueError, match="data, row 0: .*1 .*'1' .*names"):
        read(STARS, [1, 2], [3])


def test_a_column_of_names_and_indices_is_refused():
    with pytest.raises(ValueError, match="of several kinds") as caught:
        read(["bad", "good"], [1, "bad"])
    assert "data, row 0: 1 " in str(caught.value)
    assert "data, row 1: 'bad' " in str(caught.value)


@pytest.mark.parametrize(
    ("column", "row", "remedy"),
    [
        ([[0, 1], [1, 0]], 0, "labels.argmax(axis=-1)"),
        ([[0.2, 0.8]], 0, "labels.argmax(axis=-1)"),
        ([[0], [1]], 0, "labels.reshape(-1)"),
        ([["a", "b", "c"]], 0, "pipeline='multi_label_classification'"),
        (["0", "1"], 0, "labels.astype(int), or labels_are='indices'"),
        (["0.0", "1.0"], 0, "labels.astype(int), or labels_are='indices'"),
        ([True, False], 0, "labels.astype(int) if False and True"),
        ([-1, 1, 1], 0, "(labels + 1) // 2"),
        ([1, -1], 1, "(labels + 1) // 2"),
        ([0, 1, -1], 2, "drop these rows"),
        ([0, 1, -100], 2, "drop these rows"),
        ([1, 2, 1], 1, "labels - 1"),
        ([0, 0.5], 1, "pipeline='regression'"),
        ([0, 7], 1, "load it with labels=[...]"),
        (["good", "great"], 1, "load it with labels=[...]"),
        ([{"a": 1}], 0, "strings or integers, not dict"),
        ([10**400], 0, "load it with labels=[...]"),
        ([float("inf")], 0, "load it with labels=[...]"),
    ],
)
def test_a_label_that_does_not_fit_has_its_remedy(column, row, remedy):
    with pytest.raises(ValueError, match=f"^data, row {row}: unknown label") as caught:
        read(["bad", "good"], column)
    assert remedy in str(caught.value)
    assert "the pipeline's labels are bad, good, or their indices 0 to 1" in str(caught.value)


@pytest.mark.parametrize("cells", ["one", "words", "set"])
def test_other_readings(cells):
    with pytest.raises(ValueError, match="labels_are='index': use one of names, indices"):
        read(["bad", "good"], [0], labels_are="index", cells=cells)
    if cells != "set":
        with pytest.raises(ValueError, match="labels_are='indicators': use one of names, indices"):
            read(["bad", "good"], [[0, 1]], labels_are="indicators", cells=cells)


def test_words_are_read_as_one_column():
    tags = ["1", "2", "3"]
    assert read(tags, [[0, 1], [], [2]], cells="words") == [["1", "2"], [], ["3"]]
    assert read(tags, [[1], [3, 2]], cells="words") == [["1"], ["3", "2"]]
    with pytest.raises(ValueError, match="data, row 0: the label .*labels_are='names'"):
        read(tags, [[1], [2, 1]], cells="words")
    for column, message in (
        ([["1"], ["1", -100]], "row 1: unknown label -100.*drop these words"),
        ([["1"], "1 2"], "row 1: unknown label '1 2'"),
        ([1, 2], "row 0: unknown label 1.*pass a list with one label per word in each row"),
        ([[["1"]]], r"row 0: unknown label \['1'\]"),
    ):
        with pytest.raises(ValueError, match=message):
            read(tags, column, cells="words")


def test_sets_of_labels_are_names_indices_or_indicators():
    three = ["a", "b", "c"]
    assert read(three, [["c", "a"], []], cells="set") == [["c", "a"], []]
    assert read(three, [[2, 0], [1]], cells="set") == [["c", "a"], ["b"]]
    assert read(three, [[0, 1, 1], [0, 0, 0]], cells="set") == [["b", "c"], []]
    assert read(three, [[0, 1], [1]], cells="set") == [["a", "b"], ["b"]]
    two = ["a", "b"]
    assert read(two, [[0, 1], [1, 1]], cells="set") == [["b"], ["a", "b"]]
    with pytest.raises(ValueError, match="labels_are='indices' or labels_are='indicators'"):
        read(two, [[0, 1], [1, 0]], cells="set")
    assert read(two, [[0, 1]], labels_are="indices", cells="set") == [["a", "b"]]
    assert read(two, [[0, 1]], labels_are="indicators", cells="set") == [["b"]]
    for column, message in (
        ([0, 1, 0], "row 0: unknown label 0.*pass a list with any number of labels in each row"),
        (["a,b"], "row 0: unknown label 'a,b'.*pass a list with any number of labels"),
        ([["a"], ["a", "a"]], r"row 1: unknown label \['a', 'a'\].*each label of a row once"),
    ):
        with pytest.raises(ValueError, match=message):
            read(two, column, cells="set")


def test_the_pipelines_own_answers_score_right():
    classify = bag_of_words()
    for names, can_be_both in (
        (["no", "yes"], False),
        (["0", "1"], False),
        (["1", "2"], False),
        (["1", "0"], True),
    ):
        other = type(classify)(classify.model, classify.tokenizer, names, max_sequence_length=16)
        answers = other(TEXTS)
        named = kt.evaluate(other, (TEXTS, [answer.label for answer in answers]))
        assert named["accuracy"] == 1
        indices = [answer.label_index for answer in answers]
        assert 0 in indices
        if can_be_both:
            with pytest.raises(ValueError, match="labels_are='indices'"):
                kt.evaluate(other, (TEXTS, indices))
        else:
            assert kt.evaluate(other, (TEXTS, indices)) == named
        assert kt.evaluate(other, (TEXTS, indices), labels_are="indices") == named


def test_validation_is_read_as_training_data_is(tmp_path):
    classify = bag_of_words()
    options = {"max_sequence_length": 16}
    stars = type(classify)(classify.model, classify.tokenizer, ["1", "2"], **options)
    options = {"epochs": 1, "quiet": True}
    with pytest.raises(ValueError, match="validation, row 0: 0 .*names"):
        kt.fit(stars, (TEXTS, [y + 1 for y in LABELS]), validation=(TEXTS, LABELS), **options)
    with pytest.raises(ValueError, match=r"labels_are='index': use one of names, indices"):
        kt.fit(stars, (TEXTS, LABELS), labels_are="index", **options)
    with pytest.raises(ValueError, match="labels_are='names': .*regression"):
        kt.evaluate(tiny.pipeline("regression"), DATA["regression"][0], labels_are="names")
    path = tmp_path / "a.tsv"
    path.write_text("text\tlabel\na good film\t1\na bad film\t2\n")
    with pytest.raises(ValueError, match=f"labels_are='indices' for {path}.*are names"):
        kt.evaluate(stars, path, labels_are="indices")
    assert kt.evaluate(stars, path, labels_are="names") == kt.evaluate(stars, path)


def test_images_and_next_sentences_are_read_the_same_way():
    images, labels = DATA["image_classification"][0]
    pipeline = tiny.pipeline("image_classification")
    (found,) = trainer_of(pipeline).read(pipeline, {"data": (images, labels)}, {})
    assert found.labels.tolist() == labels
    one_hot = np.eye(len(pipeline.labels))[labels]
    with pytest.raises(ValueError, match=r"labels\.argmax\(axis=-1\)"):
        kt.evaluate(pipeline, (images, one_hot))
    after = tiny.pipeline("next_sentence")
    texts, texts_b, labels = DATA["next_sentence"][0]
    with pytest.raises(ValueError, match=r"row 0: unknown label True.*labels\.astype\(int\)"):
        kt.evaluate(after, (texts, texts_b, [True] * 24))


@pytest.mark.parametrize("task", ["regression", "reranking", "multiple_choice"])
def test_other_numbers_are_one_per_row(task):
    rows = rows_of(task)
    name = "label" if task == "multiple_choice" else "score"
    for value, remedy in (([0.5], "reshape"), ([0, 1], "argmax")):
        with pytest.raises(ValueError, match=rf"data, row 1: {name} is \[.*{remedy}\(-1|axis"):
            kt.evaluate(tiny.pipeline(task), [rows[0], rows[1] | {name: value}, *rows[2:]])


def test_missing_labels_of_pandas():
    pandas = pytest.importorskip("pandas")
    for values in (
        pandas.array([1, 0, None], "Int64"),
        pandas.array([True, False, None], "boolean"),
        pandas.Categorical(["no", "yes", None]),
        pandas.to_datetime(["2020-01-01", "2020-01-01", None]),
        np.array([1, 0, np.nan], np.float32),
    ):
        frame = pandas.DataFrame({"text": TEXTS[:3], "label": values})
        with pytest.raises(ValueError, match=r"data, row 2: no label \(.*\): .*drop the row"):
            kt.evaluate(tiny.pipeline("classification"), frame)


def rows_of(task):
    """Returns one row for each row of a task's data, with the task's own names."""
    trainer = trainer_of(tiny.pipeline(task))
    names = [wanted.name for wanted in trainer.columns(tiny.pipeline(task)) if wanted.required]
    data = DATA[task][0]
    if isinstance(data, dict):
        data = tuple(data.values())
    if isinstance(data, tuple):
        return [dict(zip(names, row, strict=True)) for row in zip(*data, strict=True)]
    rows = [row if isinstance(row, tuple | dict) else (row,) for row in data]
    return [row if isinstance(row, dict) else dict(zip(names, row, strict=True)) for row in rows]


@pytest.mark.parametrize(
    "task", [task for task in DATA if "image" not in task and task != "question_answering"]
)
def test_rows_of_json_need_no_names(task, tmp_path):
    """Nor do they need an order: they are read as rows in memory."""
    path = tmp_path / "rows.jsonl"
    rows = [{"id": str(i)} | row for i, row in enumerate(rows_of(task))]
    if task == "multiple_choice":  # which has formats of its own
        rows = rows_of(task)
    path.write_text("".join(json.dumps(row) + "\n\n" for row in rows))
    pipeline = tiny.pipeline(task)
    trainer = trainer_of(pipeline)
    (of_file,) = trainer.read(pipeline, {"data": path}, {})
    (of_memory,) = trainer.read(pipeline, {"data": rows_of(task)}, {})
    if isinstance(of_file, list):
        assert of_file == of_memory
    else:
        assert vars(of_file) == vars(of_memory) | {"source": str(path)}


def test_rows_of_a_file_are_named_by_file_and_line(tmp_path):
    classify = tiny.pipeline("classification")
    path = tmp_path / "rows.jsonl"
    good = '{"text": "a good film", "label": 1, "id": 7}\n\n'
    for row, message in (
        ('{"text": "a bad film", "label": 5}', ":3: unknown label 5"),
        ('{"text": "a bad film"}', ":3: no 'label' among text"),
        ('{"text": "a bad film", "label": null}', r":3: no label \(None\): fill it in, or drop"),
        ('{"text": 3, "label": 1}', ":3: text is 3, expected a string"),
        (r'{"text": "a \ud83d", "label": 1}', ":3: 'text' has half of a surrogate pair"),
    ):
        path.write_text(good + row + "\n")
        with pytest.raises(ValueError, match=f"^{path}{message}"):
            kt.evaluate(classify, path)
    path.write_text('{"body": "a good film", "stars": 1}\n')
    with pytest.raises(ValueError, match=r"rows.jsonl: no column 'text'.*columns=\{'text': '...'"):
        kt.evaluate(classify, path)
    columns = {"text": "body", "label": "stars"}
    assert kt.evaluate(classify, path, columns=columns)["accuracy"] in (0, 1)


def test_the_remedy_for_a_table_names_columns_of_fit(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,text,label\n1,a good film,no\n2,a bad film,yes\n3,a film,no\n")
    for task, label in (("classification", "label"), ("multi_label_classification", "labels")):
        with pytest.raises(ValueError, match="named 'id'") as caught:
            kt.fit(tiny.pipeline(task), path)
        assert f"pass columns={{'text': 'text', '{label}': 'label'}}" in str(caught.value)
        assert "text_column" not in str(caught.value)
    path.write_text("review,verdict\na good film,no\na bad film,yes\na film,no\nfilm,yes\n")
    with pytest.raises(ValueError, match="'verdict' .*this row") as caught:
        kt.fit(tiny.pipeline("classification"), path)
    assert "pass columns={'text': 'review', 'label': 'verdict'} if" in str(caught.value)
