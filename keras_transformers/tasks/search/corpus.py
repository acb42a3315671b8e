"""Defines what is searched: texts with ids."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

from keras_transformers.files.errors import short_repr
from keras_transformers.files.surrogates import check_text

__all__ = ["Corpus"]


class Corpus:
    """Texts to search, each with an id.

    Args:
        texts: not empty.
        ids: strings or integers, no two equal; by default "0", "1" and so on.
        source: where they come from, for error messages.

    Raises:
        ValueError: there are no texts, one is empty or not a string, two ids are equal, or there
            are more or fewer ids than texts.

    Attributes:
        texts: the texts.
        ids: their ids, strings.

    Example:
        >>> Corpus(["Dogs run.", "It rained."], ids=["a", "b"]).ids
        ['a', 'b']
    """

    def __init__(
        self,
        texts: Iterable[str],
        *,
        ids: Iterable[str | int] | None = None,
        source: str = "corpus",
    ) -> None:
        if isinstance(texts, str | bytes):
            raise ValueError(f"{source}: {short_repr(texts)} is one text: pass a list of texts")
        self.texts = list(texts)
        if not self.texts:
            raise ValueError(f"{source}: no texts: pass at least one")
        for place, text in enumerate(self.texts):
            if not isinstance(text, str) or not text:
                raise ValueError(
                    f"{source}: text {place} is {short_repr(text)}, expected a string that is not "
                    "empty: leave it out, and its id"
                )
            check_text(f"{source}: text {place}", text)
        self.ids = _checked_ids(ids, len(self.texts), source)

    def __len__(self) -> int:
        return len(self.texts)

    def checksum(self) -> str:
        """Returns the SHA-256 of the ids and texts."""
        digest = hashlib.sha256()
        for part in (*self.ids, *self.texts):
            digest.update(part.encode() + b"\0")
        return digest.hexdigest()


def _checked_ids(ids: Iterable[str | int] | None, num_texts: int, source: str) -> Sequence[str]:
    if ids is None:
        return [str(place) for place in range(num_texts)]
    values = list(ids)
    for place, value in enumerate(values):
        if not isinstance(value, str | int) or isinstance(value, bool) or value == "":
            raise ValueError(
                f"{source}: id {place} is {short_repr(value)}, expected a string or an integer"
            )
    names = [str(value) for value in values]
    if len(names) != num_texts:
        raise ValueError(f"{source}: {len(names)} ids for {num_texts} texts: pass one for each")
    repeated = [value for value, count in Counter(names).items() if count > 1]
    if repeated:
        places = [place for place, value in enumerate(names) if value == repeated[0]]
        raise ValueError(
            f"{source}: {len(repeated)} ids are there twice or more, such as {repeated[0]!r} for "
            f"texts {places[0]} and {places[1]}: each text needs its own"
        )
    for place, value in enumerate(names):
        check_text(f"{source}: id {place}", value)
    return names
