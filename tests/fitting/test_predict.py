"""`predict`: a table of any kind comes back with the answers as columns, whatever the task."""

import inspect
import typing

import numpy as np
import other_libraries
import pandas
import pytest
import tensorflow as tf
import tiny
from checks import says

import keras_transformers as kt
from keras_transformers.tasks import table_rows
from keras_transformers.tasks.task import all_tasks

TEXTS = ["a good film", "a bad film !", "very long"]
# Columns of data for each task, and the columns that it adds.
DATA = {
    "classification": ({"text": TEXTS}, ["label", "probability"]),
    "multi_label_classification": ({"text": TEXTS}, ["labels"]),
    "regression": ({"text": TEXTS, "text_b": TEXTS}, ["score"]),
    "next_sentence": ({"text": TEXTS, "text_b": TEXTS}, ["probability"]),
    "tagging": ({"text": TEXTS}, ["entities"]),
    "question_answering": (
        {"question": ["good"] * 3, "context": TEXTS},
        ["answer", "score", "start", "end", "null_score"],
    ),
    "multiple_choice": (
        {"text": TEXTS, "choices": [["good", "bad"], ["a", "film", "!"], ["long"]]},
        ["choice", "choice_index", "probability"],
    ),
    "zero_shot_classification": (
        {"text": TEXTS, "labels": [["good", "bad"], ["a", "film", "!"], ["long"]]},
        ["label", "label_index", "probability"],
    ),
    "reranking": (
        {"text": TEXTS, "documents": [["good", "bad"], ["a", "film", "!"], ["long"]]},
        ["scores", "order"],
    ),
    "late_interaction": (
        {"text": TEXTS, "documents": [["good", "bad"], ["a", "film", "!"], ["long"]]},
        ["scores", "order"],
    ),
    "embedding": ({"text": TEXTS}, ["embedding"]),
    "sparse_embedding": ({"text": TEXTS}, ["indices", "weights", "tokens"]),
    "word_embedding": ({"text": TEXTS}, ["tokens", "vectors"]),
    "fill_mask": ({"text": ["a [MASK] film", "[MASK] [MASK]", "a"]}, ["tokens", "probabilities"]),
    "generation": (
        {"text": TEXTS},
        ["generation", "num_new_tokens", "log_probability", "finished", "num_prompt_tokens"],
    ),
    "translation": ({"text": TEXTS}, ["translation", "score"]),
}


def predict(task, data, **options):
    """The data with the answers of the tiny pipeline, without progress."""
    return kt.predict(tiny.pipeline(task), data, quiet=True, **options)


def plain(value):
    """A cell in lists of Python, rounded as in float32."""
    for method in ("tolist", "to_list"):
        value = getattr(value, method)() if hasattr(value, method) else value
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return float(np.float32(value)) if isinstance(value, float) else value


def test_every_task_has_its_columns():
    assert {*DATA, "image_classification", "replaced_tokens"} <= {*all_tasks()}
    assert {*tiny.TASKS} <= {*DATA, "image_classification"}


@pytest.mark.one_case
@pytest.mark.parametrize("task", DATA)
def test_all_kinds_of_tables_get_the_same_columns(task):
    columns, added = DATA[task]
    answers = predict(task, columns)
    assert list(answers) == [*columns, *added]
    assert {name: answers[name] for name in columns} == columns
    for kind in other_libraries.KINDS:
        table = predict(task, other_libraries.table(kind, columns))
        assert type(table) is type(other_libraries.table(kind, columns))
        for name in added:
            cells = table[name].to_pylist() if kind == "pyarrow" else list(table[name])
            assert plain(cells) == plain(list(answers[name])), (kind, name)
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    assert [[*row] for row in predict(task, rows)] == [[*columns, *added]] * 3
    texts = {name: tf.ragged.constant(cells) for name, cells in columns.items()}
    dataset = predict(task, tf.data.Dataset.from_tensor_slices(texts))
    assert int(dataset.cardinality()) == 3
    assert list(next(iter(dataset))) == [*columns, *added]


@pytest.mark.parametrize("kind", other_libraries.KINDS)
def test_tables_are_read_in_parts(kind, monkeypatch):
    texts = [f"{text} {'good ' * (row % 3)}" for row, text in enumerate(TEXTS * 4)]
    whole = predict("classification", {"text": texts})
    for module in ("tasks.table_rows", "fitting.predict"):
        monkeypatch.setattr(f"keras_transformers.{module}.NUM_ROWS", 5)
    sizes = []
    read = table_rows.columns_of
    monkeypatch.setattr(
        table_rows,
        "columns_of",
        lambda data, *args, **options: (sizes.append(len(data)), read(data, *args, **options))[1],
    )
    table = predict("classification", other_libraries.table(kind, {"text": texts}))
    assert plain(list(map(str, table["label"]))) == whole["label"]
    shares = [float(str(share)) for share in table["probability"]]
    assert shares == pytest.approx(whole["probability"], rel=1e-5)
    assert sizes == [5, 5, 2] * 2
    wrong = [*texts[:6], None, *texts[7:11], None]
    with pytest.raises(ValueError, match="2 rows .*: data, row 6, data, row 11: no text "):
        predict("classification", other_libraries.table(kind, {"text": wrong}))


def test_answers_are_those_of_a_call():
    classify, tag = tiny.pipeline("classification"), tiny.pipeline("tagging")
    answers = predict("classification", {"text": TEXTS}, probabilities=True)
    for row, answer in enumerate(classify(TEXTS)):
        assert answers["label"][row] == answer.label
        assert answers["probability"][row] == max(answer.probabilities)
        of_labels = [answers[f"probability_{label}"][row] for label in classify.labels]
        assert of_labels == list(answer.probabilities)
    entities = predict("tagging", {"text": TEXTS})["entities"]
    assert [[entity["text"] for entity in row] for row in entities] == [
        [entity.text for entity in tags.entities] for tags in tag(TEXTS)
    ]
    of_words = predict("tagging", {"words": [text.split() for text in TEXTS]})
    assert of_words["labels"] == [list(tags.labels) for tags in tag(TEXTS)]
    pairs = predict("reranking", {"query": TEXTS, "document": TEXTS})
    rank = tiny.pipeline("reranking")
    scores = [rank(text, [text]).scores[0] for text in TEXTS]  # one by one
    assert pairs["score"] == pytest.approx(scores, rel=1e-6)


def test_conversations_get_the_next_message():
    talk = tiny.talker()
    conversations = [[{"role": "user", "content": text}] for text in TEXTS]
    answers = kt.predict(talk, {"messages": conversations}, batch_size=2, quiet=True)
    assert answers["generation"] == [answer.text for answer in talk.chat(conversations)]
    bad = [conversations[0], "a", [{"role": "nobody", "content": "a"}]]
    with pytest.raises(ValueError, match="row 1: messages is 'a', expected a list of messages"):
        kt.predict(talk, {"messages": bad}, quiet=True)
    with pytest.raises(ValueError, match="data, row 1: .*nobody"):
        kt.predict(talk, {"messages": [bad[0], bad[2]]}, quiet=True)


def test_a_frame_keeps_its_index_and_its_other_columns():
    frame = pandas.DataFrame(
        {"body": TEXTS, "label": ["x", None, "z"]}, index=["third", "first", "first"]
    )
    before = frame.copy()
    answers = predict(
        "classification", frame, columns={"text": "body", "label": "label"}, prefix="predicted_"
    )
    pandas.testing.assert_frame_equal(frame, before)
    pandas.testing.assert_frame_equal(answers[["body", "label"]], before)
    assert list(answers)[2:] == ["predicted_label", "predicted_probability"]
    assert answers["predicted_probability"].dtype == np.float64


def test_an_arrow_table_keeps_its_schema():
    arrow = pytest.importorskip("pyarrow")
    fields = [arrow.field("text", arrow.large_string(), nullable=False, metadata={"a": "b"})]
    schema = arrow.schema(fields, metadata={"of": "table"})
    for table in (
        arrow.table([TEXTS], schema=schema),
        arrow.RecordBatch.from_arrays([arrow.array(TEXTS, arrow.large_string())], schema=schema),
    ):
        answers = predict("embedding", table)
        assert answers.schema.field("text").equals(fields[0], check_metadata=True)
        assert answers.schema.metadata == {b"of": b"table"}
        assert answers.schema.field("embedding").type == arrow.list_(arrow.float32())


def test_data_without_names_gets_the_columns_at_its_end():
    labels = predict("classification", {"text": TEXTS})["label"]
    *before, label, _ = predict("classification", (TEXTS, [7, 8, 9]))
    assert (before, label) == ([TEXTS, [7, 8, 9]], labels)
    rows = [(text, number) for number, text in enumerate(TEXTS)]
    assert [row[:3] for row in predict("classification", rows)] == [
        (*row, label) for row, label in zip(rows, labels, strict=True)
    ]
    assert [row[:2] for row in predict("classification", TEXTS)] == list(
        zip(TEXTS, labels, strict=True)
    )


def test_images_are_paths_or_pixels_of_any_size(tmp_path):
    random = np.random.default_rng(0)
    images = [random.integers(0, 256, shape, np.uint8) for shape in ((8, 12, 3), (20, 9, 3))]
    paths = [tmp_path / f"{number}.png" for number in range(2)]
    for path, pixels in zip(paths, images, strict=True):
        path.write_bytes(tf.io.encode_png(pixels).numpy())
    classify = tiny.pipeline("image_classification")
    wanted = [max(answer.probabilities) for answer in classify([p.read_bytes() for p in paths])]
    for column in (images, paths, list(map(str, paths))):
        assert predict("image_classification", {"image": column})["probability"] == wanted
    grey = predict("image_classification", {"image": [np.full((8, 12), 9)]})
    assert (
        grey["probability"]
        == predict("image_classification", {"image": [np.full((8, 12, 3), 9)]})["probability"]
    )
    bad = [tmp_path / "no.png", np.full((8, 12, 3), 0.5), [[1], [2, 3]], "", images[0]]
    with pytest.raises(ValueError, match="4 rows cannot be read") as raised:
        predict("image_classification", {"image": bad})
    assert says(str(raised.value), "row 0: ... no.png ... row 1: ... 0.5 ... 0 to 255 ... row 3")


def test_rows_that_cannot_be_read_are_all_named_by_the_index_of_the_frame():
    texts = pandas.Series(["a", None, "b \ud83d", "c", 3, float("nan")], dtype=object)
    frame = pandas.DataFrame({"text": texts.to_numpy()}, index=range(100, 106))
    with pytest.raises(ValueError, match="4 rows cannot be read") as raised:
        predict("classification", frame)
    message = str(raised.value)
    assert says(message, "data, row 101: no text ... row 102 ... surrogate ... row 104: text is 3")
    assert says(message, "row 105: no text (nan): fill it in, or drop the row")


def test_rows_that_the_graph_refuses_are_all_named(monkeypatch):
    monkeypatch.setattr(table_rows, "NUM_ROWS", 2)
    long = "a small dog runs near the shore" * 9
    with pytest.raises(ValueError, match="2 rows cannot be read") as raised:
        predict("generation", {"text": ["a", long, "b", "c", long]})
    assert says(str(raised.value), "data, row 1, data, row 4: ... tokens")


@pytest.mark.parametrize("kind", other_libraries.KINDS)
def test_a_column_that_exists_is_never_replaced(kind):
    table = other_libraries.table(kind, {"text": ["a"], "label": ["b"]})
    with pytest.raises(ValueError, match="label") as raised:
        predict("classification", table)
    assert says(str(raised.value), "data already has the column label ... prefix='predicted_'")
    assert "predicted_label" in str(raised.value)
    table = other_libraries.table(kind, {"text": ["a"], "label": ["b"], "predicted_label": ["c"]})
    for options in ({}, {"prefix": "predicted_"}):
        with pytest.raises(ValueError, match="prefix='new_predicted_' for new_predicted_label"):
            predict("classification", table, **options)


@pytest.mark.parametrize(
    ("data", "options", "parts"),
    [
        (pandas.DataFrame(), {}, "data: ... no columns"),
        (pandas.DataFrame({"text": []}), {}, "data: the data has no rows: pass at least one"),
        ([], {}, "data: the data has no rows: pass at least one"),
        (
            pandas.DataFrame([["a", "b"]], columns=["text", "text"]),
            {},
            "data: 2 columns are named 'text': rename all but one",
        ),
        ({"body": ["a"]}, {}, "no column 'text' among body: pass columns={'text': '...'}"),
        ({"text": ["a"]}, {"columns": {"txt": "text"}}, "columns={'txt': 'text'} ... for text"),
        ({"text": ["a"]}, {"columns": {"text": "body"}}, "no column 'body' among text"),
        ({"text": ["a"]}, {"output": "a.csv"}, "output='a.csv' ... to_csv"),
        ("a.csv", {}, "a.csv is a file: pass output="),
        ({"text": ["a"]}, {"batch_size": 0}, "batch_size"),
    ],
)
def test_what_is_refused_has_a_remedy(data, options, parts):
    with pytest.raises(ValueError, match="pass|rename|write|batch_size") as raised:
        predict("classification", data, **options)
    assert says(str(raised.value), parts), raised.value


def test_fit_refuses_the_same_frames():
    for data, parts in (
        (pandas.DataFrame(), "data: ... no columns"),
        (pandas.DataFrame({"text": [], "label": []}), "no rows: pass at least one"),
        (
            pandas.DataFrame([["a", 0, 1]], columns=["text", "label", "label"]),
            "2 columns are named 'label': rename all but one",
        ),
    ):
        with pytest.raises(ValueError, match="data: ") as raised:
            kt.fit(tiny.pipeline("classification"), data, quiet=True)
        assert says(str(raised.value), parts), raised.value


def test_columns_are_for_one_set_of_inputs():
    with pytest.raises(ValueError, match="pass names for words or text, not for both"):
        predict("tagging", {"a": TEXTS}, columns={"words": "a", "text": "a"})
    assert predict("tagging", {"a": TEXTS, "words": TEXTS}, columns={"text": "a"})["entities"]


def test_probabilities_need_labels():
    with pytest.raises(ValueError, match="probabilities=True: regression .*score"):
        predict("regression", {"text": ["a"], "text_b": ["b"]}, probabilities=True)


def test_foreign_options_and_pipelines_are_refused():
    with pytest.raises(TypeError, match="top_k.*with_options"):
        predict("fill_mask", {"text": ["a"]}, top_k=2)
    with pytest.raises(TypeError, match="function"):
        kt.predict(len, {"text": ["a"]})


def test_progress_is_a_line_every_ten_seconds(monkeypatch, capsys):
    monkeypatch.setattr(table_rows, "NUM_ROWS", 2)
    monkeypatch.setattr("keras_transformers.runs.progress.SECONDS_BETWEEN_LINES", 0)
    kt.predict(tiny.pipeline("classification"), {"text": TEXTS})
    assert says(capsys.readouterr().out, "row 2/3 ... left ... row 3/3")
    predict("classification", {"text": TEXTS})
    assert capsys.readouterr().out == ""


def test_all_kinds_of_data_have_the_same_options():
    """An editor knows them by an overload for each kind of data."""
    function = inspect.unwrap(kt.predict)
    options = dict(inspect.signature(function).parameters)
    for of_kind in typing.get_overloads(function):
        parameters = inspect.signature(of_kind).parameters
        assert parameters.keys() - options.keys() == set()
        assert options.keys() - parameters.keys() <= {"output"}
        for name in parameters.keys() - {"data", "output"}:
            assert parameters[name] == options[name], name
