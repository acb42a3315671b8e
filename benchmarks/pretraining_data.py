"""BERT's pretraining data: how fast examples are made and read, against what training consumes.

    python benchmarks/pretraining_data.py VOCAB.txt TEXT [TEXT ...]

All figures are CPU time on one thread, so per core. First the text becomes shards, with each token
once (dupe factor 1). Then the shards are read in batches of 32, as stored and masked anew, the best
of three passes. Training is bert_tiny with both heads and AdamW, the best of five batches, or with
--training a rate that you measured elsewhere. The ratios say how many such trainings one core
feeds.
"""

import os

os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import keras

import keras_transformers as kt
from keras_transformers.data.pretraining.batches import (
    Masker,
    PretrainingOptions,
    make_pretraining_data,
    pretraining_dataset,
)
from keras_transformers.tokenizers import WordPieceTokenizer

BATCH_SIZE = 32


def seconds(function: Callable[[], object]) -> float:
    """Returns the CPU time of one call, over all threads."""
    started = time.process_time()
    function()
    return time.process_time() - started


def training_rate(shards: Path, vocabulary_size: int, max_sequence_length: int) -> float:
    """Returns how many examples bert_tiny trains on per second of CPU time."""
    encoder = kt.create_model(
        "bert_tiny", vocabulary_size=vocabulary_size, max_sequence_length=max_sequence_length
    )
    model = kt.heads.pretrainer(encoder)
    losses = {
        name: keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="mean_with_sample_weight"
        )
        for name in ("mask_logits", "next_sentence_logits")
    }
    model.compile(keras.optimizers.AdamW(1e-4), loss=losses, jit_compile=False)
    batches = list(pretraining_dataset(shards, batch_size=BATCH_SIZE, repeat=True).take(6))
    model.train_on_batch(*batches[0])
    best = min(seconds(lambda batch=batch: model.train_on_batch(*batch)) for batch in batches[1:])
    return BATCH_SIZE / best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("vocabulary", type=Path)
    parser.add_argument("texts", type=Path, nargs="+", help="one sentence per line")
    parser.add_argument("--text-format", choices=["lines", "prose", "wikitext"], default="lines")
    parser.add_argument("--max-sequence-length", type=int, default=128)
    parser.add_argument("--max-predictions", type=int, default=20)
    parser.add_argument("--training", type=float, help="examples per second; measured by default")
    parsed = parser.parse_args()
    tokenizer = WordPieceTokenizer(parsed.vocabulary)
    tokenizer.tokenize(["warm up"])
    rates: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for whole_words in (False, True):
            options = PretrainingOptions(
                max_sequence_length=parsed.max_sequence_length,
                max_predictions=parsed.max_predictions,
                whole_words=whole_words,
                dupe_factor=1,
                num_shards=1,
            )
            shards = Path(folder, str(whole_words))
            started = time.process_time()
            report = make_pretraining_data(
                parsed.texts, shards, tokenizer, options, text_format=parsed.text_format
            )
            name = "made" + ", whole words" * whole_words
            rates[name] = report.num_examples / (time.process_time() - started)
        print(report)
        for name, masker in (
            ("read", None),
            ("read, masked anew", Masker(tokenizer.vocabulary)),
            ("read, masked anew, whole words", Masker(tokenizer.vocabulary, whole_words=True)),
        ):
            dataset = pretraining_dataset(shards, batch_size=BATCH_SIZE, masker=masker)
            best = min(seconds(lambda dataset=dataset: list(dataset)) for _ in range(3))
            rates[name] = report.num_examples / best
        training = parsed.training or training_rate(
            shards, tokenizer.vocabulary_size, parsed.max_sequence_length
        )
    print(f"training takes {training:,.0f} examples per second")
    for name, rate in rates.items():
        print(f"{name}: {rate:,.0f} examples per second and core, {rate / training:.1f} trainings")


if __name__ == "__main__":
    main()
