"""Rows that cannot be read: all of them are named in one error, or left out and named once.

    with bad_rows("drop"):
        for number, line in lines:
            with each_row(f"{path}:{number}"):
                rows.append(parse(line))

Outside `bad_rows`, the first such row raises its own error.
"""

import contextlib
import contextvars
import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

__all__ = ["RowOptions"]

OnBadRows = Literal["error", "drop"]

_Rejected = tuple[str, str]  # the place of a row, and what is wrong with it

_NUM_SHOWN = 10
_logger = logging.getLogger(__name__)
_rejected: contextvars.ContextVar[list[_Rejected] | None] = contextvars.ContextVar(
    "rejected", default=None
)


class BadRowsError(ValueError):
    """Rows of a table in memory cannot be read.

    Attributes:
        reasons: number of a row, from 0 -> what is wrong with it, and the remedy.
    """

    def __init__(self, source: str, reasons: Mapping[int, str]) -> None:
        super().__init__(_joined([(f"{source}, row {row}", why) for row, why in reasons.items()]))
        self.reasons = dict(reasons)


def check_rows(source: str, reasons: Mapping[int, str]) -> None:
    """Raises BadRowsError if there are rows that cannot be read.

    Args:
        source: where the rows are, for the message.
        reasons: see `BadRowsError`.
    """
    if reasons:
        raise BadRowsError(source, reasons)


@contextlib.contextmanager
def bad_rows(on_bad_rows: OnBadRows = "error", *, advice: str = "") -> Iterator[None]:
    """Collects the rows that are rejected inside, and names all of them at the end.

    Inside another `bad_rows` it does nothing: the outermost one names the rows of all data sets.

    Args:
        on_bad_rows: "error" raises ValueError at the end; "drop" logs a warning.
        advice: the choice that would leave the rows out, for the error.

    Raises:
        ValueError: rows were rejected, or `on_bad_rows` is something else. An error from inside
            also names them, since it may follow from them.
    """
    if on_bad_rows not in ("error", "drop"):
        raise ValueError(f"on_bad_rows={on_bad_rows!r}: use 'error' or 'drop'")
    if _rejected.get() is not None:
        yield
        return
    rows: list[_Rejected] = []
    token = _rejected.set(rows)
    try:
        yield
    except ValueError as error:
        if not rows:
            raise
        count = _counted(rows)
        raise ValueError(f"{error}; {count} cannot be read: {_joined(rows)}") from error
    finally:
        _rejected.reset(token)
    if rows and on_bad_rows == "drop":
        _logger.warning("%s left out: %s", _counted(rows, verb=True), _joined(rows))
    elif rows:
        count = f"{len(rows)} rows cannot be read: " if len(rows) > 1 else ""
        end = f"; {advice} leaves {'them' if len(rows) > 1 else 'it'} out" if advice else ""
        raise ValueError(f"{count}{_joined(rows)}{end}")


def reject(place: str, reason: str) -> None:
    """Leaves out a row.

    Args:
        place: where the row is, such as a file and a line.
        reason: what is wrong with it, and the remedy.

    Raises:
        ValueError: no `bad_rows` collects such rows.
    """
    rows = _rejected.get()
    if rows is None:
        raise ValueError(f"{place}: {reason}")
    rows.append((place, reason))


class _Row:
    def __init__(self, place: str) -> None:
        self._place = place

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        rows = _rejected.get()
        if not isinstance(error, ValueError) or (rows is None and not self._place):
            return False
        if rows is None:
            raise ValueError(f"{self._place}: {error}") from error
        rows.append((self._place, str(error)))
        return True


def each_row(place: str = "") -> AbstractContextManager[None]:
    """Returns a context that leaves out a row if ValueError is raised inside.

    Args:
        place: where the row is, such as a file and a line; "" if the error says it.

    Raises:
        ValueError: no `bad_rows` collects such rows.
    """
    return _Row(place)


def check_any(rows: Sequence[Any], path: str | Path, what: str = "examples") -> None:
    """Raises ValueError if a file has no rows, or none that can be read."""
    if not rows and _rejected.get():
        raise ValueError(f"{path}: no {what} that can be read")
    if not rows:
        raise ValueError(f"{path}: no {what}; the file is empty or has only a header")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowOptions:
    """The option for rows that cannot be read; a base class for options that read files."""

    # rows that cannot be read: name all of them and stop, or train without them and say which
    on_bad_rows: OnBadRows = "error"

    def bad_rows(self) -> AbstractContextManager[None]:
        """Returns the context in which to read the files."""
        return bad_rows(self.on_bad_rows, advice="--on-bad-rows drop")


def _counted(rows: Sequence[_Rejected], *, verb: bool = False) -> str:
    noun, be = ("row", "is") if len(rows) == 1 else ("rows", "are")
    return f"{len(rows)} {noun} {be}" if verb else f"{len(rows)} {noun}"


def _joined(rows: Sequence[_Rejected]) -> str:
    """Returns the first rows, those with the same fault together, and how many more there are."""
    places: dict[str, list[str]] = {}
    for place, reason in rows[:_NUM_SHOWN]:
        places.setdefault(reason, []).append(place)
    parts = [": ".join(filter(None, [", ".join(at), why])) for why, at in places.items()]
    more = f"; and {len(rows) - _NUM_SHOWN} more" if len(rows) > _NUM_SHOWN else ""
    return "; ".join(parts) + more
