"""Compares confidence with accuracy: expected calibration error and reliability.

Guo et al. 2017, https://arxiv.org/abs/1706.04599, section 2.
"""

import numpy as np

from keras_transformers.evaluation.reports.pictures import reliability_picture
from keras_transformers.evaluation.reports.report import ReportTable
from keras_transformers.inspection.svg import Picture

__all__ = ["Calibration"]

_NUM_BINS = 15  # as in the paper
_FAR = 0.05  # a difference of confidence and accuracy that is worth a sentence


class Calibration:
    """How often answers of each confidence are right.

    Args:
        confidences: the probability of each answer, 0 to 1 (answers,).
        is_right: whether it is right (answers,).
        num_bins: bins of equal width, without their lower bound.

    Attributes:
        error: the expected calibration error: the mean difference of confidence and accuracy over
            the bins, weighted by their answers, 0 to 1.

    Example:
        >>> round(Calibration(np.array([0.9, 0.9, 0.6]), np.array([True, False, True])).error, 4)
        0.4
    """

    def __init__(
        self, confidences: np.ndarray, is_right: np.ndarray, num_bins: int = _NUM_BINS
    ) -> None:
        confidences = np.asarray(confidences, np.float64)
        is_right = np.asarray(is_right, bool)
        usable = np.isfinite(confidences)
        bins = np.ceil(confidences[usable] * num_bins).astype(int) - 1
        bins = np.clip(bins, 0, num_bins - 1)
        self._num_bins = num_bins
        self._counts = np.bincount(bins, minlength=num_bins)
        least = np.maximum(self._counts, 1)
        self._confidence = np.bincount(bins, confidences[usable], num_bins) / least
        self._accuracy = np.bincount(bins, is_right[usable], num_bins) / least
        self.mean_confidence = float(confidences.mean())
        self.accuracy = float(is_right.mean())
        gaps = np.abs(self._confidence - self._accuracy)
        total = self._counts.sum()
        self.error = float((self._counts * gaps).sum() / total) if total else float("nan")

    def findings(self) -> list[str]:
        """Returns a sentence if the answers are much too sure, or not sure enough."""
        difference = self.mean_confidence - self.accuracy
        if not abs(difference) > _FAR:
            return []
        what = "too high" if difference > 0 else "too low"
        return [
            f"Probabilities are {what}: {self.mean_confidence:.4f} on average for answers of which "
            f"{self.accuracy:.4f} are right (expected calibration error {self.error:.4f})."
        ]

    def table(self) -> ReportTable:
        """Returns the bins that have answers."""
        rows = [
            (f"{i / self._num_bins:.2f} to {(i + 1) / self._num_bins:.2f}", *values)
            for i, values in enumerate(
                zip(
                    self._counts.tolist(),
                    self._confidence.tolist(),
                    self._accuracy.tolist(),
                    strict=True,
                )
            )
            if values[0]
        ]
        columns = ("probability", "answers", "mean probability", "share right")
        return ReportTable("How often answers of each probability are right", columns, rows)

    def picture(self) -> Picture:
        """Draws the reliability diagram."""
        return reliability_picture(self._counts, self._accuracy, self.error)
