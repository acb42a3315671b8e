"""Arranges choices between texts in columns, as models take them, and reads the answers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformers.dependencies import tables
from keras_transformers.tasks.generation.answer import Selection
from keras_transformers.tasks.texts import check_is_list, string_column

__all__: list[str] = []


def choice_columns(choices: Sequence[Any], rows: int) -> np.ndarray:
    """Returns the choices of each row as models take them.

    Args:
        choices: strings, the same for all rows; or such a sequence for each row.
        rows: number of rows.

    Returns:
        Bytes (rows, choices), where b"" pads shorter rows.

    Raises:
        ValueError: a row has no choices, an empty one, or one twice; or there are not as many
            sequences as rows. The message says which.
    """
    check_is_list("choices", choices)
    choices = tables.without_tensors(choices)
    if isinstance(choices, Iterable) and not isinstance(choices, str | bytes):
        choices = list(choices)
    shared = isinstance(choices, list) and all(isinstance(item, str | bytes) for item in choices)
    lists: Any = [choices] * min(rows, 1) if shared else choices
    column = string_column("choices", lists, rank=2)
    counts = [len(row) for row in lists]
    if not shared and len(column) != rows:
        raise ValueError(
            f"{len(column)} lists of choices for {rows} rows: pass a list of choices for each row, "
            "or one list of strings for all"
        )
    for number, (row, count) in enumerate(zip(column, counts, strict=True)):
        name = "choices" if shared else f"choices[{number}]"
        if not count:
            raise ValueError(f"{name} is empty: pass at least one string")
        places: dict[bytes, int] = {}
        for place, choice in enumerate(row[:count].tolist()):
            if not choice:
                raise ValueError(
                    f"{name}[{place}] is '': a choice has at least one character; leave it out"
                )
            if choice in places:
                raise ValueError(
                    f"{name}[{place}] is {choice.decode('utf-8', 'replace')!r:.100}, as is "
                    f"{name}[{places[choice]}]: pass each choice once"
                )
            places[choice] = place
    return np.repeat(column, rows, axis=0) if shared else column


def selections(rows: Sequence[Mapping[str, Any]], choices: np.ndarray) -> list[Selection]:
    """Returns the rows of the signatures `choose` and `chat_choose` as answers.

    Args:
        rows: outputs by name.
        choices: what `choice_columns` returned.
    """
    counts = np.sum(choices != b"", axis=1)
    return [
        Selection(**{**row, "probabilities": row["probabilities"][:count]})
        for row, count in zip(rows, counts, strict=True)
    ]
