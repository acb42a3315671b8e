"""Reads and batches texts with several choices, one of them right: SWAG, COPA and plain files.

SWAG: Zellers et al. 2018, arXiv:1808.05326. COPA: Roemmele et al. 2011, in the files of SuperGLUE
(Wang et al. 2019, arXiv:1905.00537).
"""

import dataclasses
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import tensorflow as tf

from keras_transformers.data.bad_rows import bad_rows, check_any, check_rows, each_row
from keras_transformers.data.batching import LengthBatches, Samples
from keras_transformers.data.faults import Content, content, plain
from keras_transformers.data.rows import Rows
from keras_transformers.data.static_shapes import Batch
from keras_transformers.data.tables.reading import file_format, read_objects, read_table
from keras_transformers.tokenizers.tensors import texts_of

__all__ = ["ChoiceBatches", "ChoiceExamples", "choices_of", "load_choices"]

_logger = logging.getLogger(__name__)

_ENDINGS = ("ending0", "ending1", "ending2", "ending3")
# The questions to the annotators of COPA (Roemmele et al. 2011).
_QUESTIONS = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}

# (line number, text, choices, label or None)
_Row = tuple[int, str, list[str], int | None]


@dataclasses.dataclass(frozen=True)
class ChoiceExamples(Rows):
    """Texts with their choices, with or without labels.

    Attributes:
        texts: the texts that the choices are about; may be empty strings.
        choices: the choices for each text, at least two, none of them "".
        labels: the index of each text's right choice, or None.
        source: where the examples come from, for messages.
        weights: the weight of each example in the training loss, or None.

    Raises:
        ValueError: the attributes differ in length, a text has fewer than two choices or an empty
            one, or a label is not the index of a choice.
    """

    texts: Sequence[str]
    choices: Sequence[Sequence[str]]
    labels: Sequence[int] | None = None
    source: str = "memory"
    weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        columns = {"choices": self.choices, "labels": self.labels, "weights": self.weights}
        for name, values in columns.items():
            if values is not None and len(values) != len(self.texts):
                raise ValueError(f"{self.source}: {len(values)} {name} for {len(self.texts)} texts")
        nothing = [None] * len(self.texts)
        labels: Sequence[int | None] = nothing if self.labels is None else self.labels
        mistakes = map(_mistake, self.choices, labels)
        check_rows(self.source, {row: wrong for row, wrong in enumerate(mistakes) if wrong})

    def _content(self, index: int) -> Content:
        choices = [plain(choice) for choice in self.choices[index]]
        right = None if self.labels is None else choices[self.labels[index]]
        text = self.texts[index]
        return content(text, label=right, key=(plain(text), tuple(sorted(choices))))


@bad_rows()
def load_choices(path: str | Path) -> ChoiceExamples:
    """Reads texts with choices, plain or compressed; the name and the rows show the format.

    - SWAG's `.csv`, also as `.jsonl` or `.parquet`: the text is `sent1`; a choice is `sent2`, which
      starts the second sentence, with one of `ending0` to `ending3`. Other columns are ignored.
    - `.jsonl` or `.parquet` with `premise`, COPA's in SuperGLUE: the text is the premise with the
      question of COPA's annotators, "What was the cause of this?" or "What happened as a result?";
      the choices are `choice1` and `choice2`.
    - other `.jsonl` or `.parquet`: {"text": "...", "choices": ["...", "..."], "label": 0}. Rows
      may have different numbers of choices.

    Labels count from 0. Test sets have none: no `label`, or -1 in all rows.

    >>> load_choices("swag/train.csv")  # doctest: +SKIP

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file has no examples, lacks a column or key, or only some rows have labels;
            a text has fewer than two choices or an empty one, or a label is not the index of one.
            The message names the file and the line.
    """
    format = file_format(path)
    if format == "tsv":
        raise ValueError(f"{path}: expected SWAG's .csv, or .jsonl or .parquet")
    rows: list[_Row] = []
    table = _swag(path) if format == "csv" else read_objects(path, format=format)
    read = _swag_row if format == "csv" else _object
    for number, value in table:
        with each_row(f"{path}:{number}"):
            text, choices, label = read(value)
            if wrong := _mistake(choices, label):
                raise ValueError(wrong)
            rows.append((number, text, choices, label))
    check_any(rows, path)
    has_labels = rows[0][3] is not None
    for number, _, _, label in rows:
        if (label is not None) != has_labels:
            what = "a label" if label is not None else "no label"
            raise ValueError(f"{path}:{number}: {what}, unlike the first row: label all or none")
    labels = [label for *_, label in rows if label is not None]
    return ChoiceExamples(
        [text for _, text, _, _ in rows],
        [choices for _, _, choices, _ in rows],
        labels if has_labels else None,
        str(path),
    )


def choices_of(rows: Sequence[Mapping[str, Any]], source: str = "memory") -> ChoiceExamples:
    """Returns the examples of rows in memory: `text`, `choices` and `label`, counted from 0.

    Args:
        rows: mappings.
        source: how error messages name the rows.

    Raises:
        ValueError: rows have no label, fewer than two choices, or an empty one; all are named.
    """
    examples = []
    reasons = {}
    for number, row in enumerate(rows):
        try:
            text, choices, label = _plain(row)
        except ValueError as error:
            reasons[number] = str(error)
            continue
        examples.append((text, choices, label))
        wrong = _mistake(choices, label)
        if label is None:
            wrong = "no label: pass the index of the right choice"
        if wrong:
            reasons[number] = wrong
    check_rows(source, reasons)
    texts, choices_of_each, labels = zip(*examples, strict=True) if examples else ((), (), ())
    return ChoiceExamples(list(texts), list(choices_of_each), list(labels), source)


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Counts of one pass over the batches."""

    source: str
    num_examples: int
    num_choices: int
    num_trimmed: int
    num_tokens: int

    def __str__(self) -> str:
        return (
            f"{self.source}: {self.num_examples} examples with {self.num_choices} choices, "
            f"{self.num_tokens} tokens, {self.num_trimmed} choices trimmed"
        )


class ChoiceBatches(LengthBatches):
    """Batches of (inputs, {"logits": index of the right choice, int32 (batch,)}), or just inputs.

    The inputs are (batch, choices, length): each choice is packed with its text. Where a text has
    fewer choices than others in its batch, the rest is padding, which `heads.multiple_choice`
    scores -1e9. The constructor tokenizes the texts. Truncated choices are counted and logged, as a
    warning.

    Args:
        examples: examples to batch; without labels the batches contain only inputs.
        pipeline: a `pipelines.MultipleChoice`, which tokenizes and packs the texts.
        batch_size: examples per forward pass.
        accumulate: forward passes per batch, for gradient accumulation.
        shuffle: whether to reshuffle on each pass.
        seed: seed for shuffling.
        static_shapes: None; see `LengthBatches`.

    Raises:
        ValueError: there are no examples, the batch size is below 1, or there are static shapes.
    """

    def __init__(
        self,
        examples: ChoiceExamples,
        pipeline: Any,
        *,
        batch_size: int,
        accumulate: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        static_shapes: int | None = None,
    ) -> None:
        if not len(examples):
            raise ValueError(f"{examples.source}: no examples")
        if static_shapes is not None:
            raise ValueError(
                f"static_shapes={static_shapes}: examples differ in the number of choices, so "
                "shapes cannot be static: leave it out"
            )
        self.examples = examples
        self.pipeline = pipeline
        counts = np.array([len(choices) for choices in examples.choices])
        flat = [choice for choices in examples.choices for choice in choices]
        tokenize = pipeline.tokenizer.tokenize
        self._texts = tokenize(
            texts_of(examples.texts, f"{examples.source}: text")
        )  # (examples, None)
        tokens = tokenize(texts_of(flat, f"{examples.source}: choices"))  # (all choices, None)
        self._choices = tf.RaggedTensor.from_row_lengths(tokens, counts)  # (examples, None, None)
        texts = tf.gather(self._texts, np.repeat(np.arange(len(counts)), counts))
        full = pipeline.lengths([texts, tokens]).numpy()  # (all choices,)
        lengths = np.minimum(full, pipeline.max_sequence_length)
        super().__init__(
            np.maximum.reduceat(lengths, np.cumsum(counts) - counts),  # of the longest choices
            batch_size=batch_size * accumulate,
            shuffle=shuffle,
            seed=seed,
            weights=examples.weights,
        )
        self.mean_lengths = float(counts.mean()), float(lengths.mean())
        self._row_size = batch_size
        self._labels = None if examples.labels is None else np.array(examples.labels, np.int32)
        self.statistics = Statistics(
            examples.source,
            len(examples),
            len(flat),
            int(np.sum(full > pipeline.max_sequence_length)),
            int(lengths.sum()),
        )
        level = logging.WARNING if self.statistics.num_trimmed else logging.INFO
        _logger.log(level, "%s", self.statistics)

    def batch(self, indices: tf.Tensor) -> Batch:
        """Returns the examples at `indices`, int32 (batch,); runs in graphs."""
        choices = tf.gather(self._choices, indices)  # (batch, None, None)
        is_choice = tf.sequence_mask(choices.row_lengths())  # (batch, choices)
        texts = tf.gather(self._texts, indices)
        inputs = self.pipeline.pack_choices(texts, choices.values, is_choice)
        if self._labels is None:
            return inputs
        return inputs, {"logits": tf.gather(self._labels, indices)}

    def of(self, examples: ChoiceExamples) -> Self:
        """Returns batches of other examples, made the same way but in order."""
        examples = dataclasses.replace(examples, weights=None)
        return type(self)(examples, self.pipeline, batch_size=self._row_size, shuffle=False)

    def samples(self, count: int) -> Samples:
        """Returns the first examples with their right choices."""
        texts = {"text": self.examples.texts[:count], "choices": self.examples.choices[:count]}
        labels = () if self.examples.labels is None else self.examples.labels[:count]
        expected = [self.examples.choices[i][label] for i, label in enumerate(labels)]
        return Samples(self.pipeline, texts, expected)


def _swag(path: str | Path) -> Iterator[tuple[int, dict[str, str]]]:
    table = read_table(path, format="csv")
    _, header = next(table, (1, []))
    columns = ("sent1", "sent2", *_ENDINGS)
    missing = [column for column in columns if header.count(column) != 1]
    if missing:
        raise ValueError(
            f"{path}:1: not one column each for {', '.join(missing)} among {header}: is it SWAG's "
            "train.csv, val.csv or test.csv? The _full files have other columns"
        )
    places = {name: header.index(name) for name in (*columns, "label") if name in header}
    for number, cells in table:
        yield number, {name: cells[place].strip() for name, place in places.items()}


def _swag_row(value: Mapping[str, str]) -> tuple[str, list[str], int | None]:
    if empty := [name for name in _ENDINGS if not value[name]]:
        raise ValueError(f"{empty[0]} is empty")
    choices = [f"{value['sent2']} {value[name]}".strip() for name in _ENDINGS]
    return value["sent1"], choices, _label(value)


def _object(value: Mapping[str, Any]) -> tuple[str, list[str], int | None]:
    if "premise" in value:
        return _copa(value)
    if not {"sent1", "sent2"} <= value.keys():
        return _plain(value)
    text, start, *endings = (_string(value, key) for key in ("sent1", "sent2", *_ENDINGS))
    return text, [f"{start} {ending}".strip() for ending in endings], _label(value)


def _copa(value: Mapping[str, Any]) -> tuple[str, list[str], int | None]:
    question = value.get("question")
    if question not in _QUESTIONS:
        raise ValueError(f"'question' is {question!r}, expected 'cause' or 'effect'")
    premise, *choices = (_string(value, key) for key in ("premise", "choice1", "choice2"))
    return f"{premise} {_QUESTIONS[question]}", choices, _label(value)


def _plain(value: Mapping[str, Any]) -> tuple[str, list[str], int | None]:
    text, choices = _string(value, "text"), value.get("choices")
    if not isinstance(choices, list) or not all(isinstance(choice, str) for choice in choices):
        raise ValueError(f"'choices' is {choices!r:.100}, expected a list of strings")
    return text, choices, _label(value)


def _string(value: Mapping[str, Any], key: str) -> str:
    text = value.get(key)
    if not isinstance(text, str):
        keys = ", ".join(value)
        raise ValueError(f"{key!r} is {text!r:.100}, expected a string (keys: {keys})")
    return text


def _label(value: Mapping[str, Any]) -> int | None:
    return _index(value["label"]) if "label" in value else None


def _index(label: Any) -> int | None:
    """Returns a label as a number; None for -1, as in Hugging Face's test sets."""
    if isinstance(label, float) and label.is_integer():  # as pandas writes whole numbers
        label = int(label)
    if not isinstance(label, int | str) or not re.fullmatch(r"\s*-?\d{1,9}\s*", str(label)):
        raise ValueError(f"the label is {label!r:.100}, expected a number from 0")
    return None if int(label) == -1 else int(label)


def _mistake(choices: Sequence[str], label: int | None) -> str:
    """Returns what is wrong with an example, or ""."""
    if isinstance(choices, str) or len(choices) < 2:
        return f"the choices are {choices!r:.100}, expected two or more"
    if "" in choices:
        return f"choice {list(choices).index('')} is empty: write a text, or remove it"
    if label is not None and not 0 <= label < len(choices):
        return f"the label is {label}, expected 0 to {len(choices) - 1}"
    return ""
