"""Compares confidence with accuracy: expected calibration error, reliability and coverage.

Guo et al. 2017, https://arxiv.org/abs/1706.04599, section 2. For coverage, El-Yaniv & Wiener 2010,
https://jmlr.org/papers/v11/el-yaniv10a.html.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from keras_transformers.evaluation.reports.pictures import reliability_picture
from keras_transformers.evaluation.reports.report import ReportTable
from keras_transformers.evaluation.temperature import log_loss
from keras_transformers.inspection.svg import Picture

__all__ = ["Calibration"]

_NUM_BINS = 15  # as in the paper
_FAR = 0.05  # a difference of confidence and accuracy that is worth a sentence
_LIMITS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)  # of the table of coverage


class Confidences(NamedTuple):
    """How sure answers are, and whether they are right.

    Attributes:
        of_answer: the probability of each answer (answers,).
        is_right: whether it is right (answers,).
        of_right: the probability of what is right (answers,).
    """

    of_answer: np.ndarray
    is_right: np.ndarray
    of_right: np.ndarray


class ConfidencePart:
    """The part of a report that says how far the answers' probabilities can be relied on.

    Args:
        measure: takes what divides the logits again, 1 for the probabilities as they are.
        temperature: the pipeline's, so that `measure(1 / temperature)` is as if it had none.
        selection: for answers that are withheld.

    Attributes:
        figures: calibration_error, log_loss and those of `selection`.
        findings: sentences.
        tables: reliability, coverage and, with a temperature, temperature.
        drawings: reliability.
    """

    def __init__(
        self,
        measure: Callable[[float], Confidences],
        temperature: float,
        selection: "Selection",
    ) -> None:
        now = measure(1.0)
        calibration = Calibration(now.of_answer, now.is_right)
        loss = log_loss(now.of_right)
        self.figures = {
            "calibration_error": calibration.error,
            "log_loss": loss,
            **selection.figures,
        }
        self.findings = [*calibration.findings(), *selection.findings]
        self.tables = {"reliability": calibration.table(), "coverage": selection.table}
        self.drawings = {"reliability": calibration.picture}
        if temperature != 1.0:
            before = measure(1 / temperature)
            error = Calibration(before.of_answer, before.is_right).error
            loss_before = log_loss(before.of_right)
            self.findings.append(
                f"With the temperature {temperature:.4f}, the expected calibration error is "
                f"{calibration.error:.4f} instead of {error:.4f}, the log-loss {loss:.4f} instead "
                f"of {loss_before:.4f}."
            )
            self.tables["temperature"] = ReportTable(
                "Before and after dividing the logits by the temperature",
                ("temperature", "calibration error", "log-loss"),
                [("1", error, loss_before), (f"{temperature:.4f}", calibration.error, loss)],
            )


class Selection:
    """What it costs, and brings, to withhold the answers of low confidence.

    Args:
        confidences: the probability of each answer (answers,).
        is_right: whether it is right (answers,).
        abstain_below: the confidence below which an answer is withheld; None answers everything.
        figure: what the share of right answers is called.
        noun: what is answered.

    Attributes:
        figures: with `abstain_below`, coverage, the share of answers that are not withheld, and
            selective_<figure>, the share of right ones among them, NaN if there are none.
        findings: a sentence, with `abstain_below`.
        table: both for several limits.
    """

    def __init__(
        self,
        confidences: np.ndarray,
        is_right: np.ndarray,
        abstain_below: float | None,
        *,
        figure: str = "accuracy",
        noun: str = "examples",
    ) -> None:
        self._confidences = np.asarray(confidences, np.float64)
        self._is_right = np.asarray(is_right, bool)
        self.figures: Mapping[str, float] = {}
        self.findings: list[str] = []
        if abstain_below is not None:
            coverage, share = self._at(abstain_below)
            self.figures = {"coverage": coverage, f"selective_{figure}": share}
            withheld = len(self._is_right) - round(coverage * len(self._is_right))
            on_others = "" if np.isnan(share) else f"{share:.4f} on the others, "
            self.findings = [
                f"Abstains from {withheld} of {len(self._is_right)} {noun}, with a probability "
                f"below {abstain_below:g}; {figure.replace('_', ' ')} {on_others}"
                f"{self._is_right.mean():.4f} on all."
            ]
        limits = sorted({*_LIMITS, *([] if abstain_below is None else [abstain_below])})
        rows = []
        for limit in limits:
            coverage, share = self._at(limit)
            rows.append((f"{limit:g}", coverage, share if coverage else None))
        columns = ("abstain below", "coverage", f"{figure.replace('_', ' ')} of the answered")
        self.table = ReportTable("Share of answers, and of right ones among them", columns, rows)

    def _at(self, limit: float) -> tuple[float, float]:
        is_answered = ~(self._confidences < limit)
        right = self._is_right[is_answered]
        return float(is_answered.mean()), float(right.mean()) if len(right) else float("nan")


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
