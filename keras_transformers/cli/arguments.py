"""Defines the argument types and the input that several commands share."""

import io
import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from tyro.conf import Positional, UseAppendAction, arg

from keras_transformers.ranges import PositiveInt


@dataclass(frozen=True, kw_only=True)
class Command:
    """Base class of commands."""

    debug: bool = False  # show an error's traceback, and all of TensorFlow's messages

    def run(self) -> int:
        """Does the work and returns the exit status."""
        raise NotImplementedError


def argument(metavar: str, help: str | None = None) -> Any:
    """Returns how to show an argument in the help, without its default.

    Args:
        metavar: the name of the argument or of its values, such as "ROWS [ROWS ...]".
        help: the help text; by default the field's comment.
    """
    return arg(metavar=metavar, help=help, help_behavior_hint="")


# Without a constructor, tyro would read the word None as no value and offer it in the help.
OptionalText = Annotated[str | None, argument("STR"), arg(constructor=str)]
OptionalFile = Annotated[str | None, argument("FILE"), arg(constructor=str)]
OptionalCount = Annotated[PositiveInt | None, argument("INT"), arg(constructor=int)]
Rows = Annotated[tuple[PositiveInt, ...], argument("ROWS [ROWS ...]")]
BeamOptions = Annotated[
    tuple[str, ...],
    argument(
        "NAME=VALUE [NAME=VALUE ...]",
        "run as an Apache Beam pipeline with these options, such as runner=DirectRunner (extra "
        "`beam`); default: without Beam",
    ),
]
Texts = Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="TEXT")]
ExportPath = Annotated[
    Positional[str],
    argument("PATH", "a version folder, or a folder of versions, for the newest one"),
]
PipelinePath = Annotated[
    Positional[str],
    argument(
        "PATH",
        "an export (a version folder, or a folder of versions), a saved pipeline, weights that "
        "keras_transformers.load takes, or hf://organization/name@commit",
    ),
]

# The environment variable with the key for servers: a command line can be seen by other users.
API_KEY = "KERAS_TRANSFORMERS_API_KEY"
_BATCH_SIZE = 32

_T = TypeVar("_T")


def batches(
    texts: Sequence[str],
    texts_b: Sequence[str],
    choices: Sequence[str] = (),
    *,
    names: Sequence[str] = (),
) -> Iterator[list[list[Any]]]:
    """Yields the texts of the command line or, if there are none, stdin's lines, in batches.

    Args:
        texts: one text per row.
        texts_b: the second text of each pair; empty for single texts.
        choices: the choices for the only text, for models that take them.
        names: the inputs of the model, if known.

    Yields:
        A batch's columns: the texts and, for pairs, the second texts, or the lists of choices. A
        line of stdin is `text` or `text<TAB>text_b`; for models that take choices,
        `text<TAB>choice<TAB>choice` with any number of choices.

    Raises:
        ValueError: the columns differ in length, or lines of stdin in their number of fields.
    """
    if choices:
        if len(texts) != 1 or texts_b:
            raise ValueError(
                f"texts: {len(texts)}, --text-b: {len(texts_b)}; --choice needs one text: pass "
                "more as lines of stdin, `text<TAB>choice<TAB>choice`"
            )
        yield [list(texts), [list(choices)]]
        return
    if texts_b and len(texts_b) != len(texts):
        raise ValueError(
            f"texts: {len(texts)}, --text-b: {len(texts_b)}; pass one of each for every pair"
        )
    if texts:
        yield [list(texts), list(texts_b)] if texts_b else [list(texts)]
        return
    for batch in batched(_rows(names)):
        yield [list(column) for column in zip(*batch, strict=True)]


def batched(items: Iterator[_T]) -> Iterator[list[_T]]:
    """Yields the items in lists of a batch's size; the last list may be shorter."""
    while batch := list(itertools.islice(items, _BATCH_SIZE)):
        yield batch


def stdin_lines() -> Iterator[str]:
    """Returns stdin's lines without line breaks; bytes that are not UTF-8 become surrogates."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape", newline="\n")
    return (line.removesuffix("\n").removesuffix("\r") for line in sys.stdin)


def _rows(names: Sequence[str]) -> Iterator[list[Any]]:
    from keras_transformers.tasks.texts import split_line, takes_lists

    width = None
    for number, line in enumerate(stdin_lines(), start=1):
        if any(map(takes_lists, names)):
            row = split_line(line, names)
            if len(row) != len(names):
                raise ValueError(
                    f"stdin:{number}: no choices: expected `text<TAB>choice<TAB>choice`"
                )
            yield row
            continue
        row = line.split("\t")
        width = width or len(row)
        if len(row) != width or width > 2:
            raise ValueError(
                f"stdin:{number}: {len(row)} fields; every line must be `text`, or every line "
                "`text<TAB>text_b`"
            )
        yield row
