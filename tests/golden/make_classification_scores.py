"""Makes classification_scores.json with scikit-learn and SciPy.

    python tests/golden/make_classification_scores.py

Accuracy, F1 and Matthews of the label ids in `LABELS`; Pearson and Spearman of the scores in
`SCORES`. NaN stands as null.
"""

import json
import math
import warnings
from pathlib import Path

import numpy as np

FILE = Path(__file__).parent / "classification_scores.json"
RANDOM = np.random.default_rng(0)

# Predictions, references.
LABELS = [
    ([1, 1, 0, 0], [1, 0, 1, 0]),
    ([1, 1, 1, 1], [1, 0, 1, 0]),  # all predicted the same
    ([0, 1, 0, 1], [1, 1, 1, 1]),
    ([0, 0, 0], [0, 0, 0]),  # no label 1 on either side
    ([1, 1], [1, 1]),
    ([0, 0, 0, 0], [0, 1, 0, 1]),
    ([1], [0]),
    ([0, 1, 2, 2, 1, 0], [0, 1, 2, 1, 1, 2]),
    ([2, 2, 2], [0, 1, 2]),
    ([0, 3, 5, 5], [0, 3, 3, 5]),
    (RANDOM.integers(0, 2, 200).tolist(), RANDOM.integers(0, 2, 200).tolist()),
    (RANDOM.integers(0, 3, 200).tolist(), RANDOM.integers(0, 3, 200).tolist()),
]
SCORES = [
    ([1.0, 2.0, 3.0], [1.0, 2.0, 3.5]),
    ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]),
    ([1.0, 2.0, 2.0, 4.0], [0.0, 0.0, 1.0, 1.0]),  # ties
    ([2.0, 2.0, 2.0], [1.0, 2.0, 3.0]),  # constant
    ([1.0, 2.0], [5.0, 5.0]),
    ([1e-200, 3e-200, 2e-200], [1e200, 2e200, 3e200]),
    ([1e9 + 1, 1e9 + 2, 1e9 + 4], [1.0, 2.0, 3.0]),
    (RANDOM.normal(size=200).tolist(), RANDOM.normal(size=200).tolist()),
    (RANDOM.integers(0, 6, 200).tolist(), RANDOM.integers(0, 6, 200).tolist()),
]


def golden() -> dict:
    """All of the file."""
    from scipy import stats
    from sklearn import metrics

    warnings.simplefilter("ignore")
    labels = [
        {
            "accuracy": metrics.accuracy_score(right, found),
            "f1": metrics.f1_score(right, found) if max(*right, *found) < 2 else None,
            "matthews": metrics.matthews_corrcoef(right, found),
        }
        for found, right in LABELS
    ]
    scores = [
        {
            "pearson": stats.pearsonr(found, right).statistic,
            "spearman": stats.spearmanr(found, right).statistic,
        }
        for found, right in SCORES
    ]
    return {"labels": _plain(labels), "scores": _plain(scores)}


def _plain(rows: list[dict]) -> list[dict]:
    return [
        {k: None if v is None or math.isnan(v) else float(v) for k, v in row.items()}
        for row in rows
    ]


def main() -> None:
    """Writes the file."""
    FILE.write_text(json.dumps(golden(), indent=1) + "\n")


if __name__ == "__main__":
    main()
