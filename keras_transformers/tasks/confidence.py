"""Says how sure the answers of classifiers are: a temperature, and when they abstain."""

import math
import numbers
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

__all__: list[str] = []


@dataclass(frozen=True)
class Confidence:
    """What a pipeline makes of its model's logits.

    Args:
        temperature: divides the logits (Guo et al. 2017, https://arxiv.org/abs/1706.04599), above
            0: probabilities are less sure above 1. The most likely answer stays the same.
        abstain_below: an answer with a lower probability is marked as abstained, 0 to 1; None adds
            no such output.

    Raises:
        ValueError: one is not a number in its range.
    """

    temperature: float = 1.0
    abstain_below: float | None = None

    def __post_init__(self) -> None:
        temperature, least = self.temperature, self.abstain_below
        if not _is_number(temperature) or not 0 < temperature < math.inf:
            raise ValueError(
                f"temperature={temperature!r}: must be above 0 and finite; 1 changes nothing"
            )
        if least is not None and not (_is_number(least) and 0 <= least <= 1):
            raise ValueError(
                f"abstain_below={least!r}: must be a probability, from 0 to 1, or None to answer "
                "everything"
            )

    def calibrated(self, logits: tf.Tensor) -> tf.Tensor:
        """Returns the logits as float32, divided by the temperature, in the graph."""
        logits = tf.cast(logits, tf.float32)
        return logits if self.temperature == 1.0 else logits / self.temperature

    def abstention(self, confidence: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the output `abstained`, if there is one.

        Args:
            confidence: the probabilities of answers, of any shape.
        """
        return {} if self.abstain_below is None else {"abstained": confidence < self.abstain_below}

    def specs(self, rank: int = 1) -> dict[str, tf.TensorSpec]:
        """Returns the output of `abstention` for confidences of a rank: name -> tf.TensorSpec."""
        shape = [None] * rank
        return {} if self.abstain_below is None else {"abstained": tf.TensorSpec(shape, tf.bool)}

    def config(self) -> dict[str, Any]:
        """Returns the arguments that differ from the defaults, as JSON values."""
        config: dict[str, Any] = {}
        if self.temperature != 1.0:
            config["temperature"] = float(self.temperature)
        if self.abstain_below is not None:
            config["abstain_below"] = float(self.abstain_below)
        return config


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
