"""Tables of texts and labels as people have them: indices, delimiters, encodings, odd labels."""

import csv
import json
import logging

import pytest
from checks import says

from keras_transformers.data.text import LabelledFiles, label_set, load

TEXTS = ["good film", "bad film, so bad", "a film", "so so; good", "bad", "a good one"]
LABELS = ["joy", "anger", "fear", "joy", "anger", "love"]


def write(path, content, encoding="utf-8"):
    path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
    return path


def table(path, rows, *, delimiter, encoding="utf-8"):
    """Writes rows as pandas does."""
    with path.open("w", encoding=encoding, newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)
    return path


def examples():
    return list(zip(TEXTS, LABELS, strict=True))


def numbered(start=0):
    return [(i, *row) for i, row in enumerate(examples(), start)]


# --- columns that hold no texts --------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        # pandas wrote its index.
        (
            "a.csv",
            [("", "text", "label"), *numbered()],
            r"a\.csv:1: column 0.*'': .*text_column='text', label_column='label'",
        ),
        (
            "a.csv",
            [("Unnamed: 0", "tweet", "emotion"), *numbered()],
            "text_column='tweet', label_column='emotion'",
        ),
        ("a.csv", numbered(), r"has no letters: '1, 2, 3' .*text_column=1, label_column=2"),
        ("a.tsv", numbered(17), "text_column=1, label_column=2"),
        (
            "a.tsv",
            [("id", "text", "label"), *numbered()],
            "is named 'id': pass text_column='text', label_column='label'",
        ),
        (
            "a.tsv",
            [("nummer", "satz", "gefühl"), *numbered()],
            "has no letters.*text_column='satz', label_column='gefühl'",
        ),
        (
            "a.csv",
            [("label", "text"), *((label, text) for text, label in examples())],
            "is named 'label': pass text_column='text', label_column='label'",
        ),
        # A text column, but the labels are something else.
        (
            "a.csv",
            [("text", "id", "my label"), *((t, i, n) for i, t, n in numbered())],
            "column 1.*'id': .*text_column='text', label_column='my label'",
        ),
        (
            "a.csv",
            [(f"a{i}", f"a text {i}", "ab"[i % 2]) for i in range(12)],
            "column 1.* 11 rows.*text_column=1, label_column=2",
        ),
    ],
)
def test_a_column_without_texts_or_labels_is_refused(tmp_path, name, rows, message):
    path = table(tmp_path / name, rows, delimiter="\t" if name == "a.tsv" else ",")
    with pytest.raises(ValueError, match=message):
        load(path)


def test_the_columns_that_the_message_proposes_are_read(tmp_path):
    path = table(tmp_path / "a.csv", [("", "text", "label"), *numbered()], delimiter=",")
    found = load(path, text_column="text", label_column="label")
    assert (found.texts, found.labels) == (TEXTS, LABELS)
    path = table(tmp_path / "a.csv", numbered(), delimiter=",")
    found = load(path, text_column=1, label_column=2, header="absent")
    assert (found.texts, found.labels) == (TEXTS, LABELS)


def test_texts_of_numbers_are_read_by_name(tmp_path):
    path = write(tmp_path / "a.csv", "text,label\n1 2,odd\n2 4,even\n")
    with pytest.raises(ValueError, match="has no letters"):
        load(path)
    assert load(path, text_column="text", label_column="label").texts == ["1 2", "2 4"]


@pytest.mark.parametrize("names", [("phrase", "feeling"), ("Satz", "Gefühl"), ("x", "y1")])
def test_a_header_with_unknown_names_is_asked_about(tmp_path, names):
    """Two labels occur once: that of the header, and another."""
    path = table(tmp_path / "a.csv", [names, *examples()], delimiter=",")
    with pytest.raises(ValueError, match=f"a.csv:1:.*label '{names[1]}'.*ro"):
        load(path)
    assert load(path, header="present").labels == LABELS


def test_usual_names_are_a_header(tmp_path):
    path = table(tmp_path / "a.csv", [("tweet", "emotion"), *examples()], delimiter=",")
    assert load(path).texts == TEXTS


def test_a_long_text_with_a_rare_label_is_an_example(tmp_path):
    rows = [("This one is not like the others.", "rare"), *examples()]
    assert load(table(tmp_path / "a.csv", rows, delimiter=",")).labels[0] == "rare"


def test_json_names_its_keys(tmp_path):
    line = {"id": "a1", "text": "a good film", "label": 1, "tags": []}
    path = write(tmp_path / "a.jsonl", json.dumps(line))
    message = "pass the name of a key of id, text, label, tags, such as text_column='text', label"
    with pytest.raises(ValueError, match=message):
        load(path)


# --- labels ----------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["NaN", "null", "Infinity", "-Infinity"])
@pytest.mark.parametrize("key", ["text", "label"])
def test_what_json_has_for_nothing_is_no_text_and_no_label(tmp_path, key, wrong):
    row = json.dumps({"text": "a", "label": "b"})
    value = {"text": '"a"', "label": '"b"'} | {key: wrong}
    path = write(
        tmp_path / "a.jsonl", f'{row}\n{{"text": {value["text"]}, "label": {value["label"]}}}\n'
    )
    said = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}.get(wrong, wrong)
    with pytest.raises(ValueError, match=rf"a\.jsonl:2: '{key}' is {said}, .*remove the row"):
        load(path, text_column="text", label_column="label")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["1", "1.0", "0"], ["1", "1", "0"]),
        (["1.0", "0", "1.0"], ["1", "0", "1"]),
        (["1.0", "0.0", "1.0"], ["1.0", "0.0", "1.0"]),  # one kind
        (["01", "1", "2"], ["1", "1", "2"]),
        (["01", "02", "10"], ["01", "02", "10"]),  # codes
        (["2.5", "1", "1.0"], ["2.5", "1", "1"]),
        (["true", "false", "true"], ["true", "false", "true"]),
    ],
)
@pytest.mark.parametrize("name", ["a.tsv", "a.jsonl"])
def test_one_number_is_one_label(tmp_path, name, labels, expected):
    rows = list(zip("abc", labels, strict=True))
    if name == "a.tsv":
        text = "".join(f"{text}\t{label}\n" for text, label in rows)
    else:
        text = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)
    path = write(tmp_path / name, text)
    columns = {"header": "absent"} if name == "a.tsv" else {}
    columns |= {"text_column": "text", "label_column": "label"} if name == "a.jsonl" else {}
    assert load(path, **columns).labels == expected


@pytest.mark.parametrize("number", ["1", "1.0"])
def test_booleans_beside_numbers_are_refused(tmp_path, number):
    path = write(
        tmp_path / "a.jsonl",
        f'{{"text": "a", "label": {number}}}\n{{"text": "b", "label": true}}\n',
    )
    message = rf"a\.jsonl:2: the label 'true', but line 1 has '{number}': write all as"
    with pytest.raises(ValueError, match=message):
        load(path, text_column="text", label_column="label")


def test_numbers_are_spelled_as_in_training(tmp_path):
    path = write(tmp_path / "dev.tsv", "a\t1.0\nb\t0.0\nc\t1.0\n")
    assert load(path, labels=["0", "1"], header="absent").labels == ["1", "0", "1"]


def test_labels_that_differ_in_case_are_reported(tmp_path, caplog):
    path = write(tmp_path / "a.tsv", "one\tgood\ntwo\tGood\nthree\tgood\nfour\tGood\n")
    assert label_set(load(path)) == ["Good", "good"]
    assert says(caplog.text, "a.tsv:2: ... 'good' and 'Good' ... case")


# --- delimiters, encodings, blank lines, long cells -------------------------------------------


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_of_a_csv_is_found(tmp_path, delimiter):
    """Texts have commas and semicolons in them."""
    path = table(tmp_path / "a.csv", [("text", "label"), *examples()], delimiter=delimiter)
    found = load(path)
    assert (found.texts, found.labels) == (TEXTS, LABELS)


def test_a_delimiter_can_be_stated(tmp_path):
    rows = [("text", "label"), *examples()]
    for name, delimiter, said in [("a.csv", "#", "#"), ("b.txt", "|", "|"), ("c.csv", "\t", "tab")]:
        path = table(tmp_path / name, rows, delimiter=delimiter)
        assert load(path, delimiter=said).texts == TEXTS
    path = write(tmp_path / "d.csv", "sep=#\ntext#label\na#b\n")  # as Excel writes
    assert load(path).texts == ["a"]
    with pytest.raises(ValueError, match="';;': pass.*';',"):
        load(path, delimiter=";;")


def test_a_delimiter_that_is_not_found_is_asked_for(tmp_path):
    path = write(tmp_path / "a.tsv", "text;label\na;b\n")
    message = (
        r"a\.tsv:1: no column 1 of 0 to 0: the first row is one cell, 'text;label'.*delimiter="
    )
    with pytest.raises(ValueError, match=message):
        load(path)


UMLAUTS = [("text", "label"), ("schön", "gut"), ("öde; fade", "schlecht")]


@pytest.mark.parametrize(
    ("encoding", "fits"),
    [
        ("utf-16", "but utf-16"),
        ("utf-16-le", "perhaps utf-16-le"),
        ("utf-16-be", "perhaps utf-16-be"),
        ("cp1252", "perhaps cp1252"),
        ("latin-1", "perhaps cp1252"),
    ],
)
def test_other_encodings_are_named_and_read(tmp_path, encoding, fits):
    path = table(tmp_path / "a.csv", UMLAUTS, delimiter=";", encoding=encoding)
    line = 1 if "16" in encoding else 2
    with pytest.raises(ValueError, match=rf"a\.csv:{line}: not UTF-8 \(.*{fits}: .*encoding="):
        load(path)
    assert load(path, encoding=encoding).texts == ["schön", "öde; fade"]
    files = LabelledFiles(train_file=path, dev_file=path, encoding=encoding)
    assert files.read().labels == ["gut", "schlecht"]


def test_a_wrong_encoding_is_refused(tmp_path):
    path = table(tmp_path / "a.csv", UMLAUTS, delimiter=",")
    with pytest.raises(ValueError, match=r"a\.csv:1:.*utf-16"):
        load(path, encoding="utf-16")
    with pytest.raises(ValueError, match="'utf-99' is unknown; use"):
        load(path, encoding="utf-99")
    cyrillic = write(tmp_path / "b.tsv", "хороший\tда\n", "cp1251")  # noqa: RUF001
    with pytest.raises(ValueError, match="encoding .*cp1251"):
        load(cyrillic)
    damaged = write(tmp_path / "c.tsv", "schön\tda\n".encode() + b"sch\xc3\xb6n \xff\tda\n")
    with pytest.raises(ValueError, match=r"c\.tsv:2: not UTF-8"):
        load(damaged)


@pytest.mark.parametrize(
    ("start", "what"), [(b"PK\x03\x04", "workbook"), (b"\x1f\x8b\x08", "must end in .gz")]
)
def test_files_that_are_no_text_are_named(tmp_path, start, what):
    with pytest.raises(ValueError, match=rf"a\.csv:1: not UTF-8.*{what}"):
        load(write(tmp_path / "a.csv", start + b"\xff\xfe\n\n"))


@pytest.mark.parametrize(
    ("name", "content", "encoding", "said"),
    [
        ("a.jsonl", rb'{"text": "a", "label": "\ude00"}', "utf-8", ":2: 'label' has half of a"),
        (
            "a.jsonl",
            rb'{"\uD83D": 1, "text": "a"}',
            "utf-8",
            r":2: the key '\\ud83d' has half",
        ),
        ("a.jsonl", rb'{"text": ["a", {"b": "\ud83d"}]}', "utf-8", ":2: 'text': 'b' has half of a"),
        ("a.tsv", b"a +2D0-\tx", "utf-7", ":2: half of a surrogate pair"),
        ("a.csv", rb"a \ud83d,x", "unicode_escape", ":2: half of a surrogate pair"),
    ],
)
def test_half_of_a_surrogate_pair_is_named_by_line(tmp_path, name, content, encoding, said):
    first = b'{"text": "b", "label": "\\ud83d\\ude00"}' if name == "a.jsonl" else b"b,c"
    first = first.replace(b",", b"\t") if name == "a.tsv" else first
    path = tmp_path / name
    path.write_bytes(first + b"\n" + content + b"\n")
    columns = {"text_column": "text", "label_column": "label"} if name == "a.jsonl" else {}
    with pytest.raises(ValueError, match=f"^{path}{said}") as caught:
        load(path, encoding=encoding, **columns)
    assert "'surrogatepass'" in str(caught.value)


def test_a_byte_order_mark_is_no_part_of_the_header(tmp_path):
    for encoding in ("utf-8-sig", "utf-16"):
        path = table(tmp_path / "a.csv", [("text", "label"), *examples()], delimiter=",",
                     encoding=encoding)  # fmt: skip
        options = {"encoding": "utf-16"} if encoding == "utf-16" else {}
        assert load(path, text_column="text", label_column="label", **options).texts == TEXTS


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.tsv", "text\tlabel\na\tx\nb\ty\n\n"),
        ("a.tsv", "text\tlabel\na\tx\nb\ty\n\n \n\t\n"),
        ("a.csv", "text,label\na,x\nb,y\n\n\n"),
        ("a.csv", "text;label\r\na;x\r\nb;y\r\n;\r\n;\r\n"),  # Excel's empty rows
        ("a.jsonl", '{"text": "a", "label": "x"}\n\n{"text": "b", "label": "y"}\n\n \n'),
    ],
)
def test_blank_lines_at_the_end_are_no_rows(tmp_path, name, text):
    found = load(write(tmp_path / name, text), text_column="text", label_column="label")
    assert (found.texts, found.labels) == (["a", "b"], ["x", "y"])


@pytest.mark.parametrize(
    ("name", "text"), [("a.tsv", "a\tx\n\nb\ty\n\n"), ("a.csv", "a,x\n\nb,y\n")]
)
def test_empty_rows_inside_are_refused(tmp_path, name, text):
    with pytest.raises(ValueError, match=":2:.*empty.*remove"):
        load(write(tmp_path / name, text), header="absent")


def test_cells_may_be_long(tmp_path):
    limit = csv.field_size_limit()
    long = 'a "quoted" word, ' * 10_000
    assert len(long) > limit
    path = table(tmp_path / "a.csv", [("text", "label"), (long, "x"), ("b", "y")], delimiter=",")
    assert load(path).texts == [long, "b"]
    assert csv.field_size_limit() == limit, "other readers of the process keep their limit"


def test_the_options_of_a_recipe(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    path = table(tmp_path / "a.txt", UMLAUTS, delimiter="|", encoding="utf-16")
    files = LabelledFiles(
        train_file=path, dev_file=path, delimiter="|", encoding="utf-16", text_column="text",
        label_column="label",
    )  # fmt: skip
    assert files.read().train.texts == ["schön", "öde; fade"]
