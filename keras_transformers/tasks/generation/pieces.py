"""Cuts a text that grows into the pieces that a reader sees as they come."""

from collections.abc import Iterable, Iterator, Sequence

__all__: list[str] = []

_INCOMPLETE = "\ufffd"  # for bytes of a character whose other bytes may follow


def pieces(texts: Iterable[str], stop: Sequence[str] = ()) -> Iterator[str]:
    """Yields what each text adds to the one before, as far as it stays.

    The end of a text is held back while it may be part of a character, or of a stop string, which
    would end the text before it. Joined, the pieces are the last text.

    Args:
        texts: a text as it grows; the last one is complete.
        stop: strings that end it, none of them empty.

    Example:
        >>> list(pieces(["A", "A\ufffd", "Aé", "Aé E", "Aé EN", "Aé ENd"], stop=["END"]))
        ['A', 'é', ' ', 'ENd']
    """
    text, settled = "", Settled(stop)
    for text in texts:
        if piece := settled.add(text):
            yield piece
    if piece := settled.add(text, is_whole=True):
        yield piece


class Settled:
    """What stays of a text while it grows; see `pieces`.

    Args:
        stop: strings that end it, none of them empty.
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._stop = stop
        self._num_sent = 0

    def add(self, text: str, *, is_whole: bool = False) -> str:
        """Returns what stays of a text beyond what earlier calls returned; "" if nothing does."""
        num_settled = len(text) if is_whole else _num_settled(text, self._stop)
        piece = text[self._num_sent : num_settled]
        self._num_sent = max(self._num_sent, num_settled)
        return piece


def _num_settled(text: str, stop: Sequence[str]) -> int:
    """Returns how many characters at the start of a text stay, whatever follows it."""
    text = text.rstrip(_INCOMPLETE)
    for start in range(max(0, len(text) - max(map(len, stop), default=0)), len(text)):
        if any(string.startswith(text[start:]) for string in stop):
            return start
    return len(text)
