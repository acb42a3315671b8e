"""Declares the range of a numeric option beside the option.

    epochs: PositiveInt = 3
    label_smoothing: Annotated[float, Range(at_least=0, below=1)] = 0.1

`check_ranges` checks these ranges for recipes, commands and functions.
"""

import math
import numbers
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

__all__ = [
    "AnyFloat",
    "AnyInt",
    "Default",
    "Fraction",
    "NonNegativeFloat",
    "NonNegativeInt",
    "PositiveFloat",
    "PositiveInt",
    "Range",
    "Rate",
    "Seed",
    "Share",
    "as_option",
    "check_ranges",
]


@dataclass(frozen=True, kw_only=True)
class Range:
    """A range of finite numbers, for `typing.Annotated`.

    >>> print(Range(at_least=0, below=1))
    0 to below 1
    >>> 1.0 in Range(at_least=0, below=1)
    False

    Args:
        at_least: the lowest number allowed.
        above: an exclusive lower bound, instead of `at_least`.
        at_most: the highest number allowed.
        below: an exclusive upper bound, instead of `at_most`.
    """

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None

    def __contains__(self, number: float) -> bool:
        return (
            math.isfinite(number)
            and (self.at_least is None or number >= self.at_least)
            and (self.above is None or number > self.above)
            and (self.at_most is None or number <= self.at_most)
            and (self.below is None or number < self.below)
        )

    def __str__(self) -> str:
        low = f"above {self.above}" if self.above is not None else self.at_least
        high = f"below {self.below}" if self.below is not None else self.at_most
        if low is None and high is None:
            return "a finite number"
        if high is None:
            return f"{low} or more" if self.above is None else f"{low}"
        if low is None:
            return f"{high} or less" if self.below is None else f"{high}"
        return f"{low} to {high}" if self.above is None else f"{low} and {high}"


class Default(int):
    """A number that an option has if the user does not set it: a model that allows less lowers it.

    A number that the user sets is a plain int, and an error where a model allows less.

    >>> Default(128).at_most(32), Default(128).at_most(None)
    (32, 128)
    """

    def at_most(self, limit: int | None) -> "Default":
        """Returns this number, or the limit if that is lower."""
        return self if limit is None else Default(min(self, limit))


PositiveInt = Annotated[int, Range(at_least=1)]
NonNegativeInt = Annotated[int, Range(at_least=0)]
PositiveFloat = Annotated[float, Range(above=0)]
NonNegativeFloat = Annotated[float, Range(at_least=0)]
Share = Annotated[float, Range(at_least=0, at_most=1)]
Rate = Annotated[float, Range(at_least=0, below=1)]
Fraction = Annotated[float, Range(above=0, below=1)]
Seed = Annotated[int, Range(at_least=0, at_most=2**32 - 1)]  # the range that NumPy accepts
AnyInt = Annotated[int, Range()]
AnyFloat = Annotated[float, Range()]


def as_argument(name: str, value: Any) -> str:
    """Returns an argument as written in Python: "batch_size=0"."""
    return f"{name}={value!r}"


def as_option(name: str, value: Any) -> str:
    """Returns an option as written on the command line: "--batch-size 0"."""
    words = map(str, value) if isinstance(value, tuple) else [str(value)]
    return " ".join([f"--{name.replace('_', '-')}", *words])


def check_ranges(
    owner: Any, values: Mapping[str, Any], *, written: Callable[[str, Any], str] = as_argument
) -> None:
    """Checks numbers against their declared ranges.

    Args:
        owner: a dataclass or function whose annotations declare the ranges.
        values: name -> value; every number in a tuple is checked.
        written: how an error writes a name and its value.

    Raises:
        TypeError: a value is no number, or no whole number, where nothing else is allowed.
        ValueError: a number is out of range; the message has the name, the value and the range.

    Example:
        >>> def fit(*, epochs: PositiveInt = 3): ...
        >>> check_ranges(fit, {"epochs": 0})
        Traceback (most recent call last):
        ValueError: epochs=0: must be 1 or more
    """
    hints = typing.get_type_hints(owner, include_extras=True)
    for name, value in values.items():
        _check_kind(written(name, value), value, hints.get(name))
        for allowed in ranges_in(hints.get(name)):
            for number in _numbers(value):
                if number not in allowed:
                    finite = "" if math.isfinite(number) else ", and finite"
                    raise ValueError(f"{written(name, value)}: must be {allowed}{finite}")


def _check_kind(place: str, value: Any, hint: Any) -> None:
    """Raises TypeError if only numbers are allowed, or only whole ones, and this is none."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    parts = typing.get_args(hint) if is_union else (hint,)
    allowed = [part for part in parts if part is not types.NoneType]
    if value is None or not all(typing.get_origin(part) is Annotated for part in allowed):
        return
    kinds = {typing.get_args(part)[0] for part in allowed}
    if not kinds or not kinds <= {int, float}:
        return
    number = numbers.Real if float in kinds else numbers.Integral
    if not isinstance(value, number) or isinstance(value, bool):
        ranges = " or ".join(str(one) for one in ranges_in(hint))
        what = "a number" if float in kinds else "a whole number"
        raise TypeError(f"{place}: pass {what}, {ranges}")


def ranges_in(hint: Any) -> Iterator[Range]:
    """Yields the ranges in an annotation."""
    for part in typing.get_args(hint):
        if isinstance(part, Range):
            yield part
        else:
            yield from ranges_in(part)


def _numbers(value: Any) -> Iterator[float]:
    """Yields a number, or each number in a tuple."""
    if isinstance(value, tuple):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value
