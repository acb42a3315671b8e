"""Makes entity_scores.json with seqeval (pip install seqeval).

    python tests/golden/make_entity_scores.py

Entities, and scores overall and by type, of the awkward sentences in `CASES` and of random ones.
"""

import json
from pathlib import Path

import numpy as np

FILE = Path(__file__).parent / "entity_scores.json"

# Predicted labels, right labels.
CASES = [
    ("O B-PER I-PER O", "O B-PER I-PER O"),
    ("O I-PER I-PER O", "O B-PER I-PER O"),  # I- after O starts an entity
    ("I-LOC", "B-LOC"),  # and at the start of a sentence
    ("B-PER I-LOC I-LOC", "B-PER B-LOC I-LOC"),  # and after another type
    ("B-PER B-PER I-PER", "B-PER I-PER I-PER"),
    ("B-PER I-PER", "B-PER B-PER"),
    ("I-PER B-PER I-PER", "I-PER B-PER I-PER"),  # IOB1: entities that touch
    ("O O O", "B-ORG I-ORG O"),
    ("B-ORG I-ORG I-ORG", "O O O"),
    ("B-ORG O I-ORG", "B-ORG O B-ORG"),
    ("B-MISC I-MISC O B-MISC", "B-MISC I-MISC I-MISC B-MISC"),
    ("B-LOC", "B-ORG"),
    ("B-X-Y I-X-Y I-X", "B-X-Y I-X-Y B-X"),  # types with hyphens
    ("O", "O"),
    ("B-PER I-PER I-PER I-ORG I-PER", "B-PER I-PER O B-ORG B-PER"),
]
LABELS = [f"{prefix}-{kind}" for kind in ("PER", "LOC", "ORG") for prefix in "BI"] + ["O"] * 3


def random_cases() -> list[tuple[str, str]]:
    """Sentences of random labels, whose predictions are right at three words of four."""
    random = np.random.default_rng(0)
    cases = []
    for length in random.integers(1, 20, 40):
        right = random.choice(LABELS, length)
        wrong = random.choice(LABELS, length)
        found = np.where(random.random(length) < 0.75, right, wrong)
        cases.append((" ".join(found), " ".join(right)))
    return cases


def scores(cases: list[tuple[str, str]]) -> dict:
    """What seqeval makes of them."""
    from seqeval.metrics import classification_report

    found, right = ([case[i].split() for case in cases] for i in (0, 1))
    report = classification_report(right, found, output_dict=True, zero_division=0)
    return {
        name: {key: float(value) for key, value in row.items()}
        for name, row in report.items()
        if name not in ("macro avg", "weighted avg")
    }


def means(cases: list[tuple[str, str]]) -> dict:
    """seqeval's whole report on cases, with its means."""
    from seqeval.metrics import classification_report

    found, right = ([case[i].split() for case in cases] for i in (0, 1))
    report = classification_report(right, found, output_dict=True, zero_division=0)
    return {name: {key: float(x) for key, x in row.items()} for name, row in report.items()}


def golden() -> dict:
    """All of the file."""
    from seqeval.metrics.sequence_labeling import get_entities

    cases = CASES + random_cases()
    return {
        "entities": [[get_entities(side.split()) for side in case] for case in cases],
        "single": [scores([case]) if set("BI") & set("".join(case)) else None for case in cases],
        "all": scores(cases),
        "means": {"cases": cases, "report": means(cases)},
    }


def main() -> None:
    """Writes the file."""
    FILE.write_text(json.dumps(golden(), separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
