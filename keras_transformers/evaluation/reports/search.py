"""Reports on search: the ranks of relevant documents, and the queries that fail."""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import ArrayLike

from keras_transformers.evaluation.reports.report import Report, ReportTable, counted, on_one_line
from keras_transformers.evaluation.retrieval import retrieval_scores

__all__ = ["search_report"]

_NUM_FAILURES = 10
_RANKS = ((1, "1"), (3, "2 to 3"), (10, "4 to 10"), (100, "11 to 100"))
_FAR = "beyond 100"


def search_report(
    similarities: ArrayLike,
    relevant: Sequence[Collection[int]],
    queries: Sequence[str],
    documents: Sequence[Sequence[str]],
    *,
    title: str = "search",
) -> Report:
    """Reports on how well queries find their documents.

    Args:
        similarities: similarity of each document to each query (queries, documents); -inf where a
            query has fewer documents.
        relevant: the indices of each query's relevant documents, at least one.
        queries: the queries.
        documents: the documents of each query, in the order of its similarities.
        title: the task.

    Returns:
        The figures of `evaluation.retrieval_scores`, and median_rank, that of the best relevant
        document; the tables ranks and failures, the queries whose best relevant document is
        farthest from the first place, with what came first instead.

    Raises:
        ValueError: see `evaluation.retrieval_scores`.

    Example:
        >>> report = search_report([[0.9, 0.1]], [{1}], ["rain"], [["sun", "wet"]])
        >>> report.to_dict()["tables"]["failures"]["rows"]
        [[0, 2, 'rain', 'wet', 'sun']]
    """
    scores = np.asarray(similarities)
    figures = retrieval_scores(scores, relevant)
    order = np.argsort(-scores, axis=1, kind="stable")
    ranks, best = [], []
    for ranked, right in zip(order, relevant, strict=True):
        place = int(np.argmax(np.isin(ranked, list(right))))
        ranks.append(place + 1)
        best.append(int(ranked[place]))
    figures["median_rank"] = float(np.median(ranks))
    failed = int(sum(rank > 1 for rank in ranks))
    beyond = int(sum(rank > _RANKS[2][0] for rank in ranks))
    return Report(
        title=f"{title}: {counted(len(queries), 'query', 'queries')}, "
        f"up to {scores.shape[1]} documents each",
        findings=[
            f"{len(queries) - failed} of {counted(len(queries), 'query', 'queries')} have a "
            f"relevant document first, {beyond} none among the first {_RANKS[2][0]}."
        ],
        figures=figures,
        tables={
            "ranks": _ranks(ranks),
            "failures": _failures(ranks, best, order[:, 0], queries, documents),
        },
    )


def _ranks(ranks: Sequence[int]) -> ReportTable:
    groups = [next((name for most, name in _RANKS if rank <= most), _FAR) for rank in ranks]
    rows = [
        (name, groups.count(name), groups.count(name) / len(ranks))
        for name in (*(name for _, name in _RANKS), _FAR)
        if name in groups
    ]
    return ReportTable(
        "Rank of the best relevant document", ("rank", "queries", "share of queries"), rows
    )


def _failures(
    ranks: Sequence[int],
    best: Sequence[int],
    first: np.ndarray,
    queries: Sequence[str],
    documents: Sequence[Sequence[str]],
) -> ReportTable:
    worst = np.argsort(-np.array(ranks), kind="stable")[:_NUM_FAILURES].tolist()
    rows = [
        (
            i,
            ranks[i],
            on_one_line(queries[i]),
            on_one_line(documents[i][best[i]]),
            on_one_line(documents[i][int(first[i])]),
        )
        for i in worst
        if ranks[i] > 1
    ]
    columns = ("query", "rank", "text", "best relevant document", "first document")
    return ReportTable("Queries that fail", columns, rows)
