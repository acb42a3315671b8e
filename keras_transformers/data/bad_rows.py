"""Rows that cannot be read: all of them are named in one error."""

from collections.abc import Mapping

__all__: list[str] = []


class BadRowsError(ValueError):
    """Rows of a table in memory cannot be read.

    Attributes:
        reasons: number of a row, from 0 -> what is wrong with it, and the remedy.
    """

    def __init__(self, source: str, reasons: Mapping[int, str]) -> None:
        super().__init__("; ".join(f"{source}, row {row}: {why}" for row, why in reasons.items()))
        self.reasons = dict(reasons)


def check_rows(source: str, reasons: Mapping[int, str]) -> None:
    """Raises BadRowsError if there are rows that cannot be read.

    Args:
        source: where the rows are, for the message.
        reasons: see `BadRowsError`.
    """
    if reasons:
        raise BadRowsError(source, reasons)
