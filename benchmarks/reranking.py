"""Trains a cross-encoder on XQuAD with `kt.fit` and measures how it ranks BM25's candidates.

    python benchmarks/reranking.py MINILM DATA/xquad/xquad.en.json.gz
        > benchmarks/results/reranking.txt

MINILM is a BERT-like folder; the model gets a new head. 40 % of the paragraphs are held out, as in
recipes/embedding.py. Each question comes with its paragraph and the best others by BM25: 3 in
training, 9 held out. The figures measure the order within these.
"""

import argparse
from pathlib import Path

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras
import numpy as np

import keras_transformers as kt
from keras_transformers.data.text import TextPairFiles, TextPairs
from keras_transformers.evaluation import bm25_similarities

HELD_OUT, EPOCHS, LENGTH = 0.4, 2, 320
Rows = dict[str, list]


def candidates(pairs: TextPairs, others: int) -> Rows:
    """Returns each question with its paragraph and a number of others."""
    documents = pairs.documents()
    queries = pairs.queries()
    best = np.argsort(-bm25_similarities(list(queries), documents), axis=1, kind="stable")
    rows: Rows = {"text": [], "document": [], "label": []}
    for (query, partners), order in zip(queries.items(), best, strict=True):
        wrong = [documents[i] for i in order if documents[i] not in partners][:others]
        for document in [*partners, *wrong]:
            rows["text"].append(query)
            rows["document"].append(document)
            rows["label"].append(float(document in partners))
    return rows


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
    held_out = candidates(test, 9)
    print("| model | questions | figures |\n|---|--:|---|")
    for seed in options.seeds:
        keras.utils.set_random_seed(seed)
        rerank = kt.load(options.weights, pipeline="reranking", max_sequence_length=LENGTH)
        kt.fit(rerank, candidates(train, 3), validation=candidates(dev, 9), epochs=EPOCHS,
               learning_rate=1e-4, seed=seed, quiet=True)  # fmt: skip
        scores = kt.evaluate(rerank, held_out)
        ours = {x: y for x, y in scores.items() if x in ("mrr_at_10", "ndcg_at_10")}
        theirs = {x: scores[f"{x}_of_bm25"] for x in ours}
        for name, figures in ((f"MiniLM, seed {seed}", ours), ("BM25", theirs)):
            shown = ", ".join(f"{x} {y:.4f}" for x, y in figures.items())
            print(f"| {name} | {len(set(held_out['text'])):,} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
