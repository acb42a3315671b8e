"""Weights labels, for data in which some labels are rare."""

import collections
import dataclasses
import math
from collections.abc import Sequence

from keras_transformers.data.text.examples import Examples

__all__ = ["LabelWeights"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelWeights:
    """Deprecated since 1.1: use `ClassWeighting`. The option that weights labels."""

    label_weights: tuple[str, ...] = ()  # deprecated since 1.1: use --class-weight

    def weights_of(self, train: Examples, labels: Sequence[str]) -> dict[str, float] | None:
        """Returns the weight of each label for `TextBatches`; None if all are equal.

        "balanced" weights each label by the number of examples that it would have if all labels had
        equally many, divided by its actual number. The mean weight of an example is 1
        (scikit-learn's `class_weight`).

        Args:
            train: the training examples, with labels.
            labels: all labels.

        Raises:
            ValueError: the option names an unknown label or one twice, or a weight is not a number
                above 0.

        Example:
            >>> train = Examples(["a", "b", "c", "d"], None, ["no", "no", "no", "yes"])
            >>> LabelWeights(label_weights=("balanced",)).weights_of(train, ["no", "yes"])
            {'no': 0.6666666666666666, 'yes': 2.0}
            >>> LabelWeights(label_weights=("yes=3",)).weights_of(train, ["no", "yes"])
            {'no': 1.0, 'yes': 3.0}
        """
        if not self.label_weights:
            return None
        if train.labels is None:
            raise ValueError(
                f"{train.source}: label_weights={self.label_weights[0]!r} for examples without "
                "labels"
            )
        if self.label_weights == ("balanced",):
            counts = collections.Counter(train.labels)
            share = len(train) / len(labels)
            return {label: share / max(counts[label], 1) for label in labels}
        by_label: dict[str, float] = {}
        for pair in self.label_weights:
            label, _, number = pair.rpartition("=")
            weight = _number(number)
            if label not in labels or label in by_label or not 0 < weight < math.inf:
                raise ValueError(
                    f"label_weights={pair!r}: pass balanced alone, or label=weight, each label "
                    f"once and each weight above 0; the labels are {', '.join(labels)}"
                )
            by_label[label] = weight
        return {label: by_label.get(label, 1.0) for label in labels}


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
