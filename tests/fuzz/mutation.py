"""Damaged variants of valid files, and a search through many of them."""

import copy
import itertools
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import hypothesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

COUNTS: dict[str, int] = {}  # target -> inputs tried; printed at the end of a run

ODD_BYTES = (
    *(b"\x00", b"\xff", b"\n", b"\r\n", b"\t", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":"),
    *(b"-1", b"0", b"1e999", b"NaN", b"null", b"true", b"99999999999999999999", b"../", b"\xc3"),
)
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 2**31, 2**63, 10**400, 1.5, -0.0, 1e308, float("nan")),
    *("", "x", "../../x", "é\ud800", "0" * 5000),
    *([], [[]], [None], {}, {"": {}}, {"x": 1}),
)


@st.composite
def damaged_bytes(draw: st.DrawFn, originals: Sequence[bytes]) -> bytes:
    """One of the files after a few insertions, deletions, repetitions and flipped bits."""
    data = bytearray(draw(st.sampled_from(list(originals))))
    for _ in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, len(data)))
        stop = min(len(data), start + draw(st.sampled_from((1, 1, 2, 4, 8, 100, 10**6))))
        match draw(st.sampled_from(("insert", "delete", "repeat", "flip", "cut", "random"))):
            case "insert":
                data[start:start] = draw(st.sampled_from(ODD_BYTES))
            case "delete":
                del data[start:stop]
            case "repeat":
                data[start:start] = data[start : min(stop, start + 1000)]
            case "flip" if start < len(data):
                data[start] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del data[start:]
            case _:
                data[start:stop] = draw(st.binary(max_size=9))
    return bytes(data)


@st.composite
def damaged_json(draw: st.DrawFn, originals: Sequence[bytes]) -> bytes:
    """One of the JSON files with odd values in a few places, or without them."""
    document = json.loads(draw(st.sampled_from(list(originals))))
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(document))
        if not places:
            break
        parent, key = draw(st.sampled_from(places))
        if draw(st.integers(0, 3)) == 0:
            del parent[key]
        else:
            parent[key] = copy.deepcopy(draw(st.sampled_from(ODD_VALUES)))
    if draw(st.integers(0, 20)) == 0:
        document = draw(st.sampled_from(ODD_VALUES))
    return json.dumps(document).encode()


def _places(value: Any) -> Any:
    """Yields every (container, key) within a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items):
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


def search(
    target: str,
    inputs: st.SearchStrategy[Any],
    check: Callable[[Any], None],
    seconds: float,
    *,
    examples: int = 25,
) -> None:
    """Checks many inputs: a fixed few, then random ones until the seconds are over.

    Args:
        target: a name for `COUNTS`.
        inputs: the inputs.
        check: raises for an input that breaks a promise.
        seconds: how long to search; 0 checks the fixed ones alone.
        examples: how many fixed ones there are.
    """

    def counted(value: Any) -> None:
        COUNTS[target] = COUNTS.get(target, 0) + 1
        check(value)

    end = time.monotonic() + seconds
    for number in itertools.count():
        trial = given(inputs)(counted)
        trial = settings(
            max_examples=examples if number == 0 else 500,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )(trial)
        hypothesis.seed(number)(trial)()
        if time.monotonic() >= end:
            return
