"""Reads a graph's outputs: rows of a batch, and each row as its task's answer."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

import numpy as np

from keras_transformers import registry

__all__ = ["AnswerType", "Result"]


class Shown:
    """A dataclass whose `repr` leaves out the fields that only some pipelines fill in.

    These are the fields with a default.
    """

    def __repr__(self) -> str:
        parts = fields(self)  # type: ignore[arg-type]
        values = ((part.name, getattr(self, part.name), part.default) for part in parts)
        shown = [f"{name}={value!r}" for name, value, default in values if value is not default]
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True, repr=False)
class Result(Shown):
    """The base class of the answer types.

    A field with the default None is an output that only some pipelines have.
    """


@dataclass(frozen=True)
class AnswerType:
    """How to make a task's answer from a row of outputs; a task's file here defines `ANSWER`.

    Attributes:
        task: the pipeline's `task`.
        type: the type of the answer. Its fields have the names of the outputs.
        inputs: the inputs that take texts, in the order of a call; one tuple for each set of inputs
            that the task supports. Empty if it takes anything else.
        lists: the inputs that take a list of texts per row.
        renamed: field -> output, where they differ.
        count: the output with the number of values in each row; others are padded to the longest
            row of their batch.
    """

    task: str
    type: type[Result]
    inputs: tuple[tuple[str, ...], ...] = (("text",),)
    lists: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    count: str | None = None

    def registered_as(self) -> Iterator[tuple[str, Any]]:
        """Yields (constant, value) for all that registering it registers."""
        yield "ANSWER", self

    def typed(self, row: Mapping[str, Any]) -> Result | dict[str, Any]:
        """Returns one row of outputs as the answer, or unchanged if it has other outputs."""
        if not self.fits(row):
            return dict(row)
        outputs = self._outputs().items()
        return self.type(**{name: row[output] for name, output in outputs if output in row})

    def fits(self, outputs: Collection[str]) -> bool:
        """Returns whether the outputs with these names make the answer."""
        optional = {part.name for part in fields(self.type) if part.default is not MISSING}
        required = {output for name, output in self._outputs().items() if name not in optional}
        return required <= set(outputs) - {self.count} <= set(self._outputs().values())

    def _outputs(self) -> dict[str, str]:
        """Returns field -> output."""
        return {part.name: self.renamed.get(part.name, part.name) for part in fields(self.type)}


# The name of a signature without inputs and outputs whose `method_name` is the export's task, so
# that clients find the task among a server's signatures. Names with "__" are not to be called, like
# TensorFlow's initializer.
TASK_SIGNATURE = "__task"
# Another, whose `method_name` is the defaults of the options that requests may set, as JSON.
OPTIONS_SIGNATURE = "__options"
# Another, whose `method_name` is the name of the chat template, for clients to write tools with.
CHAT_SIGNATURE = "__chat_template"
# The signature from texts to the tokens that the model reads. Exports that read none lack it.
TOKENIZE_SIGNATURE = "tokenize"


def answer_types() -> Iterator[AnswerType]:
    """Yields how to read the answers of each task, the package's own first; see `registry`."""
    yield from registry.values("ANSWER")


def answer_type(task: str) -> AnswerType | None:
    """Returns how to read the answers of a task; None if it is unknown here.

    If another package has no entry point for the answer, it is imported for the task itself, which
    may need TensorFlow.
    """
    answer = next((answer for answer in answer_types() if answer.task == task), None)
    if answer is not None or not task:
        return answer
    return next((other.answer for other in registry.additions("TASK") if other.name == task), None)


def answer_type_of(outputs: Collection[str]) -> AnswerType | None:
    """Returns how to read the answers of an export whose signatures do not say its task.

    Args:
        outputs: the names of the outputs of its signature `serving_default`.

    Returns:
        The answer type whose fields these are; None if there is none, or several.
    """
    fitting = {
        answer.type: answer
        for answer in answer_types()
        if answer.fits(outputs) and answer.count in (None, *outputs)
    }
    return next(iter(fitting.values())) if len(fitting) == 1 else None


def typed(row: Mapping[str, Any], answer: AnswerType | None) -> Result | dict[str, Any]:
    """Returns one row of outputs as its task's answer, or unchanged if the task is unknown.

    >>> typed({"translation": "A dog.", "score": -0.5}, answer_type("translation"))
    Translation(text='A dog.', score=-0.5)
    >>> typed({"y": 2.5}, None)
    {'y': 2.5}
    """
    return dict(row) if answer is None else answer.typed(row)


def rows(
    outputs: Mapping[str, np.ndarray], padded: Sequence[str], answer: AnswerType | None = None
) -> Iterator[dict[str, Any]]:
    """Yields the outputs of a batch, row by row, as JSON values.

    Args:
        outputs: name -> array (batch, ...); strings as bytes.
        padded: the outputs (batch, length, ...) that are padded to the longest row of the batch.
        answer: the task's answer; None if it is unknown. Rows of padded outputs are cut to its
            `count`. If they have none, as those of another signature than the answer's, they are
            cut to an output with the name of any task's `count`.

    Yields:
        Output name -> str, number or nested list, in the order of the names. Bytes that are not
        UTF-8 become U+FFFD.
    """
    names = sorted(outputs)
    if answer is not None and answer.count in outputs:
        counts = {answer.count}
    else:
        counts = {type_.count for type_ in answer_types()}
    count = next((name for name in names if name in counts), None)
    for values in zip(*(outputs[name] for name in names), strict=True):
        row = dict(zip(names, map(_plain, values), strict=True))
        if count is not None:
            row |= {name: row[name][: row[count]] for name in padded}
        yield row


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value] if value.dtype == object else value.tolist()
    return value.item() if isinstance(value, np.generic) else value
