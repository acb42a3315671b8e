"""Compares pretraining updates of BERT and ModernBERT with 1.9 million parameters.

    TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1 python benchmarks/training/pretraining_step.py
        > benchmarks/results/pretraining_step.txt

An update has 64 rows of random tokens, V = 8,000; BERT predicts 15 % of them, ModernBERT 30 %, with
AdamW and XLA as in recipes/pretrain_bert.py with --static-shapes. Figures are CPU milliseconds on
one thread, medians of updates that take turns.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import numpy as np
import tensorflow as tf

import keras_transformers as kt
from keras_transformers.training import TokenCrossentropy, adamw

ROWS, VOCABULARY, ROUNDS = 64, 8000, 15
MODELS = {"bert_l4_h128": 0.15, "modern_bert_tiny": 0.3}


def update_of(name: str, length: int) -> Callable[[], Any]:
    """Returns a function that makes one update."""
    model = kt.convert.load_pretrainer(
        model=name, vocabulary_size=VOCABULARY, max_sequence_length=length, dropout=0.0
    )
    model.compile(
        optimizer=adamw(1e-3),
        loss={output: TokenCrossentropy() for output in model.output},
        jit_compile=True,
    )
    chosen = round(MODELS[name] * length)
    random = np.random.default_rng(0)
    ids = random.integers(5, VOCABULARY, (ROWS, length), np.int32)
    places = np.sort(random.permuted(np.tile(np.arange(length), (ROWS, 1)), axis=1)[:, :chosen])
    inputs = {
        "token_ids": ids,
        "padding_mask": np.ones_like(ids, bool),
        "segment_ids": np.zeros_like(ids),
        "mask_positions": places.astype(np.int32),
    }
    targets = {
        "mask_logits": np.take_along_axis(ids, places, axis=1),
        "next_sentence_logits": np.zeros(ROWS, np.int32),
    }
    batch = (
        {each: inputs[each] for each in model.input},
        {each: targets[each] for each in model.output},
    )
    model.make_train_function()
    batches = iter(tf.data.Dataset.from_tensors(batch).repeat())
    return lambda: model.train_function(batches)


def main() -> None:
    """Prints a row for each length."""
    print("| tokens per row | " + " | ".join(MODELS) + " | ratio |\n|--:|--:|--:|--:|")
    for length in (64, 128):
        updates = {name: update_of(name, length) for name in MODELS}
        times: dict[str, list[float]] = {name: [] for name in MODELS}
        for turn in range(ROUNDS + 2):  # the first two compile
            for name, update in updates.items():
                start = time.process_time()
                update()
                if turn >= 2:
                    times[name].append(1e3 * (time.process_time() - start))
        bert, modern = (statistics.median(found) for found in times.values())
        print(f"| {length} | {bert:.0f} | {modern:.0f} | {modern / bert:.2f} |", flush=True)


if __name__ == "__main__":
    main()
