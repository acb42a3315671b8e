"""Says before a training how often each label occurs, and which are too rare to learn."""

import logging
from collections.abc import Mapping

__all__: list[str] = []

_FEW = 10  # examples, below which a class is hardly learned
_NUM_SHOWN = 20

logger = logging.getLogger(__name__)


def report_classes(counts: Mapping[str, int], *, quiet: bool = False) -> None:
    """Prints how often each label occurs in the training data, and warns of rare ones.

    Args:
        counts: label -> its number of examples, or of words.
        quiet: whether to print only the warning.
    """
    if not quiet:
        print(f"labels in the training data: {_shown(counts)}", flush=True)
    if rare := {label: count for label, count in counts.items() if count < _FEW}:
        logger.warning(
            "%d of %d labels occur fewer than %d times in the training data: %s; add examples of "
            "them, merge them into others, or weigh them with class_weight='balanced'",
            *(len(rare), len(counts), _FEW, _shown(rare)),
        )


def _shown(counts: Mapping[str, int]) -> str:
    """Returns the counts, the highest first, and how many more there are."""
    order = sorted(counts, key=lambda label: -counts[label])
    more = len(order) - _NUM_SHOWN
    text = ", ".join(f"{label} {counts[label]}" for label in order[:_NUM_SHOWN])
    return f"{text} and {more} more" if more > 0 else text
