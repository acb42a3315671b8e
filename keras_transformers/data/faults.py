"""Counts what may be wrong with examples: empty, repeated and contradicting ones, and leakage."""

import dataclasses
import logging
from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

__all__ = ["log_faults"]

_logger = logging.getLogger(__name__)


class Content(NamedTuple):
    """What an example asks, and its label.

    Attributes:
        key: equal for examples that count as the same.
        sample: the example in a message, such as its text.
        label: its label; the same for all examples of a task that allows several answers.
        is_empty: whether a text is empty.
    """

    key: Hashable
    sample: str
    label: Hashable = None
    is_empty: bool = False


def plain(text: str) -> str:
    """Returns a text that is equal for texts that differ only in case or spacing."""
    return " ".join(text.split()).casefold()


def content(*texts: str, label: Hashable = None, key: Hashable = None) -> Content:
    """Returns the content of an example of texts, which differ in more than case or spacing.

    Args:
        *texts: the texts.
        label: its label.
        key: what identifies it, if not all texts.
    """
    texts = tuple(text.strip() for text in texts)
    key = tuple(map(plain, texts)) if key is None else key
    return Content(key, " | ".join(texts), label, not all(texts))


def faults(*sets: tuple[str, Iterable[Content]]) -> str:
    """Returns what may be wrong with sets of examples, in one line; "" if nothing is.

    Args:
        *sets: the name and the contents of each set, those of the training data first.

    >>> faults(("data", [content("a", label=0), content("A", label=1), content("", label=0)]))
    "data: 1 of 3 rows empty, 1 repeated, 2 with different labels, such as 'a'"
    """
    trained: dict[int, _Group] = {}
    name_of_trained = ""
    parts = []
    for name, contents in sets:
        groups, num_empty, num_rows = _groups(contents)
        contradicting = [group for group in groups.values() if len(group.labels) > 1]
        shared = [group for key, group in groups.items() if key in trained]
        others = [
            x for key, x in groups.items() if key in trained and x.labels - trained[key].labels
        ]
        counts = {
            "empty": num_empty,
            "repeated": num_rows - len(groups),
            f"with different labels, such as {_sample(contradicting)}": _size(contradicting),
            f"also in {name_of_trained}, such as {_sample(shared)}": _size(shared),
            f"with another label there, such as {_sample(others)}": _size(others),
        }
        said = [f"{count} {what}" for what, count in counts.items() if count]
        if said:
            said[0] = said[0].replace(" ", f" of {num_rows} rows ", 1)
            parts.append(f"{name}: {', '.join(said)}")
        if not name_of_trained:
            trained, name_of_trained = groups, name
    return "; ".join(parts)


def log_faults(*examples: Any) -> None:
    """Logs in one line what may be wrong with sets of examples, such as texts that occur twice.

    Args:
        *examples: examples as `data.text` reads them, those of the training data first; None for
            sets that there are not.
    """
    parts = [part for part in examples if part is not None]
    if line := faults(*((part.source, part.contents()) for part in parts)):
        _logger.warning("%s", line)


@dataclasses.dataclass
class _Group:
    """The examples that ask the same."""

    sample: str
    labels: set[int]
    size: int = 0


def _groups(contents: Iterable[Content]) -> tuple[dict[int, _Group], int, int]:
    """Returns the examples by the hash of what they ask, the number of empty ones and of all."""
    groups: dict[int, _Group] = {}
    num_empty = num_rows = 0
    for key, sample, label, is_empty in contents:
        num_rows += 1
        num_empty += is_empty
        group = groups.setdefault(hash(key), _Group(sample, set()))
        group.labels.add(hash(label))
        group.size += 1
    return groups, num_empty, num_rows


def _size(groups: Iterable[_Group]) -> int:
    return sum(group.size for group in groups)


def _sample(groups: Iterable[_Group]) -> str:
    return next((f"{group.sample!r:.60}" for group in groups), "")
