"""Compares how fast one core feeds `fit` with how fast a node of accelerators consumes data.

    python benchmarks/input_bandwidth.py VOCAB.txt TEXT SOURCE TARGET
        > benchmarks/results/input_bandwidth.txt

VOCAB.txt is BERT's vocabulary, TEXT the text for its examples in --text-format; SOURCE and TARGET
are the two sides of parallel text, one sentence per line. All figures are CPU time on one thread,
that is, per core; bytes are those of the arrays that `fit` receives. A node's demand comes from
`benchmarks/scaling.py`: eight accelerators at their assumed utilisation that never wait for an
all-reduce, which is an upper bound.
"""

import argparse
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

from scaling import Cluster, Job, assumptions, jobs  # sets one thread, before TensorFlow

# isort: split
import tensorflow as tf

from keras_transformers.data.pretraining import batches as pretraining
from keras_transformers.data.pretraining.documents import TextFormat
from keras_transformers.data.translation import PairBatches
from keras_transformers.files import read_lines
from keras_transformers.tokenizers import SentencePieceTokenizer, WordPieceTokenizer

LENGTH, MASKED, BATCH_SIZE, BATCH_TOKENS, STEPS = 128, 20, 64, 8192, 200


def rate(batches: Iterable[Any], steps: int) -> float:
    """Returns bytes of arrays per second of all threads' CPU time, the best of three epochs.

    A first epoch is not counted, because it includes one-time work.
    """
    remaining = iter(batches)

    def epoch() -> float:
        started, size = time.process_time(), 0
        for batch in itertools.islice(remaining, steps):
            size += sum(array.numpy().nbytes for array in tf.nest.flatten(batch))
        return size / (time.process_time() - started)

    return max([epoch() for _ in range(4)][1:])


def bert_pipelines(
    vocabulary: Path, text: Path, text_format: TextFormat, folder: Path
) -> dict[str, Callable[[], float]]:
    """Returns pipelines that read examples as stored, and that mask them anew."""
    tokenizer = WordPieceTokenizer(vocabulary)
    options = pretraining.PretrainingOptions(
        max_sequence_length=LENGTH, max_predictions=MASKED, dupe_factor=1, num_shards=1
    )
    pretraining.make_pretraining_data(
        [text], folder / "shards", tokenizer, options, text_format=text_format
    )

    def read(masker: Any) -> float:
        batches = pretraining.pretraining_dataset(
            folder / "shards", batch_size=BATCH_SIZE, masker=masker, repeat=True
        )
        return rate(batches, STEPS)

    return {
        "BERT, as the files mask": lambda: read(None),
        "BERT, masked anew": lambda: read(pretraining.Masker(tokenizer.vocabulary)),
    }


def translation_pipelines(
    source: Path, target: Path, folder: Path
) -> dict[str, Callable[[], float]]:
    """Returns batches by length: of pairs tokenized once, and with BPE-dropout in each epoch."""
    tokenizer = SentencePieceTokenizer.train(
        [source, target], folder / "vocabulary.model", vocabulary_size=8000
    )
    pairs = list(zip(read_lines(source), read_lines(target), strict=True))
    # The part of a `pipelines.Translator` that batches need.
    pipeline = SimpleNamespace(
        tokenizer=tokenizer, target_tokenizer=tokenizer, max_sequence_length=256
    )

    def read(bpe_dropout: float) -> float:
        batches = PairBatches(pairs, pipeline, batch_tokens=BATCH_TOKENS, bpe_dropout=bpe_dropout)
        return rate(batches.dataset(), len(batches))

    return {"translation": lambda: read(0.0), "translation, BPE-dropout": lambda: read(0.1)}


def need(job: Job, cluster: Cluster) -> float:
    """Returns the bytes per second for a node whose accelerators never wait."""
    compute = job.flops / cluster.peak_flops / cluster.utilisation
    return cluster.per_node * job.input_bytes / compute


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("vocabulary", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--text-format", choices=get_args(TextFormat), default="lines")
    arguments = parser.parse_args()
    cluster = Cluster(**assumptions())
    needs = {job.name: need(job, cluster) for job in jobs()}
    print("a node of eight accelerators takes")
    for name, size in needs.items():
        print(f"   {name:15}  {size / 1e6:6.2f} MB/s")
    print(f"a core gives (load {os.getloadavg()[0]:.1f}; CPU time, one thread)")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        most = max(value for name, value in needs.items() if name.startswith("bert"))
        berts = bert_pipelines(arguments.vocabulary, arguments.text, arguments.text_format, folder)
        for name, measure in berts.items():
            report(name, measure(), most)
        pairs = translation_pipelines(arguments.source, arguments.target, folder)
        for name, measure in pairs.items():
            report(name, measure(), needs["transformer_big"])


def report(name: str, given: float, needed: float) -> None:
    print(f"   {name:25} {given / 1e6:7.2f} MB/s, so a node needs {needed / given:5.2f} cores")


if __name__ == "__main__":
    main()
