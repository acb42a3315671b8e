"""Measures what `calibrate=True` does to probabilities, and what abstaining costs and brings.

    python benchmarks/training/calibration.py DATA > benchmarks/results/calibration.txt

DATA is the folder of the public data sets. A small BERT with random weights trains with `kt.fit` on
SST-2 (2 classes of equal size) and on a part of the Brown corpus (15 genres of uneven size, three
sentences a text), each with a vocabulary of its training texts. The temperature is fitted to the
validation data, which also chose the epoch; the figures are those of test data that nothing has
seen. Of Brown, no document is in two parts.
"""

import argparse
import gzip
import random
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras
import numpy as np

import keras_transformers as kt
from keras_transformers.evaluation import at_temperature
from keras_transformers.evaluation.reports.classification import classification_report

Columns = tuple[list[str], list[str]]  # texts, labels
Parts = tuple[Columns, Columns, Columns]  # train, validation, test

# The letter of a file's name -> its genre.
GENRES = {
    "a": "news",
    "b": "editorial",
    "c": "reviews",
    "d": "religion",
    "e": "hobbies",
    "f": "lore",
    "g": "belles_lettres",
    "h": "government",
    "j": "learned",
    "k": "fiction",
    "l": "mystery",
    "m": "science_fiction",
    "n": "adventure",
    "p": "romance",
    "r": "humor",
}
LIMITS = (0.3, 0.5, 0.7, 0.9)


def sst2(data: Path) -> Parts:
    """SST-2: 5,900 sentences, 1,000 to validate; the dev set is the test set."""

    def read(name: str) -> Columns:
        with gzip.open(data / "sst2" / name, "rt", encoding="utf-8") as lines:
            rows = [line.rstrip("\n").split("\t") for line in lines]
        return [row[0] for row in rows], [("negative", "positive")[int(row[1])] for row in rows]

    texts, labels = read("train.tsv.gz")
    return (
        (texts[1000:], labels[1000:]),
        (texts[:1000], labels[:1000]),
        read("dev.tsv.gz"),
    )


def brown(data: Path) -> Parts:
    """Brown's genres: 5,000 texts, 1,500 to validate, 2,500 to test, from different documents."""
    draw = random.Random(0)
    parts: list[list[tuple[str, str]]] = [[], [], []]
    with zipfile.ZipFile(data / "nltk/brown.zip") as archive:
        names = sorted(x for x in archive.namelist() if x[:-2] in {f"brown/c{g}" for g in GENRES})
        for genre in GENRES.values():
            documents = [name for name in names if GENRES[name[-3]] == genre]
            draw.shuffle(documents)
            ends = round(0.5 * len(documents)), round(0.7 * len(documents))
            for place, name in enumerate(documents):
                part = parts[sum(place >= end for end in ends)]
                part += [(text, genre) for text in _texts(archive.read(name).decode("latin1"))]
    chosen = []
    for rows, count in zip(parts, (5000, 1500, 2500), strict=True):
        draw.shuffle(rows)
        texts, labels = map(list, zip(*rows[:count], strict=True))
        chosen.append((texts, labels))
    return tuple(chosen)  # type: ignore[return-value]


def _texts(tagged: str) -> list[str]:
    """Returns three sentences each of a document whose words have tags."""
    lines = [line.split() for line in tagged.splitlines() if line.strip()]
    sentences = [" ".join(word.rpartition("/")[0] for word in words) for words in lines]
    return [" ".join(sentences[i : i + 3]) for i in range(0, len(sentences) - 2, 3)]


def small_classifier(texts: list[str], labels: list[str]) -> Any:
    """Returns a classifier with random weights, and a vocabulary of the texts."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "texts.txt")
        file.write_text("\n".join(texts), "utf-8")
        tokenizer = kt.tokenizers.WordPieceTokenizer.train(
            [file], Path(folder, "vocab.txt"), vocabulary_size=8000
        )
    keras.utils.set_random_seed(0)
    encoder = kt.bert_tiny(
        vocabulary_size=tokenizer.vocabulary_size, max_sequence_length=64, dropout=0.1
    )
    model = kt.heads.classifier(encoder, len(labels))
    return kt.pipelines.TextClassifier(model, tokenizer, labels)


def measure(name: str, parts: Parts, epochs: int) -> None:
    """Trains, and prints what reports on the test data say."""
    train, validation, test = parts
    labels = sorted(set(train[1]))
    classify = small_classifier(train[0], labels)
    start = time.process_time()
    kt.fit(classify, train, validation=validation, epochs=epochs, calibrate=True, quiet=True)
    answers = classify(test[0])
    seconds = time.process_time() - start
    after = np.array([answer.probabilities for answer in answers])
    shares = {"before": at_temperature(after, 1 / classify.temperature), "after": after}
    references = [labels.index(label) for label in test[1]]

    def figures(place: str, limit: float) -> Mapping[str, float]:
        return classification_report(shares[place], references, labels, abstain_below=limit).figures

    counts = [count for _, count in Counter(train[1]).most_common()]
    print(
        f"\n{name}: {len(train[0])} texts to train for {epochs} epochs, {len(validation[0])} to "
        f"validate, {len(test[0])} to test; {len(labels)} classes of {counts[-1]} to {counts[0]} "
        f"training texts\ntemperature {classify.temperature:.4f}; {seconds:.0f} CPU seconds"
    )
    print("\n| | before | after |\n|---|--:|--:|")
    for figure in ("accuracy", "macro_f1", "calibration_error", "log_loss"):
        cells = [f"{figures(place, 0.5)[figure]:.4f}" for place in shares]
        print(f"| {figure.replace('_', ' ')} | {' | '.join(cells)} |")
    for limit in LIMITS:
        found = [figures(place, limit) for place in shares]
        cells = [
            f"{x['coverage']:.4f}: {x['selective_accuracy']:.4f}" if x["coverage"] else "0"
            for x in found
        ]
        print(f"| abstain_below={limit}, coverage: accuracy | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Measures both data sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--epochs", type=int, default=5)
    arguments = parser.parse_args()
    print("# python benchmarks/training/calibration.py DATA")
    print(f"# keras-transformers {kt.__version__}, seed 0, kt.fit's defaults but for the epochs")
    measure("SST-2", sst2(arguments.data), arguments.epochs)
    measure("Brown", brown(arguments.data), arguments.epochs)


if __name__ == "__main__":
    main()
