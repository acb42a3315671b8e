"""Makes files for the recipe `multiple_choice`: which of four sentences comes next?

    python benchmarks/training/following_sentences.py DATA OUTPUT
    python recipes/multiple_choice.py --train-file OUTPUT/train.jsonl.gz \
        --dev-file OUTPUT/dev.jsonl.gz --weights MINILM --epochs 3 --learning-rate 5e-5

DATA contains nltk/brown.zip. The text is a sentence of Brown; the choices are the sentence that
follows and three others from the same document, so that the topic does not give it away. Every
fifth document is for dev, the others for training. It prints the accuracy of a rule on dev: choose
the sentence that shares most words with the text, the first one in a tie. Chance is 0.25.
"""

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformers.data.pretraining import read_text

SHORTEST, NEAR, SEED = 20, 3, 0  # characters of a sentence; sentences around the text; of the draw


def main() -> None:
    """Writes train.jsonl.gz and dev.jsonl.gz."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    options.output.mkdir(parents=True)
    documents = read_text(options.data, corpora=["brown"])
    for name, chosen in (
        ("train", [d for i, d in enumerate(documents) if i % 5]),
        ("dev", documents[::5]),
    ):
        rows = [row for document in chosen for row in questions(list(document))]
        with gzip.open(options.output / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        right = np.mean([rule(row) == row["label"] for row in rows])
        print(f"{name}: {len(chosen)} documents, {len(rows)} questions, rule {right:.3f}")


def questions(document: list[str]) -> list[dict[str, Any]]:
    """Returns a question about every third sentence of a document, as JSON values."""
    random = np.random.default_rng([SEED, len(document)])
    rows = []
    for place in range(0, len(document) - 1, 3):
        others = [
            sentence
            for i, sentence in enumerate(document)
            if abs(i - place) > NEAR and len(sentence) >= SHORTEST
        ]
        text, right = document[place : place + 2]
        if len(others) < 3 or min(len(text), len(right)) < SHORTEST or right in others:
            continue
        choices = [others[i] for i in random.choice(len(others), 3, replace=False)]
        label = int(random.integers(4))
        choices.insert(label, right)
        rows.append({"text": text, "choices": choices, "label": label})
    return rows


def rule(row: dict[str, Any]) -> int:
    """Returns the choice that shares most words with the text."""
    words = set(row["text"].lower().split())
    return int(np.argmax([len(words & set(each.lower().split())) for each in row["choices"]]))


if __name__ == "__main__":
    main()
