"""`predict` from file to file: all columns stay, nothing half-written, and a stop loses little."""

import csv
import gzip
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf
import tiny
from checks import says

import keras_transformers as kt
from keras_transformers.fitting import table_files
from keras_transformers.tasks import table_rows

TEXTS = ["a good film", "a bad film !", "very long", "", 'he said "good", and left']
IDS = [10, 20, 30, 40, 50]


@pytest.fixture(autouse=True)
def _parts_of_two_rows(monkeypatch):
    for module in (table_files, table_rows):
        monkeypatch.setattr(module, "NUM_ROWS", 2)


def predict(path, output, task="classification", **options):
    return kt.predict(tiny.pipeline(task), path, output=output, quiet=True, **options)


def write_csv(path, columns=None):
    columns = columns or {"id": IDS, "body": TEXTS}
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerows([columns, *zip(*columns.values(), strict=True)])
    return path


def read(path):
    """The rows of a file as dicts of the types that it has."""
    if path.suffix == ".parquet":
        return pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()
    with path.open(newline="") as file:
        if path.suffix == ".jsonl":
            return list(map(json.loads, file))
        quoting = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if path.suffix == ".tsv" else {}
        return list(csv.DictReader(file, **quoting))


@pytest.fixture(scope="module")
def answers():
    frame = {"text": TEXTS}
    return kt.predict(tiny.pipeline("classification"), frame, probabilities=True, quiet=True)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_a_csv_becomes_any_format(suffix, answers, tmp_path):
    path, output = write_csv(tmp_path / "a.csv"), tmp_path / f"b{suffix}"
    written = predict(path, output, columns={"text": "body"}, probabilities=True)
    assert written == output
    rows = read(output)
    assert [row["id"] for row in rows] == list(map(str, IDS))
    assert [row["body"] for row in rows] == TEXTS
    for name, cells in answers.items():
        if name != "text":
            kind = type(cells[0])
            assert [kind(row[name]) for row in rows] == pytest.approx(cells) or kind is str
    assert [row["label"] for row in rows] == answers["label"]
    assert sorted(os.listdir(tmp_path)) == ["a.csv", output.name]


@pytest.mark.parametrize("suffix", [".jsonl.gz", ".parquet", ".txt.gz"])
def test_other_formats_are_read_with_the_types_of_their_cells(suffix, answers, tmp_path):
    rows = [{"text": text, "id": number} for text, number in zip(TEXTS, IDS, strict=True)]
    path, output = tmp_path / f"a{suffix}", tmp_path / "b.parquet"
    if suffix == ".parquet":
        arrow = pytest.importorskip("pyarrow")
        ids = arrow.array(IDS, arrow.int16())
        pytest.importorskip("pyarrow.parquet").write_table(
            arrow.table({"text": TEXTS, "id": ids}), path
        )
    elif "txt" in suffix:
        rows = [{"text": text} for text in TEXTS]
        path.write_bytes(gzip.compress("\n".join(TEXTS).encode()))
    else:
        path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    predict(path, output)
    for row, before, label in zip(read(output), rows, answers["label"], strict=True):
        assert {name: row[name] for name in before} == before
        assert row["label"] == label
    if suffix == ".parquet":
        schema = pytest.importorskip("pyarrow.parquet").read_schema(output)
        assert str(schema.field("id").type) == "int16"


def test_lists_in_csv_are_json(tmp_path):
    path = write_csv(tmp_path / "a.csv", {"text": TEXTS[:3]})
    predict(path, tmp_path / "b.csv", task="tagging")
    entities = kt.predict(tiny.pipeline("tagging"), {"text": TEXTS[:3]}, quiet=True)["entities"]
    assert [json.loads(row["entities"]) for row in read(tmp_path / "b.csv")] == entities
    predict(path, tmp_path / "b.parquet", task="embedding")
    assert len(read(tmp_path / "b.parquet")[0]["embedding"]) == 8


def test_pairs_are_columns_or_lines_with_a_tab(tmp_path):
    rows = "a good film\ta film\nbad\tgood\n"
    (tmp_path / "a.txt").write_text(rows)
    (tmp_path / "a.tsv").write_text(f"sentence1\tsentence2\n{rows}")
    predict(tmp_path / "a.txt", tmp_path / "b.jsonl", task="regression")
    predict(tmp_path / "a.tsv", tmp_path / "c.jsonl", task="regression")
    assert list(map(list, map(dict.values, read(tmp_path / "b.jsonl")))) == list(
        map(list, map(dict.values, read(tmp_path / "c.jsonl")))
    )
    (tmp_path / "a.txt").write_text("a good film\ta film\nbad\n")
    with pytest.raises(ValueError, match="a.txt:2: 1 texts .*expected text, text_b"):
        predict(tmp_path / "a.txt", tmp_path / "d.jsonl", task="regression")


_KILLED = """
import os, sys
import tiny
import keras_transformers as kt
from keras_transformers.fitting import table_files
from keras_transformers.tasks import table_rows

table_files.NUM_ROWS = table_rows.NUM_ROWS = 2
answer = table_files._answer

def dying(*args):
    if not args[2][0][1]["text"]:
        os.kill(os.getpid(), 9)
    answer(*args)

table_files._answer = dying
kt.predict(tiny.pipeline("classification"), sys.argv[1], output=sys.argv[2], quiet=True)
"""


@pytest.mark.slow
def test_a_killed_run_resumes_where_it_was(tmp_path):
    texts = [*TEXTS[:2], *TEXTS[3:], *TEXTS]
    path = write_csv(tmp_path / "a.csv", {"id": list(range(9)), "text": texts})
    folder = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, folder])}
    output = tmp_path / "b.csv"
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, path, output], check=False, env=environment
    )
    assert killed.returncode == -9
    assert not output.exists()
    parts = tmp_path / "b.csv.parts"
    assert [name.name for name in sorted(parts.glob("0*"))] == ["000000.jsonl"]
    predict(path, output)
    predict(path, tmp_path / "c.csv")
    assert output.read_bytes() == (tmp_path / "c.csv").read_bytes()
    assert not parts.exists()


def stop_after(monkeypatch, count):
    """Makes the answers to the part with this number fail, as a full disk would."""
    answer, calls = table_files._answer, []

    def failing(*args):
        calls.append(args)
        if len(calls) > count:
            raise OSError("no space left")
        answer(*args)

    monkeypatch.setattr(table_files, "_answer", failing)
    return calls


def test_a_stopped_run_answers_only_what_is_left(tmp_path, monkeypatch):
    path, output = write_csv(tmp_path / "a.csv", {"id": IDS, "text": TEXTS}), tmp_path / "b.jsonl"
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(OSError, match="no space"):
            predict(path, output)
    assert not output.exists()
    with monkeypatch.context() as patch:
        calls = stop_after(patch, 1)  # one part of three is left
        predict(path, output)
    assert len(calls) == 1
    assert len(read(output)) == 5
    assert sorted(os.listdir(tmp_path)) == ["a.csv", "b.jsonl"]


def test_another_run_does_not_take_the_answers(tmp_path, monkeypatch):
    path, output = write_csv(tmp_path / "a.csv", {"id": IDS, "text": TEXTS}), tmp_path / "b.jsonl"
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        with pytest.raises(OSError, match="no space"):
            predict(path, output)
    for options in ({"prefix": "p_"}, {"task": "embedding"}, {"probabilities": True}):
        with pytest.raises(ValueError, match="b.jsonl.parts") as raised:
            predict(path, output, **options)
        assert says(str(raised.value), "stopped, with another ... remove that folder")
    write_csv(path, {"id": IDS, "text": TEXTS[::-1]})
    with pytest.raises(ValueError, match="another file"):
        predict(path, output)


def test_columns_without_names_have_numbers(tmp_path):
    (tmp_path / "a.tsv").write_text("0\ta good film\n1\tbad\n")
    with pytest.raises(ValueError, match="a.tsv: no column 'text' .* if the first row is an exa"):
        predict(tmp_path / "a.tsv", tmp_path / "b.csv")
    with pytest.raises(ValueError, match="a.tsv:1: no column 2 of 0 to 1"):
        predict(tmp_path / "a.tsv", tmp_path / "b.csv", columns={"text": 2})
    predict(tmp_path / "a.tsv", tmp_path / "b.csv", columns={"text": 1})
    rows = read(tmp_path / "b.csv")
    assert [list(row.values())[:2] for row in rows] == [["0", "a good film"], ["1", "bad"]]
    assert list(rows[0]) == ["column_0", "text", "label", "probability"]


def test_an_output_is_never_replaced(tmp_path):
    path, output = write_csv(tmp_path / "a.csv", {"id": IDS, "text": TEXTS}), tmp_path / "b.csv"
    output.write_text("mine")
    with pytest.raises(FileExistsError, match="b.csv exists: remove it"):
        predict(path, output)
    assert output.read_text() == "mine"
    with pytest.raises(ValueError, match=r"b.xls: .* must end in .csv, .tsv, .jsonl, .parquet"):
        predict(path, tmp_path / "b.xls")
    (tmp_path / "c.csv.parts").mkdir()
    (tmp_path / "c.csv.parts" / "thesis.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="c.csv.parts has other files"):
        predict(path, tmp_path / "c.csv")


def test_all_rows_that_cannot_be_read_are_named_by_their_lines(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    rows = [{"text": "a"}, {"text": None}, {"text": "b"}, {"text": 3}, {"text": math.nan}]
    path.write_text("\n\n".join(map(json.dumps, rows)))
    monkeypatch.setattr(table_files, "_answer", pytest.fail)  # all rows are checked before
    with pytest.raises(ValueError, match="3 rows cannot be read") as raised:
        predict(path, tmp_path / "b.csv")
    assert says(str(raised.value), "a.jsonl:3: no text ... a.jsonl:7: text is 3 ... a.jsonl:9: no")
    assert os.listdir(tmp_path) == ["a.jsonl"]


def test_rows_that_the_pipeline_refuses_are_named_by_their_lines(tmp_path):
    long = "a small dog runs near the shore" * 9
    path = write_csv(tmp_path / "a.csv", {"text": ["a", long, "b", long]})
    with pytest.raises(ValueError, match="2 rows cannot be read") as raised:
        predict(path, tmp_path / "b.csv", task="generation")
    assert says(str(raised.value), "a.csv:3, ... a.csv:5: ... tokens")
    assert not (tmp_path / "b.csv").exists()


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("a.csv", "text,label\na,b\n", "a.csv already has the column label ... prefix="),
        ("a.csv", "text,text\na,b\n", "a.csv:1: 2 columns are named 'text': rename all but one"),
        ("a.csv", "text\n", "a.csv: the data has no rows"),
        ("a.csv", "", "a.csv: the data has no rows"),
        ("a.csv", "body\na\n", "a.csv: no column 'text' among body: pass columns="),
        ("a.csv", "text,n\na,1\nb\n", "a.csv:3: 1 columns, the first row has 2"),
        ("a.jsonl", '{"text": "a"}\n{"body": "b"}', "a.jsonl:2: no 'text' among body"),
        ("a.jsonl", '{"text": "a"}\n{"t', "a.jsonl:2: not JSON"),
        ("a.parquet", "PAR1", "a.parquet: Parquet cannot be read"),
    ],
)
def test_what_is_refused_has_its_place_and_a_remedy(name, content, parts, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match="a.") as raised:
        predict(tmp_path / name, tmp_path / "b.csv")
    assert says(str(raised.value), parts), raised.value
    assert os.listdir(tmp_path) == [name]


def test_a_tab_does_not_fit_into_tsv(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "a\tgood film"}))
    with pytest.raises(ValueError, match="has a tab or a line end, .* end in .csv or .jsonl"):
        predict(tmp_path / "a.jsonl", tmp_path / "b.tsv")
    assert not (tmp_path / "b.tsv").exists()
    predict(tmp_path / "a.jsonl", tmp_path / "b.csv")


def test_files_may_be_urls(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    with system.open("/in/a.csv", "w") as file:
        file.write("text\na good film\nbad\nlong\n")
    assert predict("memory://in/a.csv", "memory://out/b.csv") == "memory://out/b.csv"
    assert system.find("/out") == ["/out/b.csv"]
    assert system.cat("/out/b.csv").decode().splitlines()[0] == "text,label,probability"


def test_formats_of_tasks_become_tables(tmp_path):
    answers = [{"text": "film", "answer_start": 7}]
    questions = [{"id": str(number), "question": "good", "answers": answers} for number in range(3)]
    paragraphs = [{"context": "a good film", "qas": questions}]
    (tmp_path / "dev.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    predict(tmp_path / "dev.json", tmp_path / "a.csv", task="question_answering")
    answer = tiny.pipeline("question_answering")("good", "a good film")
    assert [(row["id"], row["context"], row["answer"]) for row in read(tmp_path / "a.csv")] == [
        (question["id"], "a good film", answer.text) for question in questions
    ]
    for name in ("cat/1.png", "dog/2.png", "dog/3.PNG"):
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        pixels = tf.fill([8, 12, 3], tf.constant(200, tf.uint8))
        (tmp_path / "images" / name).write_bytes(tf.io.encode_png(pixels).numpy())
    predict(tmp_path / "images", tmp_path / "b.csv", task="image_classification")
    rows = read(tmp_path / "b.csv")
    assert [Path(row["image"]).name for row in rows] == ["1.png", "2.png", "3.PNG"]
    assert {row["label"] for row in rows} <= {"a", "b"}
    with pytest.raises(FileNotFoundError, match="images: not a file"):
        predict(tmp_path / "images", tmp_path / "c.csv")
