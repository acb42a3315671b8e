"""SQuAD's JSON to questions: both versions, splits, and bad files."""

import gzip
import json

import pytest
from checks import says

from keras_transformers.data.text import (
    Answer,
    Questions,
    load_squad,
    split_questions,
    write_predictions,
)


def answer(text, start):
    return {"text": text, "answer_start": start}


def content(*paragraphs, **fields):
    data = [
        {"context": context, "qas": list(qas)} if not isinstance(context, dict) else context
        for context, *qas in paragraphs
    ]
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": data}], **fields}


def question(question_id, *answers, **fields):
    return {"id": question_id, "question": "who?", "answers": list(answers), **fields}


def write(path, value):
    text = value if isinstance(value, str) else json.dumps(value)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["dev.json", "dev.json.gz"])
def test_questions_of_both_versions(tmp_path, name):
    value = content(
        ("a b c", question("1", answer("b", 2), answer("b c", 2)), question("2", answer("a", 0))),
        ("🎬 é", question("3", is_impossible=True, plausible_answers=[answer("é", 2)])),
    )
    questions = load_squad(write(tmp_path / name, value))
    assert questions.ids == ["1", "2", "3"]
    assert (questions.contexts, questions.context_of) == (["a b c", "🎬 é"], [0, 0, 1])
    assert questions.answers == [[Answer("b", 2), Answer("b c", 2)], [Answer("a", 0)], []]
    assert questions.references() == {"1": ["b", "b c"], "2": ["a"], "3": []}


def test_offsets_count_characters(tmp_path):
    context = "🎬🎬 e\u0301te\u0301 中国 end"
    value = content((context, question("1", answer("中国", 9)), question("2", answer("🎬", 1))))
    questions = load_squad(write(tmp_path / "a.json", value))
    assert [answers[0].start for answers in questions.answers] == [9, 1]


def test_answers_that_are_not_at_their_offsets(tmp_path, caplog):
    value = content(
        ("a b c", question("1", answer("b", 1), answer("b", 2)), question("2", answer("x", 0))),
        ("a b c", question("3", answer("", 0)), question("4", answer("c", -1))),
    )
    path = write(tmp_path / "a.json", value)
    questions = load_squad(path)
    starts = [[found.start for found in answers] for answers in questions.answers]
    assert starts == [[None, 2], [None], [None], [None]]
    assert questions.references()["2"] == ["x"]  # still a reference, as in the official script
    assert says(caplog.text, "4 of 5 answers ... answer_start")
    assert "1: 'b' at 1, found ' '" in caplog.text
    assert "4: 'c' at -1, found ''" in caplog.text
    with pytest.raises(ValueError, match=r"(?s)4 of 5 answers.*2: 'x' at 0.*mismatched='skip'"):
        load_squad(path, mismatched="refuse")


def test_questions_without_answers(tmp_path):
    value = content(("a b", {"id": "1", "question": "who?"}))
    questions = load_squad(write(tmp_path / "a.json", value), answered=False)
    assert questions.answers is None
    with pytest.raises(ValueError, match="without answers cannot be scored"):
        questions.references()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{", r"a\.json: not JSON .*line 1"),
        ("[]", "the file: .*'data', a list, .*None"),
        ({"data": []}, r"a\.json: no questions"),
        ({"data": [{"title": "x"}]}, r"data\[0\]: expected 'paragraphs'"),
        (content(({"qas": []},)), r"data\[0\]\.paragraphs\[0\]: expected 'context', a string"),
        (
            content(("a", {"id": 1.5})),
            r"paragraphs\[0\]\.qas\[0\]: .*'id', a string, .*1",
        ),
        (content(("a", {"id": True})), r"\[0\]\.qas\[0\]: .*'id', a string, .*True"),
        (
            content(("a", question("1", answer("a", 0.5)))),
            "expected 'answer_start', a whole number",
        ),
        (
            content(("a", question(1, answer("a", 0)), question("1", answer("a", 0)))),
            r"qas\[1\]: the id '1' occurs twice",
        ),
        (content(("a", {"id": "1", "question": "?"})), r"qas\[0\]: expected 'answers', a list"),
        (
            content(("a", question("1", {"text": "a"}))),
            r"qas\[0\]\.answers\[0\]: expected 'answer_start', a whole number",
        ),
        (content(("a", question("1", answer("a", True)))), "expected 'answer_start'"),
        (
            content(("a", question("1", answer("a", 0)), question("1", answer("a", 0)))),
            r"qas\[1\]: the id '1' occurs twice",
        ),
        (
            content(("a", question("1", answer("a", 0), is_impossible=True))),
            "1 answers, but is_impossible is True",
        ),
        (content(("a", question("1", is_impossible=False))), "0 answers, but is_impossible is Fa"),
        (
            content(("a \ud83c", question("1"))),
            "context .*surrogate.* 2: ",
        ),
    ],
)
def test_bad_files(tmp_path, value, message):
    with pytest.raises(ValueError, match=message):
        load_squad(write(tmp_path / "a.json", value))


def test_numbers_as_pandas_writes_them(tmp_path):
    value = content(("a b c", question(7, answer("b", 2.0)), question(8.0, answer("c", 4))))
    questions = load_squad(write(tmp_path / "a.json", value))
    assert questions.ids == ["7", "8"]
    assert questions.answers == [[Answer("b", 2)], [Answer("c", 4)]]


NFC, NFD = "Zoé", "Zoe\u0301"


@pytest.mark.parametrize(
    ("context", "text", "start", "expected"),
    [
        # Offsets in UTF-16, as JavaScript and Java count: an emoji is two.
        ("🎬🎬 a b, a", "b", 7, Answer("b", 5)),
        ("🎬 a 🎬 a", "a", 8, Answer("a", 6)),
        ("🎬 x🎬y", "🎬y", 4, Answer("🎬y", 3)),
        # Composed differently, with offsets in either form.
        (f"so {NFD} and {NFD} said", NFC, 11, Answer(NFD, 12)),
        (f"so {NFD} and {NFD} said", NFC, 12, Answer(NFD, 12)),
        (f"so {NFC} and {NFC} said", NFD, 12, Answer(NFC, 11)),
        (f"so {NFC} and {NFC} said", NFD, 11, Answer(NFC, 11)),
        (f"so {NFD} 🎬 {NFC} said", NFC, 10, Answer(NFC, 10)),
        (f"🎬 {NFD} {NFD}", NFC, 8, Answer(NFD, 7)),
        ("한국 서울", "\u1109\u1165\u110b\u116e\u11af", 3, Answer("서울", 3)),
        # Not there: half of a character, or elsewhere.
        (f"so {NFC}", "Zoe", 3, Answer("Zoe", None)),
        (f"so {NFD} and {NFD}", NFC, 5, Answer(NFC, None)),
        ("a b", "b", 1, Answer("b", None)),
    ],
)
def test_offsets_and_spellings_of_other_programs(tmp_path, context, text, start, expected):
    value = content((context, question("1", answer(text, start))))
    questions = load_squad(write(tmp_path / "a.json", value))
    assert questions.answers == [[expected]]
    if expected.start is not None:
        end = expected.start + len(expected.text)
        assert context[expected.start : end] == expected.text


def row(row_id, context, *answers):
    texts, starts = zip(*answers, strict=True) if answers else ([], [])
    lists = {"text": list(texts), "answer_start": list(starts)}
    return {"id": row_id, "title": "t", "context": context, "question": "who?", "answers": lists}


ROWS = [row("1", "a b c", ("b", 2), ("b c", 2)), row("2", "x 🎬", ("🎬", 2)), row("3", "a b c")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.jsonl", "\n".join(map(json.dumps, ROWS))),
        ("train.json.gz", "\n".join(map(json.dumps, ROWS)) + "\n\n"),
        ("one_list.json", json.dumps(ROWS, indent=1)),
    ],
)
def test_rows_as_datasets_writes_them(tmp_path, name, text):
    questions = load_squad(write(tmp_path / name, text))
    check_rows(questions)


def check_rows(questions):
    assert questions.ids == ["1", "2", "3"]
    assert questions.questions == ["who?"] * 3
    assert (questions.contexts, questions.context_of) == (["a b c", "x 🎬"], [0, 1, 0])
    assert questions.answers == [[Answer("b", 2), Answer("b c", 2)], [Answer("🎬", 2)], []]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (row(None, "a"), r"a\.json: line 1: .*'id', a string, .*None"),
        (
            row("1", "a") | {"answers": {"text": ["a"], "answer_start": []}},
            r"line 1\.answers: 1 texts, but 0 starts",
        ),
        (row("1", "a", ("a", "0")), r"line 1\.answers\[0\]: expected 'answer_start', a whole"),
        (row("1", "a") | {"answers": {"text": ["a"]}}, r"line 1\.answers: expected 'answer_start'"),
        (row("1", None), "line 1: .*'context', a string, .*None"),
    ],
)
def test_bad_rows(tmp_path, value, message):
    with pytest.raises(ValueError, match=message):
        load_squad(write(tmp_path / "a.json", value))


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_squad(tmp_path / "none.json")


def test_columns_of_other_lengths():
    with pytest.raises(ValueError, match="1 answers.*2 ids"):
        Questions(["1", "2"], ["?", "?"], ["a"], [0, 0], [[]])


def some_questions(num_contexts):
    rows = range(2 * num_contexts)
    return Questions(
        [str(i) for i in rows],
        ["?"] * len(rows),
        [f"context {i}" for i in range(num_contexts)],
        [i // 2 for i in rows],
        [[] for _ in rows],
    )


def test_split_keeps_contexts_apart():
    questions = some_questions(20)
    parts = split_questions(questions, {"train": 0.7, "dev": 0.3}, seed=0)
    assert {name: len(part) for name, part in parts.items()} == {"train": 28, "dev": 12}
    assert sorted(parts["train"].ids + parts["dev"].ids, key=int) == questions.ids
    assert not set(parts["train"].contexts) & set(parts["dev"].contexts)
    for part in parts.values():
        for i, question_id in enumerate(part.ids):
            assert part.contexts[part.context_of[i]] == f"context {int(question_id) // 2}"
    # The order of the file makes no difference, but the seed does.
    backwards = questions.select(reversed(range(40)))
    again = split_questions(backwards, {"train": 0.7, "dev": 0.3}, seed=0)
    assert set(again["dev"].ids) == set(parts["dev"].ids)
    assert set(split_questions(questions, {"a": 0.7, "dev": 0.3}, seed=1)["dev"].ids) != set(
        again["dev"].ids
    )
    with pytest.raises(ValueError, match="dev split is empty: 1 contexts"):
        split_questions(some_questions(1), {"train": 0.9, "dev": 0.1}, seed=0)
    with pytest.raises(ValueError, match="and their sum 1"):
        split_questions(questions, {"train": 0.9, "dev": 0.2}, seed=0)


def test_predictions_are_written_whole(tmp_path):
    path = tmp_path / "predictions.json"
    write_predictions({"1": '中 "é"', "2": ""}, path)
    assert json.loads(path.read_text("utf-8")) == {"1": '中 "é"', "2": ""}
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileExistsError, match="exists: remove it"):
        write_predictions({}, path)
