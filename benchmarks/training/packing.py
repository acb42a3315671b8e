"""Compares pretraining on packed and padded rows: useful tokens per second of CPU time.

    python benchmarks/training/packing.py DATA

DATA contains nltk/movie_reviews.zip and text/wikitext2.*.txt.gz. `captions` are English lines of
DATA/multi30k, two per document: the shortest text. A step is forward, backward and AdamW of BERT
with both heads (`bert_l4_h256`, V = 8,000, dropout 0.1, float32, one thread) on 8 rows of its
records. A useful token is one that is not padding. The padded and the packed model take turns;
medians.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

for variable in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
import numpy as np  # noqa: E402

import keras_transformers as kt  # noqa: E402
from keras_transformers import files  # noqa: E402
from keras_transformers.data.pretraining import Document, make_sets, read_text  # noqa: E402
from keras_transformers.training import TokenCrossentropy, adamw  # noqa: E402

ROWS, VOCABULARY_SIZE, BATCHES = 8, 8000, 12


def documents(data: Path, corpus: str) -> list[Document]:
    """Returns the documents of a corpus."""
    if corpus != "captions":
        return read_text(data, corpora=[corpus])
    lines = [line for line in files.read_lines(data / "multi30k/train.en.gz") if line][:8000]
    return [[first, second] for first, second in zip(lines[::2], lines[1::2], strict=True)]


def steps(model: Any, batches: Any) -> tuple[Callable[[], None], Iterator[int]]:
    """Returns a training step on the next batch, and the useful tokens of each."""
    model.compile(
        optimizer=adamw(1e-4),
        loss={name: TokenCrossentropy() for name in model.output},
        jit_compile=False,
    )
    cached = [
        tuple({name: value.numpy() for name, value in part.items()} for part in batch)
        for batch in batches.dataset().take(BATCHES)
    ]
    useful = [
        int(np.count_nonzero(batch[0].get("document_ids", batch[0].get("padding_mask"))))
        for batch in cached
    ]
    place = iter(range(10**9))
    return lambda: model.train_on_batch(*cached[next(place) % BATCHES]), useful


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--rounds", type=int, default=24)
    arguments = parser.parse_args()
    print("| text | length | padding | padding, packed | useful tokens/s | packed | ratio |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for corpus, length in (
        ("captions", 128),
        ("movie_reviews", 512),
        ("movie_reviews", 128),
        ("wikitext2", 512),
    ):
        with tempfile.TemporaryDirectory() as folder:
            sets = make_sets(
                documents(arguments.data, corpus),
                folder,
                lengths=[length],
                vocabulary_size=VOCABULARY_SIZE,
                dupe_factor=1,
            )
            print(line(f"{corpus} | {length}", measure(sets, length, arguments.rounds)), flush=True)


def measure(sets: Any, length: int, rounds: int) -> list[tuple[float, float]]:
    """Returns the share of padding and the useful tokens per second, padded and packed."""
    keras.utils.set_random_seed(0)
    shape = {"vocabulary_size": VOCABULARY_SIZE, "max_sequence_length": length}
    padded, unpacked = (kt.heads.pretrainer(kt.create_model("bert_l4_h256", **shape)) for _ in "12")
    models = {False: padded, True: kt.heads.packed(unpacked)}
    runs = []
    for pack, model in models.items():
        batches, _ = sets.batches(length, batch_size=ROWS, steps_per_epoch=BATCHES, pack=pack)
        runs.append(steps(model, batches))
    times: list[list[float]] = [[], []]
    for number in range(rounds + 2):  # the first two trace and warm up
        for (step, _), found in zip(runs, times, strict=True):
            start = time.process_time()
            step()
            if number >= 2:
                found.append(time.process_time() - start)
    found = []
    for (_, useful), seconds in zip(runs, times, strict=True):
        mean = statistics.mean(useful)
        found.append((1 - mean / (ROWS * length), mean / statistics.median(seconds)))
    return found


def line(title: str, figures: list[tuple[float, float]]) -> str:
    """Returns a row of the table."""
    (padding, speed), (packed_padding, packed_speed) = figures
    return (
        f"| {title} | {padding:.1%} | {packed_padding:.1%} | {speed:,.0f} | {packed_speed:,.0f} "
        f"| {packed_speed / speed:.2f} |"
    )


if __name__ == "__main__":
    main()
