"""Says how many tokens a learned vocabulary has, if the text yields fewer than were asked for."""

import logging
import os

__all__: list[str] = []

_logger = logging.getLogger(__name__)


def log_size(path: str | os.PathLike[str], num_tokens: int, vocabulary_size: int) -> None:
    """Logs a warning if a vocabulary is smaller than `vocabulary_size`, its maximum.

    Args:
        path: the file or folder that has the vocabulary.
        num_tokens: the number of its tokens.
        vocabulary_size: the number asked for.
    """
    if num_tokens < vocabulary_size:
        _logger.warning(
            "%s: %d tokens, not vocabulary_size=%d: no other pair of tokens occurs often enough to "
            "merge; use more text for more tokens",
            os.fspath(path),
            num_tokens,
            vocabulary_size,
        )
