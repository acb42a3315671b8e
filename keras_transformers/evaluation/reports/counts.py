"""Precision, recall and F1 of classes, labels or types, from counts."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from keras_transformers.evaluation.reports.report import Cell, ReportTable

__all__: list[str] = []

COLUMNS = ("precision", "recall", "f1", "count", "predicted")
MEANS = tuple(f"{mean}_{name}" for name in COLUMNS[:3] for mean in ("macro", "weighted"))


@dataclasses.dataclass(frozen=True)
class ClassCounts:
    """Counts of classes, each (classes,).

    Attributes:
        hits: how often a class was predicted where it was expected.
        predicted: how often it was predicted.
        expected: how often it was expected.
    """

    hits: np.ndarray
    predicted: np.ndarray
    expected: np.ndarray

    @property
    def precision(self) -> np.ndarray:
        """0 for classes that are never predicted."""
        return self.hits / np.maximum(self.predicted, 1)

    @property
    def recall(self) -> np.ndarray:
        """0 for classes that are never expected."""
        return self.hits / np.maximum(self.expected, 1)

    @property
    def f1(self) -> np.ndarray:
        """The harmonic mean of both."""
        return 2 * self.hits / np.maximum(self.predicted + self.expected, 1)

    @property
    def in_data(self) -> np.ndarray:
        """Whether a class is expected or predicted at all."""
        return self.predicted + self.expected > 0

    def means(self, counted: np.ndarray | None = None) -> dict[str, float]:
        """Returns macro_precision, weighted_f1 and so on; the weights are the expected counts.

        Args:
            counted: which classes count in the macro means; by default those in the data, as in
                scikit-learn.
        """
        counted = self.in_data if counted is None else counted
        total = max(int(self.expected.sum()), 1)
        figures = {}
        for name in COLUMNS[:3]:
            values = getattr(self, name)
            figures[f"macro_{name}"] = float(values[counted].mean()) if counted.any() else 0.0
            figures[f"weighted_{name}"] = float((values * self.expected).sum() / total)
        return figures

    def micro(self) -> dict[str, float]:
        """Returns micro_precision, micro_recall and micro_f1: of all classes together."""
        parts = (self.hits.sum(), self.predicted.sum(), self.expected.sum())
        total = ClassCounts(*(np.array([part]) for part in parts))
        return {f"micro_{name}": float(getattr(total, name)[0]) for name in COLUMNS[:3]}

    def table(
        self, kind: str, names: Sequence[str], means: dict[str, float], title: str
    ) -> ReportTable:
        """Returns a row per class, then the means.

        Args:
            kind: what a row is, such as "class".
            names: the name of each class.
            means: from `means` and possibly `micro`.
            title: of the table.
        """
        columns = [getattr(self, name).tolist() for name in COLUMNS[:3]]
        counts = [self.expected.tolist(), self.predicted.tolist()]
        rows: list[tuple[Cell, ...]] = list(zip(names, *columns, *counts, strict=True))
        totals = (int(self.expected.sum()), int(self.predicted.sum()))
        rows += [
            (f"{mean} mean", *(means[f"{mean}_{name}"] for name in COLUMNS[:3]), *totals)
            for mean in ("micro", "macro", "weighted")
            if f"{mean}_f1" in means
        ]
        return ReportTable(title, (kind, *COLUMNS), rows)


def lowest(values: np.ndarray, names: Sequence[str], chosen: np.ndarray, most: int = 3) -> str:
    """Returns the lowest values with their names, for a sentence.

    >>> lowest(np.array([0.5, 0.25]), ["a", "b"], np.array([True, True]))
    'b 0.2500, a 0.5000'
    """
    order = [i for i in np.argsort(values, kind="stable") if chosen[i]][:most]
    return ", ".join(f"{names[i]} {values[i]:.4f}" for i in order)
