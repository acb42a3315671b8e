"""Trains late interaction on XQuAD with `kt.fit` and measures how it finds paragraphs.

    python benchmarks/late_interaction.py MINILM DATA/xquad/xquad.en.json.gz
        > benchmarks/results/late_interaction.txt

MINILM is all-MiniLM-L6-v2's folder; its encoder gets a new projection to 128 dimensions, ColBERT's
marks, expansion and skipped punctuation. 40 % of the paragraphs are held out, as in
benchmarks/reranking.py, and their questions search all of them. MiniLM's own vectors, which were
trained on a billion pairs, and BM25 search the same paragraphs.
"""

import argparse
import string
import time
from pathlib import Path

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras

import keras_transformers as kt
from keras_transformers.data.text import TextPairFiles, TextPairs

HELD_OUT, EPOCHS, LENGTH = 0.4, 2, 192


def columns(pairs: TextPairs) -> dict[str, list[str]]:
    """Returns pairs as columns for `fit`."""
    return {"text": list(pairs.texts), "text_b": list(pairs.partners)}


def row(name: str, scores: dict[str, float], suffix: str = "") -> None:
    """Prints a row of the table."""
    names = ("recall_at_1", "recall_at_10", "mrr_at_10", "ndcg_at_10")
    shown = " | ".join(f"{scores[f'{figure}{suffix}']:.4f}" for figure in names)
    print(f"| {name} | {shown} |", flush=True)


def main() -> None:
    """Prints a row for each seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weights")
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = parser.parse_args()
    files = TextPairFiles(train_file=(options.data,), squad=True, test_fraction=HELD_OUT)
    train, dev, test = files.read()
    if test is None:
        raise SystemExit(f"{options.data}: no paragraph is held out")
    print("| model | recall@1 | recall@10 | MRR@10 | nDCG@10 |\n|---|--:|--:|--:|--:|")
    own = kt.evaluate(kt.load(options.weights, pipeline="embedding"), columns(test))
    row("BM25", own, "_of_bm25")
    row("MiniLM's embedding", own)
    for seed in options.seeds:
        keras.utils.set_random_seed(seed)
        rank = kt.load(
            options.weights,
            pipeline="late_interaction",
            document_length=LENGTH,
            query_prefix="[unused0] ",
            document_prefix="[unused1] ",
            query_expansion="unattended",
            skipped_tokens=list(string.punctuation),
        )
        row(f"late interaction, new projection, seed {seed}", kt.evaluate(rank, columns(test)))
        start = time.process_time()
        kt.fit(rank, columns(train), validation=columns(dev), epochs=EPOCHS, batch_size=16,
               learning_rate=5e-5, seed=seed, quiet=True)  # fmt: skip
        minutes = (time.process_time() - start) / 60
        name = f"late interaction, trained {minutes:.1f} minutes of a core, seed {seed}"
        row(name, kt.evaluate(rank, columns(test)))


if __name__ == "__main__":
    main()
