"""Finds documents that do not answer queries, for training data that has only those that do."""

import dataclasses

from keras_transformers.data.text import Examples
from keras_transformers.evaluation.retrieval import bm25_best

__all__: list[str] = []

_MINED = 7  # documents per query, which with a relevant one make a list of `fit`


def with_mined(examples: Examples) -> Examples:
    """Returns the examples; with documents that do not answer their query, if they have none.

    If all scores are 1, each query gets the documents of others that BM25 finds best, with the
    score 0 (Karpukhin et al. 2020, arXiv:2004.04906, section 3.2).

    Raises:
        MissingExtraError: they are needed, and bm25s is not installed.
    """
    if not len(examples) or {float(score) for score in examples.labels or ()} != {1.0}:
        return examples
    answers_to: dict[str, set[str]] = {}
    weight: dict[str, float] = {}
    for row, (query, document) in enumerate(
        zip(examples.texts, examples.texts_b or (), strict=True)
    ):
        answers_to.setdefault(query, set()).add(document)
        weight.setdefault(query, 1.0 if examples.weights is None else examples.weights[row])
    documents = list(dict.fromkeys(examples.texts_b or ()))
    queries, mined = [], []
    for query, best in zip(
        answers_to, bm25_best(list(answers_to), documents, answers_to.values(), _MINED), strict=True
    ):
        queries += [query] * len(best)
        mined += [documents[place] for place in best]
    weights = examples.weights
    return dataclasses.replace(
        examples,
        texts=[*examples.texts, *queries],
        texts_b=[*(examples.texts_b or ()), *mined],
        labels=[*(examples.labels or ()), *["0.0"] * len(mined)],
        weights=None if weights is None else [*weights, *(weight[query] for query in queries)],
    )
