"""Trains a cross-encoder on XQuAD with `kt.fit` and measures how it ranks BM25's candidates.

    python benchmarks/reranking.py MINILM DATA/xquad/xquad.en.json.gz
        > benchmarks/results/reranking.txt

MINILM is a BERT-like folder; the model gets a new head. 40 % of the paragraphs are held out, as in
recipes/embedding.py. Each question comes with its paragraph and the best others by BM25: 3 in
training, 9 held out. The figures measure the order within these: by BM25, by the reranker, and by
both, added as a `Searcher` adds them with `first_stage_weight=1`.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import keras_transformers.quiet  # before Keras, which loads TensorFlow

import keras
import numpy as np

import keras_transformers as kt
from keras_transformers.data.text import TextPairFiles, TextPairs
from keras_transformers.evaluation import bm25_similarities, retrieval_scores

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


def words(rows: Rows) -> list[float]:
    """Returns BM25's scores of rows, over all their documents."""
    queries, documents = (list(dict.fromkeys(rows[name])) for name in ("text", "document"))
    scores = bm25_similarities(queries, documents)
    places = [{x: i for i, x in enumerate(texts)} for texts in (queries, documents)]
    return [
        float(scores[places[0][query], places[1][document]])
        for query, document in zip(rows["text"], rows["document"], strict=True)
    ]


def by_question(rows: Rows, values: Sequence[float]) -> dict[str, list[float]]:
    """Returns the values of each question's documents."""
    grouped: dict[str, list[float]] = {}
    for text, value in zip(rows["text"], values, strict=True):
        grouped.setdefault(text, []).append(value)
    return grouped


def figures(rows: Rows, *scores: Sequence[float]) -> str:
    """Returns the figures of scores, which are added after scaling those of each question."""
    relevant, sums = by_question(rows, rows["label"]), []
    for of_kinds in zip(*(by_question(rows, each).values() for each in scores), strict=True):
        scaled = [(values - np.mean(values)) / (np.std(values) or 1) for values in of_kinds]
        sums.append(np.sum(scaled, axis=0))
    width = max(map(len, sums))
    found = retrieval_scores(
        [np.pad(x, (0, width - len(x)), constant_values=-np.inf) for x in sums],
        [set(np.flatnonzero(labels)) for labels in relevant.values()],
    )
    return ", ".join(f"{x} {found[x]:.4f}" for x in ("mrr_at_10", "ndcg_at_10"))


def main() -> None:
    """Prints rows for each seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weights")
    parser.add_argument("data", type=Path)
    parser.add_argument("--save", type=Path, help="a folder for the last reranker")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = parser.parse_args()
    files = TextPairFiles(train_file=(options.data,), squad=True, test_fraction=HELD_OUT)
    train, dev, test = files.read()
    if test is None:
        raise SystemExit(f"{options.data}: no paragraph is held out")
    held_out = candidates(test, 9)
    by_words = words(held_out)

    def show(name: str, *scores: Sequence[float]) -> None:
        count = len(set(held_out["text"]))
        print(f"| {name} | {count:,} | {figures(held_out, *scores)} |", flush=True)

    print("| order by | questions | figures |\n|---|--:|---|")
    show("BM25", by_words)
    for seed in options.seeds:
        keras.utils.set_random_seed(seed)
        rerank = kt.load(options.weights, pipeline="reranking", max_sequence_length=LENGTH)
        kt.fit(rerank, candidates(train, 3), validation=candidates(dev, 9), epochs=EPOCHS,
               learning_rate=1e-4, seed=seed, quiet=True)  # fmt: skip
        scores = kt.predict(rerank, held_out, quiet=True)["score"]
        show(f"MiniLM, seed {seed}", scores)
        show(f"MiniLM, seed {seed} + BM25", scores, by_words)
    if options.save:
        rerank.save(options.save)


if __name__ == "__main__":
    main()
