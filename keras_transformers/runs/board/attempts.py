"""Figures about a run, none of which may stop it."""

import logging
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)


class Attempts:
    """Computes and writes figures; one that fails is left out from then on, and a warning says so.

    A training may take days, and what it reports beside its scores is not worth a day of it.
    """

    def __init__(self) -> None:
        self._failed: set[str] = set()

    def at(self, what: str, function: Callable[[], Any], *, remedy: str = "") -> Any:
        """Returns the function's result; None if it fails, or has failed before.

        Args:
            what: the name of what is left out, for the warning.
            function: takes nothing.
            remedy: what to do about it, for the warning.
        """
        if what in self._failed:
            return None
        try:
            return function()
        except Exception as error:  # a user's layer, batches or disk may raise anything
            self._failed.add(what)
            reason = " ".join(str(error).split()) or "no message"
            logger.warning(
                "the run goes on without %s: %s: %s%s",
                what,
                type(error).__name__,
                reason,
                remedy and f". {remedy}",
            )
            return None
