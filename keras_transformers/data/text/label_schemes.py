"""Recognizes schemes of labels for runs of words, and converts them to IOB2.

| scheme | an entity of one word | of three | read as |
|---|---|---|---|
| IOB2 | B | B I I | itself |
| IOB1 (CoNLL-2003's own) | I | I I I; B only right after another of its type | IOB2 |
| BIOES, also as IOBES | S | B I E | IOB2 |
| BILOU, also as BIOLU | U | B I L | IOB2 |
| BMES, for Chinese | S | B M E | IOB2 |
| IO, without prefixes | PER | PER PER PER; neighbours of one type become one entity | IOB2 |

Prefixes may be lower-case, and are followed by - or _.
"""

import dataclasses
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

__all__ = ["to_iob2"]

OUTSIDE = "O"

_PREFIXED = re.compile(r"([BIESLUMW])[-_](.+)", re.IGNORECASE)
_BARE = re.compile(r"(?!.*[-_][BIESLUMW]$)[^\W\d_][\w-]*[^\W_]")  # not PER-B, which is unsupported
_STARTS, _LATER, _ENDS = frozenset("BSUW"), frozenset("IMEL"), frozenset("ELSUW")
_BIOES, _BILOU = frozenset("ESMW"), frozenset("LU")  # the prefixes that identify each scheme


class Label(NamedTuple):
    """A label's parts: its prefix, O, or "" without a prefix; and its type."""

    prefix: str
    type: str


@functools.lru_cache(maxsize=1024)  # a file has few labels, each many times
def parse(label: str) -> Label | None:
    """Returns the parts of a label; None if it does not fit any scheme.

    >>> parse("b-loc"), parse("PER"), parse("o"), parse("I-")
    (Label(prefix='B', type='loc'), Label(prefix='', type='PER'), Label(prefix='O', type=''), None)
    """
    if label.upper() == OUTSIDE:
        return Label(OUTSIDE, "")
    if match := _PREFIXED.fullmatch(label):
        return Label(match[1].upper(), match[2])
    return Label("", label) if _BARE.fullmatch(label) else None


def to_iob2(labels: Sequence[str]) -> list[str]:
    """Converts the labels of a sentence to IOB2, from any scheme; IOB2 stays unchanged.

    As in conlleval, a later part starts an entity if the label before it has another type or ends
    one.

    Raises:
        ValueError: a label does not fit any scheme.

    >>> to_iob2(["I-PER", "I-PER", "B-PER", "O", "I-LOC", "I-ORG"])
    ['B-PER', 'I-PER', 'B-PER', 'O', 'B-LOC', 'B-ORG']
    >>> to_iob2(["B-PER", "E-PER", "S-PER", "O"]), to_iob2(["PER", "PER", "O"])
    (['B-PER', 'I-PER', 'B-PER', 'O'], ['B-PER', 'I-PER', 'O'])
    """
    parts = []
    for label in labels:
        if (part := parse(label)) is None:
            raise ValueError(f"label {label!r}, expected O, B-TYPE, I-TYPE or the like")
        parts.append(part)
    return [
        OUTSIDE
        if label.prefix == OUTSIDE
        else f"{'B' if _starts(before, label) else 'I'}-{label.type}"
        for before, label in pairwise([Label(OUTSIDE, ""), *parts])
    ]


def _starts(before: Label, label: Label) -> bool:
    """Returns whether a label starts an entity."""
    return label.prefix in _STARTS or before.type != label.type or before.prefix in _ENDS


@dataclasses.dataclass(frozen=True)
class Found:
    """The scheme of a file.

    Attributes:
        name: the name of the scheme: "IOB1" or "IOB2", whichever fits more labels, "either" if both
            fit all, or another.
        num_converted: number of labels that change.
        num_exceptions: number of labels that do not fit the scheme.
    """

    name: str
    num_converted: int
    num_exceptions: int


def scheme_of(tags: Sequence[Sequence[str]], converted: Sequence[Sequence[str]]) -> Found:
    """Returns the scheme of a file's sentences, which are also given in IOB2."""
    changed = starts = num_iob2 = 0
    prefixes = set()
    for row, new in zip(tags, converted, strict=True):
        parts = [part for label in row if (part := parse(label))]
        prefixes |= {part.prefix for part in parts}
        changed += sum(before != after for before, after in zip(row, new, strict=True))
        # In IOB1 only, I- can start an entity; in IOB2 only, B- can follow a label of another type.
        starts += sum(
            part.prefix in _LATER and after.startswith("B-")
            for part, after in zip(parts, new, strict=True)
        )
        num_iob2 += sum(
            label.prefix == "B" and before.type != label.type
            for before, label in pairwise([Label(OUTSIDE, ""), *parts])
        )
    if "" in prefixes:
        return Found("IO", changed, 0)
    if prefixes & (_BIOES | _BILOU):
        name = "BMES" if "M" in prefixes else "BIOES" if prefixes & _BIOES else "BILOU"
        return Found(name, changed, starts)
    name = "IOB1" if starts > num_iob2 else "IOB2"
    if starts == num_iob2 == 0:
        name = "either"
    return Found(name, changed, min(starts, num_iob2))


def check_one_scheme(first: Mapping[str, str]) -> None:
    """Checks that the labels of a file have one scheme, and that types have one spelling.

    Args:
        first: label -> the place where it first occurs, such as "a.conll:3".

    Raises:
        ValueError: they do not; the message has the places of two labels.
    """
    parts = {label: part for label in first if (part := parse(label)) and part.prefix != OUTSIDE}
    for left, right, what in (
        ({""}, set("BIESLUMW"), "one has a prefix such as B-, the other none"),
        (_BILOU, _BIOES, "one of BILOU, the other of BIOES"),
    ):
        pair = [_first(parts, prefixes) for prefixes in (left, right)]
        if all(pair):
            raise ValueError(
                f"{first[pair[0]]}: label {pair[0]!r}, but {pair[1]!r} at {first[pair[1]]}: "
                f"{what}; pass labels of one scheme (is it a header, which such files lack?)"
            )
    if "" in {part.prefix for part in parts.values()} and not {"O", "o"} & first.keys():
        label = next(iter(parts))
        raise ValueError(
            f"{first[label]}: label {label!r}, and no label is O, B-TYPE or I-TYPE: is it from "
            "another column, such as parts of speech?"
        )
    spelled: dict[str, str] = {}
    for label, part in parts.items():
        other = spelled.setdefault(part.type.lower(), label)
        if parts[other].type != part.type:
            raise ValueError(
                f"{first[label]}: label {label!r}, but {other!r} at {first[other]}: spell the type "
                "in one way"
            )


def _first(parts: Mapping[str, Label], prefixes: Iterable[str]) -> str:
    return next((label for label, part in parts.items() if part.prefix in prefixes), "")
