"""Reports on multiple choice: by place of the right choice."""

from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from keras_transformers.evaluation.reports.calibration import (
    ConfidencePart,
    Confidences,
    Selection,
)
from keras_transformers.evaluation.reports.classification import most_confident
from keras_transformers.evaluation.reports.report import Report, ReportTable, counted, on_one_line
from keras_transformers.evaluation.temperature import at_temperature

__all__ = ["choice_report"]

# The figures -> whether higher is better.
CHOICE_FIGURES = MappingProxyType({"accuracy": True, "calibration_error": False, "log_loss": False})
_NUM_MISTAKES = 10


def choice_report(
    probabilities: Sequence[Sequence[float]],
    references: Sequence[int],
    *,
    texts: Sequence[str],
    choices: Sequence[Sequence[str]],
    temperature: float = 1.0,
    abstain_below: float | None = None,
    title: str = "multiple choice",
) -> Report:
    """Reports on choices.

    Args:
        probabilities: the probability of each choice of each text; further ones are ignored.
        references: the index of each text's right choice.
        texts: the texts.
        choices: the choices of each text.
        temperature: that of the probabilities, to compare with those without it.
        abstain_below: the probability below which the pipeline abstains.
        title: the task.

    Returns:
        The figures accuracy, calibration_error, log_loss, and with `abstain_below` coverage and
        selective_accuracy; the tables places, which shows whether the model prefers a place,
        mistakes, reliability, coverage and, with a temperature, temperature; the picture
        reliability.

    Raises:
        ValueError: the numbers differ.

    Example:
        >>> options = {"texts": ["It rains."], "choices": [["Wet.", "Dry."]]}
        >>> choice_report([[0.9, 0.1]], [0], **options).figures["accuracy"]
        1.0
    """
    if not len(probabilities) == len(references) == len(texts) == len(choices):
        raise ValueError(
            f"{len(probabilities)} probabilities, {len(references)} references, {len(texts)} texts "
            f"and {len(choices)} lists of choices: pass one of each per text"
        )
    truth = np.asarray(references)
    rows = [np.asarray(row)[: len(c)] for row, c in zip(probabilities, choices, strict=True)]
    guesses = np.array([int(row.argmax()) for row in rows])
    confidence = np.array([float(row.max()) for row in rows])
    is_right = guesses == truth

    def confidences(temperature: float) -> Confidences:
        shares = rows if temperature == 1.0 else [at_temperature(x, temperature) for x in rows]
        of_right = [float(row[i]) for row, i in zip(shares, references, strict=True)]
        return Confidences(np.array([row.max() for row in shares]), is_right, np.array(of_right))

    selection = Selection(confidence, is_right, abstain_below, noun="texts")
    part = ConfidencePart(confidences, temperature, selection)
    wrong = np.flatnonzero(~is_right)
    worst = wrong[most_confident(confidence[wrong])][:_NUM_MISTAKES].tolist()
    places = [
        (
            str(place),
            int((truth == place).sum()),
            int((guesses == place).sum()),
            float(is_right[truth == place].mean()) if (truth == place).any() else None,
        )
        for place in range(max(map(len, choices)))
    ]
    mistakes = [
        (
            i,
            confidence[i].item(),
            on_one_line(texts[i]),
            on_one_line(choices[i][references[i]]),
            on_one_line(choices[i][guesses[i]]),
        )
        for i in worst
    ]
    columns = ("row", "probability", "text", "right choice", "chosen")
    return Report(
        title=f"{title}: {counted(len(texts), 'text')}",
        findings=[*_findings(is_right, truth, guesses, choices), *part.findings],
        figures={"accuracy": float(is_right.mean()), **part.figures},
        tables={
            "places": ReportTable(
                "By place of the right choice, from 0",
                ("place", "count", "chosen", "accuracy"),
                places,
            ),
            "mistakes": ReportTable("Most confident mistakes", columns, mistakes),
            **part.tables,
        },
        drawings=part.drawings,
    )


def _findings(
    is_right: np.ndarray,
    truth: np.ndarray,
    guesses: np.ndarray,
    choices: Sequence[Sequence[str]],
) -> list[str]:
    chance = float(np.mean([1 / len(row) for row in choices]))
    verb = "is above" if is_right.mean() > chance else "is not above"
    findings = [f"Accuracy {is_right.mean():.4f} {verb} {chance:.4f}, that of chance."]
    unused = [place for place in np.unique(truth).tolist() if place not in guesses]
    if unused:
        places = ", ".join(map(str, unused))
        findings.append(f"Never chosen, though sometimes right: the choice at {places}.")
    return findings
