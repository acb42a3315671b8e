"""Trains a model of natural language inference with `kt.fit`, and uses it without labelled texts.

    python benchmarks/zero_shot.py MINILM DATA
    python benchmarks/zero_shot.py MPNET DATA --epochs 1 --templates 1

MINILM and MPNET are folders of encoders, DATA is that of public data. The model learns SICK's three
classes and RTE 1 to 3, whose texts that do not entail the sentence count as neutral; a tenth of the
pairs is held out. Then it classifies SST-2's sentences, for each template: a sentence says that the
review is positive, or negative. The majority is the share of the more frequent label. SST-2 trains
nothing.
"""

import argparse
import gzip
import xml.etree.ElementTree
import zipfile
from collections.abc import Iterator
from pathlib import Path

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras

import keras_transformers as kt

NLI = ("contradiction", "neutral", "entailment")
LABELS = ("negative", "positive")
TEMPLATES = ("This example is {}.", "This film review is {}.", "The film is {}.")
WORDS = (LABELS, ("bad", "good"), ("terrible", "great"))
LENGTH = 128
Row = tuple[str, str, str]


def sick(path: Path) -> Iterator[Row]:
    """Yields pairs of sentences with their classes."""
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    for line in lines[1:]:
        _, text, text_b, _, label = line.split("\t")
        yield text, text_b, label.lower()


def rte(path: Path) -> Iterator[Row]:
    """Yields the pairs of the three challenges."""
    with zipfile.ZipFile(path) as archive:
        for name in sorted(name for name in archive.namelist() if name.endswith(".xml")):
            for pair in xml.etree.ElementTree.fromstring(archive.read(name)):
                entailed = {"TRUE", "YES"} & set(pair.attrib.values())
                text, text_b = ((pair.findtext(tag) or "").strip() for tag in "th")
                yield text, text_b, "entailment" if entailed else "neutral"


def table(rows: list[Row]) -> dict[str, list[str]]:
    """Returns the columns of rows."""
    return dict(zip(("text", "text_b", "label"), map(list, zip(*rows, strict=True)), strict=True))


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("data", type=Path)
    parser.add_argument("--save", type=Path, help="a new folder for the model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=3)
    most = len(TEMPLATES)
    parser.add_argument(
        "--templates", type=int, default=most, choices=range(1, most + 1), help="how many to try"
    )
    options = parser.parse_args()
    if options.save and options.save.exists():
        parser.error(f"--save: {options.save} exists: name a new folder")
    pairs = [*sick(options.data / "sick/SICK_train.txt.gz"), *rte(options.data / "nltk/rte.zip")]
    held_out = pairs[::10]
    train = [pair for place, pair in enumerate(pairs) if place % 10]
    keras.utils.set_random_seed(options.seed)
    infer = kt.load(
        options.model,
        pipeline="classification",
        labels=list(NLI),
        pair=True,
        max_sequence_length=LENGTH,
    )
    training = {"epochs": options.epochs, "learning_rate": 5e-5, "seed": options.seed}
    kt.fit(infer, table(train), **training, quiet=True)
    scores = kt.evaluate(infer, table(held_out))
    print(f"{len(train):,} pairs train, {len(held_out):,} are held out, epochs: {options.epochs}")
    print(f"held out: accuracy {scores['accuracy']:.3f}, majority {scores['majority']:.3f}\n")
    if options.save:
        infer.save(options.save)
    lines = gzip.decompress((options.data / "sst2/dev.tsv.gz").read_bytes()).decode().splitlines()
    texts, labels = zip(*(line.split("\t") for line in lines), strict=True)
    right = [int(label) for label in labels]
    classify = kt.pipelines.ZeroShotClassifier(infer.model, infer.tokenizer, infer.labels)
    print("| template | labels | SST-2, accuracy |\n|---|---|--:|")
    print(f"| | majority | {max(right.count(0), right.count(1)) / len(right):.3f} |")
    for template in TEMPLATES[: options.templates]:
        for words in WORDS:
            answers = classify.with_options(hypothesis_template=template)(
                list(texts), [list(words)] * len(texts)
            )
            found = [answer.label_index for answer in answers]
            accuracy = sum(a == b for a, b in zip(found, right, strict=True)) / len(right)
            print(f"| {template} | {', '.join(words)} | {accuracy:.3f} |", flush=True)


if __name__ == "__main__":
    main()
