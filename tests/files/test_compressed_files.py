"""Every reader of text takes compressed files, and refuses damaged ones by name."""

import bz2
import gzip
import io
import json
import lzma
import sys
import zipfile

import pytest

from keras_transformers.data.images.labelled_images import read_idx
from keras_transformers.data.language_models import read_texts
from keras_transformers.data.pretraining.documents import read_documents, write_documents
from keras_transformers.data.tables.reading import file_format, read_objects
from keras_transformers.data.text import (
    glue_file,
    load,
    load_choices,
    load_conll,
    load_glue,
    load_squad,
)
from keras_transformers.data.translation import multi30k_files, read_parallel, read_tsv
from keras_transformers.dependencies.extras import MissingExtraError
from keras_transformers.files import compression, read_lines
from keras_transformers.files.compression import DamagedError, opened
from keras_transformers.tokenizers import WordPieceTokenizer


def zipped(data, *names):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, data)
    return buffer.getvalue()


def zstandard(data):
    return pytest.importorskip("zstandard").compress(data)


COMPRESS = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard,
    ".zip": lambda data: zipped(data, "a"),
}
assert set(COMPRESS) == set(compression.SUFFIXES)


@pytest.fixture(params=COMPRESS)
def packed(request, tmp_path):
    """Writes text under a name with a compression's suffix; returns the path."""

    def write(name, text):
        path = tmp_path / f"{name}{request.param}"
        path.write_bytes(COMPRESS[request.param](text.encode()))
        return path

    return write


def damaged(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    return path


# --- readers ---------------------------------------------------------------------------------

LINE = '{"text": "one", "choices": ["a", "b"], "label": 0}\n'
SQUAD = {"id": "1", "context": "a b", "question": "?"}
SQUAD["answers"] = {"text": ["b"], "answer_start": [2]}
TRIPLES = "a\tb\tc\n"


def trained(path):
    """Returns a tokenizer with a vocabulary that was learned from a file."""
    return WordPieceTokenizer.train(
        [path], path.with_suffix(".vocab"), vocabulary_size=40, min_frequency=1
    )


READERS = {
    "lines": ("a.txt", "one\ntwo\n", lambda path: list(read_lines(path)) == ["one", "two"]),
    "texts": ("a", "one\ntwo\n", lambda path: read_texts([path]) == ["one\ntwo\n"]),
    "documents": ("a.txt", "one\n\ntwo\n", lambda p: list(read_documents(p)) == [["one"], ["two"]]),
    "tsv": ("a.tsv", "text\tlabel\none\tx\n", lambda path: load(path).texts == ["one"]),
    "csv": ("a.csv", "text;label\none;x\n", lambda path: load(path).labels == ["x"]),
    "jsonl": ("a.jsonl", LINE, lambda path: load_choices(path).labels == [0]),
    "conll": ("a.conll", "one B-X\n", lambda path: load_conll(path).words == [["one"]]),
    "squad": ("a.json", json.dumps(SQUAD), lambda p: load_squad(p).answers == [[("b", 2)]]),
    "pairs": ("a.de", "eins\n", lambda path: list(read_parallel(path, path)) == [("eins",) * 2]),
    "read_tsv": ("a", TRIPLES, lambda path: list(read_tsv(path)) == [("a", "b")]),
    "vocabulary": ("a.txt", "one two one two\n", lambda path: "one" in trained(path).vocabulary),
}


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_takes_every_compression(packed, reader):
    name, text, is_right = READERS[reader]
    assert is_right(packed(name, text))


def test_files_are_found_compressed(packed, tmp_path):
    source, target = packed("train.de", "eins\n"), packed("train.en", "one\n")
    assert multi30k_files(tmp_path, "train") == (source, target)
    with pytest.raises(
        FileNotFoundError, match=r"neither .*val\.de\.gz nor .*val\.de exists, nor an"
    ):
        multi30k_files(tmp_path, "val")
    (tmp_path / "SST-2").mkdir()
    row = packed("SST-2/dev.tsv", "sentence\tlabel\na film\t1\nbad\t0\n\n")
    assert glue_file("sst2", tmp_path, "dev") == row
    assert load_glue("sst2", row).labels == ["1", "0"], "with a blank line at its end"


def test_idx_files(packed, tmp_path):
    path = packed("a-idx1-ubyte", "\0\0\x08\x01\0\0\0\x02ab")
    assert read_idx(path, num_axes=1).tolist() == [97, 98]


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_documents_are_written_compressed(tmp_path, suffix):
    path = tmp_path / f"a.txt{suffix}"
    write_documents([["one", "two"], ["three"]], path)
    assert list(read_documents(path)) == [["one", "two"], ["three"]]
    assert path.read_bytes()[:3] != b"one"
    with pytest.raises(ValueError, match=r"\.zst.*choose .gz, .bz2.*.xz"):
        write_documents([["one"]], tmp_path / "a.zst")
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_the_format_of_a_zip_file_is_that_of_its_content(tmp_path):
    path = tmp_path / "archive.zip"
    path.write_bytes(
        zipped(b"text,label\none,x\n", "folder/train.CSV", "__MACOSX/folder/._train.CSV")
    )
    assert file_format(path) == "csv"
    assert load(path).texts == ["one"]
    with pytest.raises(ValueError, match=r"a\.bz2: .*format .*\.parquet"):
        file_format("a.bz2")


# --- damage ----------------------------------------------------------------------------------

RANDOM = "".join(f"{i * 7919 % 104729:x} line\n" for i in range(60_000))


def test_damaged_files_are_named_with_their_line(packed):
    path = damaged(packed("a.txt", RANDOM))
    kind = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "Zstandard", ".zip": "zip"}
    with pytest.raises(ValueError, match=rf"{path.name}:\d+: damaged {kind[path.suffix]} data"):
        list(read_lines(path))
    path.write_bytes(b"not compressed at all")
    with pytest.raises(ValueError, match=rf"{path.name}:1: damaged {kind[path.suffix]} data"):
        list(read_lines(path))


def test_a_whole_file_is_read_to_its_end(packed):
    assert "\n".join([*read_lines(packed("a.txt", RANDOM)), ""]) == RANDOM


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_joined_files_are_read_to_their_end(tmp_path, suffix):
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(COMPRESS[suffix](b"one\n") + COMPRESS[suffix](b"two\n"))
    assert list(read_lines(path)) == ["one", "two"]


@pytest.mark.parametrize("suffix", COMPRESS)
def test_what_unpacks_beyond_measure_is_refused(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(compression, "_ALWAYS_ALLOWED", 2**20)
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(COMPRESS[suffix](bytes(30 * 2**20)))
    message = rf"a\.txt{suffix}: unpacks to more than .* MiB, over 200 times.*unpack it first"
    with opened(path) as file, pytest.raises(DamagedError, match=message):
        file.read()
    with pytest.raises(ValueError, match=rf"a\.txt{suffix}:1: unpacks"):
        list(read_lines(path))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), r"a\.zip: .*0 files .*Unpack"),
        (("a.csv", "b.csv"), r"a\.zip: contains 2 files \(a.csv, b.csv\); expected one"),
    ],
)
def test_zip_files_have_one_file(tmp_path, names, message):
    path = tmp_path / "a.zip"
    path.write_bytes(zipped(b"", *names))
    with pytest.raises(ValueError, match=message):
        list(read_lines(path))


def test_encrypted_zip_files_are_refused(tmp_path):
    data = bytearray(zipped(b"text", "a.txt"))
    data[6] |= 1  # the flag of the file's header
    data[data.index(b"PK\x01\x02") + 8] |= 1  # and of the directory's
    path = tmp_path / "a.zip"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"a\.zip: cannot be unpacked \(.*encrypted"):
        list(read_lines(path))


def test_zip_files_that_point_outside_are_damaged(tmp_path):
    data = bytearray(zipped(b"text", "a.txt"))
    start = data.index(b"PK\x05\x06")
    data[start + 16 : start + 20] = (2**31).to_bytes(4, "little")  # where the directory is
    path = tmp_path / "a.zip"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"a\.zip:1: damaged zip .*fetch"):
        list(read_lines(path))


def test_missing_files_are_named(tmp_path):
    for suffix in ("", *COMPRESS):
        with pytest.raises(FileNotFoundError, match=f"a.txt{suffix}: no such file"):
            list(read_lines(tmp_path / f"a.txt{suffix}"))


# --- Parquet ---------------------------------------------------------------------------------


@pytest.fixture
def parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    writer = pytest.importorskip("pyarrow.parquet")

    def write(name, rows, **options):
        path = tmp_path / name
        buffer = io.BytesIO()
        writer.write_table(pyarrow.Table.from_pylist(rows), buffer, **options)
        suffix = path.suffix if path.suffix in COMPRESS else ""
        path.write_bytes(COMPRESS[suffix](buffer.getvalue()) if suffix else buffer.getvalue())
        return path

    return write


ROWS = [{"text": f"text {i}", "label": i % 2, "length": float(i)} for i in range(2500)]


@pytest.mark.parametrize("name", ["a.parquet", "a.parquet.gz"])
@pytest.mark.parametrize("columns", [{}, {"text_column": "text", "label_column": "label"}])
def test_parquet_has_columns_by_name_and_by_index(parquet, name, columns):
    found = load(parquet(name, ROWS), **columns)
    assert found.texts == [row["text"] for row in ROWS]
    assert found.labels == [str(row["label"]) for row in ROWS]


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        (
            [{"text": "a", "label": 1}, {"text": None, "label": 0}],
            {},
            r"a\.parquet:2: 'text' .*null, .*string",
        ),
        (
            [{"text": "a", "label": 1.0}, {"text": "b", "label": float("nan")}],
            {},
            r"a\.parquet:2: 'label' is nan",
        ),
        ([{"text": "a"}], {}, r"a\.parquet: no column 1 of 0 to 0: text"),
        ([{"text": "a"}], {"label_column": "y"}, r"a\.parquet:1: no key 'y' among \['text'\]"),
        (
            [{"id": i, "text": "a film", "label": i % 2} for i in range(3)],
            {},
            "column 0.*'id': .*text_column='text', label_column='label'",
        ),
    ],
)
def test_bad_parquet_rows(parquet, rows, columns, message):
    with pytest.raises(ValueError, match=message):
        load(parquet("a.parquet", rows), **columns)


def test_damaged_parquet_files_are_named(parquet, tmp_path):
    path = damaged(parquet("a.parquet", ROWS))
    with pytest.raises(ValueError, match=r"a\.parquet: Parquet.*0"):
        load(path)
    path = parquet("b.parquet", ROWS, compression="gzip")
    data = bytearray(path.read_bytes())
    data[100:200] = bytes(100)
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"b\.parquet: Parquet.*\d"):
        load(path)


def test_squad_and_choices_in_parquet(parquet):
    second = SQUAD | {"id": "2", "answers": {"text": [], "answer_start": []}}
    found = load_squad(parquet("a.parquet", [SQUAD, second]))
    assert found.answers == [[("b", 2)], []]
    assert (found.contexts, found.context_of) == (["a b"], [0, 0])
    swag = {"sent1": "It rains.", "sent2": "He", "label": 1}
    swag |= {f"ending{i}": f"does {i}." for i in range(4)}
    choices = load_choices(parquet("b.parquet", [swag]))
    assert (choices.texts, choices.labels) == (["It rains."], [1])
    assert choices.choices == [[f"He does {i}." for i in range(4)]]


@pytest.mark.parametrize(("name", "module"), [("a.parquet", "pyarrow"), ("a.zst", "zstandard")])
def test_what_an_extra_reads_names_the_extra(tmp_path, monkeypatch, name, module):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, f"{module}.parquet", None)
    path = tmp_path / name
    path.write_bytes(b"PAR1")
    read = read_objects(path, format="parquet") if "q" in name else read_lines(path)
    with pytest.raises(MissingExtraError, match=rf"this needs {module}: .*transformers\[data\]"):
        list(read)
