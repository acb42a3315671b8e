"""Checks the names of options, and says which of ours a name of another library is for."""

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def unknown_option(
    function: str,
    name: str,
    options: Iterable[str],
    advice: Mapping[str, Sequence[str]] = {},
) -> TypeError:
    """Returns the error for an option that a function does not have.

    Args:
        function: the function's name.
        name: the unknown option.
        options: the names of the function's arguments and options.
        advice: what to do -> the names of other libraries that it is for. It writes our options as
            `name=`; of two entries for one name, the first whose options exist is for it.
    """
    names = sorted(options)
    message = f"{function} has no option {name!r}"
    for remedy, foreign in advice.items():
        if name in foreign and set(options_in(remedy)) <= set(names):
            return TypeError(f"{message}: {remedy}")
    if near := difflib.get_close_matches(name, names, 1):
        return TypeError(f"{message}: did you mean {near[0]}?")
    return TypeError(f"{message}: use one of {', '.join(names)}")


def options_in(advice: str) -> list[str]:
    """Returns the options that an advice names, which are not arguments of a call."""
    return re.findall(r"(\w+)=", re.sub(r"\(.*\)", "", advice))


def named(
    advice: Mapping[str, Sequence[str]],
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Makes a function say which of its arguments an unknown one may be for.

    Args:
        advice: see `unknown_option`.
    """

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        names = inspect.signature(function).parameters

        @functools.wraps(function)
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            for name in kwargs:
                if name not in names:
                    raise unknown_option(function.__name__, name, names, advice)
            return function(*args, **kwargs)

        return call

    return decorate
