"""Shows how many rows have been answered, and the time left."""

import contextlib
from collections.abc import Callable, Iterator
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from keras_transformers.runs import progress

__all__: list[str] = []


@contextlib.contextmanager
def counted_rows(total: int, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Yields what to call with each number of rows that are done.

    In a terminal or a notebook it moves a bar; elsewhere it prints a line every ten seconds.

    Args:
        total: the number of rows.
        quiet: whether to show nothing.
    """
    console = Console(quiet=quiet)
    if quiet or not (console.is_terminal or console.is_jupyter):
        yield _lines(total) if not quiet else lambda rows: None
        return
    columns = BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, auto_refresh=False) as bar:  # without a thread
        task = bar.add_task("rows", total=total)
        yield lambda rows: bar.update(task, advance=rows, refresh=True)


def _lines(total: int) -> Callable[[int], None]:
    done, printed = 0, monotonic()
    started = printed

    def advance(rows: int) -> None:
        nonlocal done, printed
        done, now = done + rows, monotonic()
        if now - printed >= progress.SECONDS_BETWEEN_LINES:
            printed = now
            left = progress.clock((now - started) * (total - done) / done)
            print(f"row {done}/{total}, {left} left", flush=True)

    return advance
