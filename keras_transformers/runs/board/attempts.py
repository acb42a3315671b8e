"""Computes figures about a run without ever stopping it."""

import logging
from collections.abc import Callable
from typing import TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Attempts:
    """Computes and writes figures; one that fails is left out from then on, with a warning.

    A training may take days, and no figure besides its scores is worth losing one of them.
    """

    def __init__(self) -> None:
        self._failed: set[str] = set()

    def at(self, what: str, function: Callable[[], T], *, remedy: str = "") -> T | None:
        """Returns the function's result, or None if it fails or has failed before.

        Args:
            what: names what is left out, for the warning.
            function: a function without arguments.
            remedy: says what to do about it, for the warning.
        """
        if what in self._failed:
            return None
        try:
            return function()
        except Exception as error:  # a user's layer, batches or disk may raise anything
            self._failed.add(what)
            reason = " ".join(str(error).split()) or "no message"
            logger.warning(
                "the run continues without %s: %s: %s%s",
                what,
                type(error).__name__,
                reason,
                remedy and f". {remedy}",
            )
            return None
