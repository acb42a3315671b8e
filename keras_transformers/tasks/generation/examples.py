"""Holds the prompts and options with which exports are checked."""

from collections.abc import Mapping

import numpy as np

from keras_transformers.tasks.texts import strings

__all__: list[str] = []

EXAMPLES = ("The old man and", "It was a day like any other, and")
# One begins another.
CHOICES = ("a", "ab", "c")
_NEW_TOKENS = 8


def example_options(rows: int) -> dict[str, np.ndarray]:
    """Returns options for the rows of an example, different in every row."""
    number = np.arange(rows)
    return {
        "max_length": np.where(number == 2, 0, _NEW_TOKENS),
        "temperature": 0.5 + 0.25 * number,
        "top_k": np.where(number == 1, 0, 5),
        "top_p": np.where(number == 0, 0.9, 1.0),
        "seed": number,
    }


def shortened(example: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns an example with options whose texts have three tokens at most."""
    return {**example, "max_length": np.minimum(example["max_length"], 3)}


def with_later_options(example: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns an example with the options that were added later."""
    rows = len(example["seed"])
    stops = [stop for row in range(rows) for stop in (("\n", "e.") if row % 2 else ("", ""))]
    return {
        **example,
        "repetition_penalty": np.where(np.arange(rows) % 2 == 0, 1.2, 1.0),
        "stop": strings(stops).reshape(rows, 2),
    }
