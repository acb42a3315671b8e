"""`predict --input`: one file of answers per file, whole, resumable; bad lines and places."""

import csv
import gzip
import io
import json
import shutil
import sys

import numpy as np
import pytest
import tensorflow as tf
import tiny
from checks import says
from engine_toys import export

from keras_transformers.cli import main as cli
from keras_transformers.saved_model import Predictor, TextRows, predict_files


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "b.txt").write_bytes("é\nlong text\r\n\na\tb".encode())
    with gzip.open(folder / "a.txt.gz", "wb") as file:
        file.write(b"\n".join(b"x" * n for n in range(70)) + b"\nbad \xff\n")
    return folder


@pytest.fixture
def written(monkeypatch):
    """The names of the files that are answered from now on."""
    names = []
    read = TextRows.read
    monkeypatch.setattr(
        TextRows,
        "read",
        lambda self, path, inputs: (names.append(path.name), read(self, path, inputs))[1],
    )
    return names


def run(capsys, *arguments):
    status = cli.main([str(argument) for argument in ("predict", *arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def rows(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def snapshot(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_line_n_answers_line_n(lengths, texts, tmp_path, capsys):
    output = tmp_path / "out"
    arguments = (lengths, "--input", f"{texts}/*.txt*", "--output", output)
    status, out, _ = run(capsys, *arguments)
    said = "2 files (0 finished before), 75 lines, 1 of them unreadable, listed in _run/unreadable."
    assert (status, out) == (0, f"{output}: {said}jsonl\n")
    assert sorted(path.name for path in output.iterdir()) == ["_run", "a.jsonl", "b.jsonl"]
    lines = ["é", "long text", "", "a\tb"]
    assert rows(output / "b.jsonl") == Predictor(lengths)({"text": lines})
    assert [row["length"] for row in rows(output / "b.jsonl")] == [2, 9, 0, 3]
    answers = rows(output / "a.jsonl")
    assert [row["length"] for row in answers[:70]] == list(range(70))
    assert answers[70:] == [{}]
    assert rows(output / "_run" / "unreadable.jsonl") == [
        {
            "file": f"{texts}/a.txt.gz",
            "line": 71,
            "reason": "not UTF-8 (byte 0xff at byte 5 of the line), but perhaps cp1252",
        }
    ]


@pytest.mark.slow
def test_a_line_may_hold_a_text_and_its_choices(tmp_path):
    """Any number of choices; a line without tabs has none, and gets no answer."""
    lines = ["two dogs\ta film\tgood", "a film\tgood", "no choices"]
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n")
    report = predict_files(
        tiny.exported("multiple_choice"), [f"{tmp_path}/a.txt"], tmp_path / "out"
    )
    assert (report.num_lines, report.num_unreadable_lines) == (3, 1)
    *answers, nothing = rows(tmp_path / "out" / "a.jsonl")
    wanted = tiny.pipeline("multiple_choice").rows(
        {"text": ["two dogs", "a film"], "choices": [["a film", "good"], ["good"]]}
    )
    assert [answer["choice"] for answer in answers] == [row["choice"] for row in wanted]
    assert [len(answer["probabilities"]) for answer in answers] == [2, 1]
    assert nothing == {}


def test_only_new_and_changed_files_are_answered_again(lengths, texts, tmp_path, written):
    output = tmp_path / "out"
    first = predict_files(lengths, [f"{texts}/*"], output)
    assert (written, first.num_kept_files) == (["a.txt.gz", "b.txt"], 0)
    written.clear()
    again = predict_files(lengths, [f"{texts}/*"], output)
    assert (written, again.num_kept_files) == ([], 2)
    assert (again.num_lines, again.num_unreadable_lines) == (75, 1)
    (texts / "b.txt").write_text("other\n")
    (texts / "c.txt").write_text("new\n")
    assert predict_files(lengths, [f"{texts}/*"], output).num_kept_files == 1
    assert written == ["b.txt", "c.txt"]
    assert [row["length"] for row in rows(output / "b.jsonl")] == [5]
    (output / "c.jsonl").unlink()
    predict_files(lengths, [f"{texts}/*"], output)
    assert written == ["b.txt", "c.txt", "c.txt"]
    assert (output / "c.jsonl").is_file()


def test_a_file_that_fails_leaves_the_others_and_no_part_of_itself(lengths, texts, tmp_path):
    output = tmp_path / "out"
    (texts / "b.txt").write_text("x\n" * 40 + "refuse me\n")
    with pytest.raises(ValueError, match=r"b\.txt:33-41: .*a text that it refuses"):
        predict_files(lengths, [f"{texts}/*"], output)
    assert sorted(path.name for path in output.glob("*.jsonl")) == ["a.jsonl"]
    (texts / "b.txt").write_text("x\n")
    assert predict_files(lengths, [f"{texts}/*"], output).num_kept_files == 1
    damaged = gzip.compress(b"one\ntwo\n" * 1000)[:-20]
    (texts / "c.txt.gz").write_bytes(damaged)
    with pytest.raises(ValueError, match=r"c\.txt\.gz:\d+: damaged gzip data"):
        predict_files(lengths, [f"{texts}/*"], output)
    assert not (output / "c.jsonl").exists()


def test_pairs_are_split_at_the_tab(tmp_path):
    strings = tf.TensorSpec([None], tf.string)

    @tf.function(autograph=False)
    def join(text, text_b):
        return {"both": tf.strings.join([text, "+", text_b])}

    pair = export(
        tmp_path / "1", serving_default=join.get_concrete_function(text=strings, text_b=strings)
    )
    (tmp_path / "a.txt").write_text("a\tb\nalone\na\tb\tc\n")
    report = predict_files(pair, [str(tmp_path / "a.txt")], tmp_path / "out")
    assert (report.num_lines, report.num_unreadable_lines) == (3, 2)
    assert rows(tmp_path / "out" / "a.jsonl") == [{"both": "a+b"}, {}, {}]
    reasons = [row["reason"] for row in rows(tmp_path / "out" / "_run" / "unreadable.jsonl")]
    assert reasons == [f"not 2 texts with tabs between them, but {count}" for count in (1, 3)]


TABLE = [("id", "review", "label"), (0, "é", "x"), (1, 'long, "text"', "y"), (2, "", "z")]


def as_csv(rows, delimiter=","):
    buffer = io.StringIO()
    csv.writer(buffer, delimiter=delimiter).writerows(rows)
    return buffer.getvalue()


def as_json_lines(rows):
    return "".join(json.dumps(dict(zip(rows[0], row, strict=True))) + "\n" for row in rows[1:])


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("a.csv", as_csv(TABLE), ["--text-column", "review"]),
        ("a.csv.gz", as_csv([row[1:] for row in TABLE]), []),  # a usual name
        ("a.csv", as_csv([("text", "label"), *(row[1:] for row in TABLE[1:])], ";"), []),
        ("a.tsv", 'é\tx\nlong, "text"\ty\n\tz\n', []),
        ("a.csv", as_csv(TABLE, "#"), ["--text-column", "1", "--delimiter", "#"]),
        ("a.jsonl", as_json_lines(TABLE), ["--text-column", "review"]),
        ("a.jsonl", as_json_lines([("text",), *((row[1],) for row in TABLE[1:])]), []),
    ],
)
def test_row_n_of_a_table_is_answered_by_line_n(lengths, tmp_path, capsys, name, text, options):
    data = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    status, out, err = run(
        capsys, lengths, "--input", tmp_path / name, "--output", tmp_path / "out", *options
    )
    assert (status, err) == (0, "")
    assert "1 files (0 finished before), 3 lines" in out
    (answers,) = (tmp_path / "out").glob("*.jsonl")
    found = [row["length"] for row in rows(answers)]
    assert found == [len("é".encode()), len('long, "text"'), 0]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "a.csv",
            as_csv(TABLE),
            "column 0 ... 'id' ... --text-column review",
        ),
        (
            "a.csv",
            as_csv([("beitrag", "punkte"), ("gut", 1), ("schlecht", 2)]),
            "a.csv:1: ... --text-column beitrag, or header",
        ),
        (
            "a.jsonl",
            as_json_lines(TABLE),
            "a.jsonl:1: no key 'text' among ['id', 'label', 'review']",
        ),
        (
            "a.jsonl",
            '{"text": "a"}\n{"id": ["b"], "text": "a \\ud83d"}\n',
            "a.jsonl:2: 'text' ... '\\ud83d', at character 2",
        ),
    ],
)
def test_tables_without_the_columns_are_refused(lengths, tmp_path, capsys, name, text, said):
    (tmp_path / name).write_text(text)
    status, _, err = run(capsys, lengths, "--input", tmp_path / name, "--output", tmp_path / "out")
    assert status == 2
    assert says(err, said)
    assert not list((tmp_path / "out").glob("*.jsonl"))


CHOICES = [{"text": "a", "choices": ["b", "c"]}, {"text": "d", "choices": ["e", "f", "g"]}]


def test_choices_are_lists_in_objects(tmp_path):
    path, names = tmp_path / "a.jsonl", ("text", "choices")
    path.write_text("\n".join(map(json.dumps, CHOICES)))
    expected = [([row["text"], row["choices"]], "") for row in CHOICES]
    assert list(TextRows().read(path, names)) == expected
    renamed = [{"q": row["text"], "answers": row["choices"]} for row in CHOICES]
    path.write_text("\n".join(map(json.dumps, renamed)))
    named = TextRows(text_column="q", text_b_column="answers")
    assert list(named.read(path, names)) == expected
    with pytest.raises(ValueError, match=r"a\.jsonl:1: \[None, None\],"):
        list(TextRows().read(path, names))
    (tmp_path / "a.csv").write_text("text,choices\na,b\n")
    with pytest.raises(ValueError, match=r"a\.csv:.*row.*use JSON"):
        list(TextRows().read(tmp_path / "a.csv", names))


def test_pairs_are_columns_of_a_table(tmp_path):
    names = ("question", "context")
    for name, text in (
        ("named.csv", "id,context,question\n1,a b,who?\n2,c,what?\n"),
        ("first.tsv", "who?\ta b\nwhat?\tc\n"),
    ):
        (tmp_path / name).write_text(text)
        found = list(TextRows().read(tmp_path / name, names))
        assert found == [(["who?", "a b"], ""), (["what?", "c"], "")]
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").table({"id": [1], "context": ["a"], "question": ["?"]})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert list(TextRows().read(tmp_path / "a.parquet", names)) == [(["?", "a"], "")]


def test_a_file_that_is_read_in_another_way_is_answered_again(lengths, tmp_path, written):
    (tmp_path / "a.csv").write_text(as_csv(TABLE))
    arguments = (lengths, [str(tmp_path / "a.csv")], tmp_path / "out")
    for column, kept in (("review", 0), ("review", 1), ("label", 0)):
        assert predict_files(*arguments, rows=TextRows(text_column=column)).num_kept_files == kept
    assert [row["length"] for row in rows(tmp_path / "out/a.csv.jsonl")] == [1, 1, 1]
    (tmp_path / "b.txt").write_bytes("é\n".encode("utf-16"))
    predict_files(
        lengths, [str(tmp_path / "b.txt")], tmp_path / "b", rows=TextRows(encoding="utf-16")
    )
    assert [row["length"] for row in rows(tmp_path / "b/b.jsonl")] == [len("é".encode())]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--input", "{texts}/*.csv"], "{texts}/*.csv: no file ... check the pattern"),
        (["--input", "{texts}/b.txt", "--text", "a"], "--input and --output together"),
        (["--input", "{texts}/*", "{texts}/more/b.txt"], "same file ... b.jsonl"),
        (["--input", "{texts}/*", "--beam", "runner=DirectRunner"], "this needs apache_beam"),
        ([], "--input and --output together"),
    ],
)
def test_arguments_that_make_no_sense(lengths, texts, tmp_path, capsys, monkeypatch, options, said):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    (texts / "more").mkdir()
    shutil.copy(texts / "b.txt", texts / "more")
    words = [word.format(texts=texts) for word in options]
    status, _, err = run(capsys, lengths, *words, "--output", tmp_path / "out")
    assert (status, len(err.splitlines())) == (2, 1)
    assert says(err, said.format(texts=texts))
    assert not list((tmp_path / "out").glob("*.jsonl"))


def test_places_that_are_not_free(lengths, texts, tmp_path, capsys):
    output = tmp_path / "out"
    arguments = ("--input", f"{texts}/*", "--output", output)
    other = tmp_path / "other"
    shutil.copytree(lengths / "3", other / "1")
    shutil.copy(texts / "b.txt", other / "1" / "assets")
    assert run(capsys, other, *arguments)[0] == 0
    before = snapshot(output)
    status, _, err = run(capsys, lengths, *arguments)
    assert (status, len(err.splitlines())) == (2, 1)
    assert says(err, f"{output} ... {other}/1: use another folder")
    (output / "_run" / "export.json").unlink()
    status, _, err = run(capsys, other, *arguments)
    assert (status, "contains files, but no _run/export.json" in err) == (2, True)
    del before[output / "_run" / "export.json"]
    assert snapshot(output) == before


def test_exports_that_take_no_texts(texts, tmp_path, capsys):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")], autograph=False)
    def double(x):
        return {"y": 2.0 * x}

    numbers = export(tmp_path / "1", serving_default=double)
    arguments = ("--input", f"{texts}/*", "--output", tmp_path / "out")
    status, _, err = run(capsys, numbers, *arguments)
    assert (status, f"{numbers} does not take texts; " in err) == (2, True)
    status, _, err = run(capsys, texts, *arguments)
    assert (status, len(err.splitlines())) == (2, 1)
    assert "no export at" in err
    assert not (tmp_path / "out").exists()


@pytest.mark.one_case
@pytest.mark.parametrize("path", ["export", "saved"])
def test_a_table_becomes_a_table_with_the_answers(path, tmp_path, capsys):
    """By the export and by the saved pipeline, the same."""
    classify = tiny.pipeline("classification")
    model = (
        tiny.exported("classification") if path == "export" else classify.save(tmp_path / "saved")
    )
    texts = ["a good film", "a bad film !"]
    with (tmp_path / "a.csv").open("w") as file:
        csv.writer(file, delimiter=";").writerows(
            [["review", "id"], *zip(texts, "12", strict=True)]
        )
    options = ["--text-column", "review", "--probabilities", "--prefix", "p_"]
    files = ["--input", tmp_path / "*.csv", "--output", tmp_path / "b.jsonl"]
    status, out, err = run(capsys, model, *files, *options)
    assert (status, out.splitlines()[-1]) == (0, f"{tmp_path / 'b.jsonl'}: 2 rows"), err
    for row, text, answer in zip(rows(tmp_path / "b.jsonl"), texts, classify(texts), strict=True):
        assert list(row)[:4] == ["review", "id", "p_label", "p_probability"]
        assert (row["review"], row["p_label"]) == (text, answer.label)
        shares = [row[f"p_probability_{label}"] for label in classify.labels]
        assert shares == pytest.approx(answer.probabilities, rel=1e-4)
    status, _, err = run(capsys, model, *files, *options)
    assert (status, "b.jsonl exists: remove it" in err) == (2, True)
    (tmp_path / "c.tsv").write_text("x\ty\na\tb\n")
    files = ["--input", tmp_path / "c.tsv", "--output", tmp_path / "d.csv"]
    status, _, err = run(capsys, model, *files)
    assert (status, says(err, "c.tsv: no column 'text' ... pass --text-column")) == (2, True), err


@pytest.mark.one_case
@pytest.mark.parametrize("task", ["image_classification", "tagging", "reranking", "embedding"])
def test_exports_of_other_tasks_answer_tables(task, tmp_path):
    from keras_transformers.saved_model.measuring import Export
    from keras_transformers.tasks.table_rows import TableAnswers

    columns = {
        "image_classification": {"image": [tmp_path / "a.png"]},
        "tagging": {"words": [["a", "film"], ["good"]]},
        "reranking": {"text": ["a"], "text_b": ["a film"]},
    }.get(task, {"text": ["a film"]})
    (tmp_path / "a.png").write_bytes(tf.io.encode_png(tf.zeros([8, 12, 3], tf.uint8)).numpy())
    export = tiny.exported(task)
    (wanted,), (got,) = (
        TableAnswers(pipeline=pipeline).answers(columns, {})
        for pipeline in (tiny.pipeline(task), Export(export, batch_size=2))
    )
    assert wanted.keys() == got.keys()
    for name, cells in wanted.items():
        for one, other in zip(map(np.ravel, cells), map(np.ravel, got[name]), strict=True):
            assert list(one) == (
                list(other) if one.dtype.kind == "U" else pytest.approx(other, rel=1e-4)
            )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--output", "{}/b.csv", "--beam", "runner=DirectRunner"], "--beam ... be a folder"),
        (["--output", "{}/out", "--prefix", "p_"], "--prefix is for tables ... end in .csv"),
        (["--output", "{}/b.csv", "--input", "{}/no*"], "/no*: no file matches"),
    ],
)
def test_options_of_tables_and_folders(options, said, tmp_path, capsys):
    (tmp_path / "a.csv").write_text("text\na\n")
    words = [word.format(tmp_path) for word in options]
    status, _, err = run(capsys, tmp_path, "--input", tmp_path / "a.csv", *words)
    assert (status, len(err.splitlines()), says(err, said)) == (2, 1, True), err
