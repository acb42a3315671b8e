"""Reads regular expressions that can be reproduced exactly without lookahead."""

import re

import numpy as np

from keras_transformers.tokenizers.described import unicode_tables

_CLASS = re.compile(
    r"(\[(?:[^\[\]\\&]|\\.(?:\{\^?\w+\})?)+\]|\\[sSdDwW]|\\[pP]\{\^?\w+\}|[^\\.\[\](){}*+?|^$]|\\[^\w])(\+?)"
)


def one_class(what: str, pattern: str) -> tuple[np.ndarray, bool]:
    r"""Reads an expression for one character of a class or a run of them, such as `\s+`.

    Args:
        what: the component, for error messages.
        pattern: the expression.

    Returns:
        The members, bool (CODES,), and whether runs match as a whole.

    Raises:
        ValueError: it is another kind of expression.
    """
    match = _CLASS.fullmatch(pattern)
    if match is None:
        raise ValueError(
            f"{what} with the pattern {pattern!r} is not supported here: only single classes of "
            r"characters, such as \s+, and the patterns of GPT-2, Llama 3 and Qwen"
        )
    return unicode_tables.class_of(match[1]), bool(match[2])
