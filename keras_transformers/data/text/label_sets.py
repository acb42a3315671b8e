"""Reads and batches texts, or pairs of texts, with any number of labels each."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformers.data.bad_rows import bad_rows, check_any, check_rows, each_row
from keras_transformers.data.faults import Content, log_faults
from keras_transformers.data.splits import at_random
from keras_transformers.data.tables.columns import Choice, Column, Header, read_columns
from keras_transformers.data.tables.reading import FileFormat, file_format, read_objects
from keras_transformers.data.text.classification import TextBatches, counted
from keras_transformers.data.text.conll import OUTSIDE, Sentences, load_conll
from keras_transformers.data.text.examples import Examples, check_weight, weights_of
from keras_transformers.data.text.labelled_files import LabelledTables
from keras_transformers.data.weighting import ClassWeight, balanced, class_weights

__all__ = [
    "LabelSetBatches",
    "LabelSetFiles",
    "LabelSetSplits",
    "LabelSets",
    "entity_types",
    "label_names",
    "load_label_sets",
    "split_label_sets",
]


@dataclasses.dataclass(frozen=True)
class LabelSets(Examples):
    """Texts, or pairs of texts, with sets of labels.

    Attributes:
        texts: the first texts, unchanged; may be empty strings.
        texts_b: the second texts of pairs, or None.
        labels: the labels of each text: any number of them, in any order, each once; or None.
        source: where the examples come from, for messages.
        weights: the weight of each example in the training loss, or None.
    """

    labels: Sequence[Sequence[str]] | None = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        reasons = {
            row: f"a label occurs twice in {list(names)}"
            for row, names in enumerate(self.labels or ())
            if len(set(names)) < len(names)
        }
        check_rows(self.source, reasons)

    def _content(self, index: int) -> Content:
        names = None if self.labels is None else frozenset(self.labels[index])
        return super()._content(index)._replace(label=names)

    def matrix(self, labels: Sequence[str]) -> np.ndarray:
        """Returns which text has which label: float32 (examples, labels), 0 or 1.

        Raises:
            ValueError: there are no labels, or one is not in `labels`.
        """
        if self.labels is None:
            raise ValueError(f"{self.source}: examples without labels cannot be targets")
        ids = {label: i for i, label in enumerate(labels)}
        has = np.zeros((len(self), len(ids)), np.float32)
        for row, names in enumerate(self.labels):
            for label in names:
                if label not in ids:
                    raise ValueError(
                        f"{self.source}, row {row}: unknown label {label!r}, expected one of "
                        f"{list(labels)}"
                    )
                has[row, ids[label]] = 1
        return has

    def with_one_label(self) -> Examples:
        """Returns the texts with their only label each.

        Raises:
            ValueError: a text has none, or several.
        """
        for row, names in enumerate(self.labels or ()):
            if len(names) != 1:
                raise ValueError(
                    f"{self.source}, row {row}: {len(names)} labels {list(names)}, expected one; "
                    "use a classifier for several labels"
                )
        labels = None if self.labels is None else [label for (label,) in self.labels]
        return Examples(self.texts, self.texts_b, labels, self.source, self.weights)


def label_names(examples: LabelSets) -> list[str]:
    """Returns the labels that occur, sorted.

    Raises:
        ValueError: fewer than two occur.
    """
    names = sorted({label for row in examples.labels or () for label in row})
    if len(names) < 2:
        raise ValueError(
            f"{examples.source}: {len(names)} different labels {names}; at least two are needed. "
            "Is this the right column?"
        )
    return names


@bad_rows()
def load_label_sets(
    path: str | Path,
    *,
    text_column: Column = 0,
    text_b_column: Column | None = None,
    label_column: Column = 1,
    weight_column: Column | None = None,
    separator: str = ",",
    header: Header = "auto",
    format: FileFormat | None = None,
    labels: Sequence[str] | None = None,
    delimiter: str = "auto",
    encoding: str = "utf-8",
) -> LabelSets:
    """Reads texts with any number of labels from TSV, CSV, JSON Lines or Parquet.

    Args:
        path: the file, plain or compressed.
        text_column: header name, JSON key or index of the text.
        text_b_column: the column of the second text of a pair; None for single texts.
        label_column: the column of the labels: in JSON and Parquet a list, else one cell with all
            labels of a text; an empty cell means none.
        weight_column: column of the examples' weights in the training loss; None reads none.
        separator: separates the labels in a cell.
        header: see `load`, as for the next two.
        format: "tsv", "csv", "jsonl" or "parquet"; None infers it from the file name.
        labels: the allowed labels; None allows all.
        delimiter: separates the cells of a row.
        encoding: the file's encoding, such as "utf-8", "utf-16" or "cp1252".

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: see `load`; a label occurs twice in a row; or a list has something else than
            strings. The message names the file and the line.
    """
    columns = [text_column, *([] if text_b_column is None else [text_b_column])]
    choice = Choice(
        texts=columns, label=label_column, weight=weight_column, header=header, labels=labels
    )
    rows: list[tuple[int, list[Any], list[str]]] = []
    kind = format or file_format(path)
    in_lists = kind == "jsonl" or kind == "parquet"
    table: Iterable[tuple[int, Any]] = (
        read_objects(path, format=kind, encoding=encoding)
        if kind == "jsonl" or kind == "parquet"
        else read_columns(path, choice, format=kind, delimiter=delimiter, encoding=encoding)
    )
    for number, row in table:
        with each_row(f"{path}:{number}"):
            cells = [_cell(row, name) for name in choice.all] if in_lists else row
            names = cells[-1] if in_lists else _parts(cells[-1], separator)
            _check(cells[: len(columns)], names)
            check_weight(cells, choice)
            rows.append((number, cells[:-1], names))
    check_any(rows, path)
    for number, _, names in rows:
        if labels is not None and (unknown := [name for name in names if name not in labels]):
            raise ValueError(
                f"{path}:{number}: unknown label {unknown[0]!r}, expected one of {list(labels)}"
            )
    return LabelSets(
        [texts[0] for _, texts, _ in rows],
        [texts[1] for _, texts, _ in rows] if text_b_column is not None else None,
        [names for *_, names in rows],
        str(path),
        weights_of(path, [(number, cells) for number, cells, _ in rows], choice),
    )


def _parts(cell: str, separator: str) -> list[str]:
    parts = [part.strip() for part in cell.split(separator)]
    return [part for part in parts if part]


def _check(texts: Sequence[Any], names: Any) -> None:
    """Raises ValueError if a row has no texts and labels."""
    if not isinstance(names, list):
        raise ValueError(f"labels are {names!r:.80}, expected a list")
    if wrong := [cell for cell in (*texts, *names) if not isinstance(cell, str)]:
        raise ValueError(f"{wrong[0]!r:.80} is not a string")
    if len(set(names)) < len(names):
        raise ValueError(f"a label occurs twice in {names}")


def split_label_sets(examples: LabelSets, share: float) -> tuple[LabelSets, LabelSets]:
    """Divides examples at random into two parts, the same for the same number of examples.

    Args:
        examples: examples to divide.
        share: the share of the second part, above 0 and below 1.

    Raises:
        ValueError: a part would be empty.
    """
    train, held_out = at_random(len(examples), share, f"{examples.source}: examples")
    return examples.select(train), examples.select(held_out)


def entity_types(sentences: Sentences) -> LabelSets:
    """Returns sentences with the types of the entities in them, such as PER and LOC.

    Raises:
        ValueError: the sentences have no labels.

    Example:
        >>> found = entity_types(Sentences([["Ada", "sings"]], [["B-PER", "O"]]))
        >>> found.texts, found.labels
        (['Ada sings'], [['PER']])
    """
    if sentences.labels is None:
        raise ValueError(f"{sentences.source}: sentences without labels have no types of entities")
    types = [
        sorted({label.partition("-")[2] for label in row if label != OUTSIDE})
        for row in sentences.labels
    ]
    return LabelSets([" ".join(words) for words in sentences.words], None, types, sentences.source)


class LabelSetSplits(NamedTuple):
    """Examples for training, model selection and testing, and the labels in the order of ids."""

    train: LabelSets
    dev: LabelSets
    test: LabelSets | None
    labels: list[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelSetFiles(LabelledTables):
    """Options for texts with any number of labels; a base class for recipe configurations."""

    separator: str = ","  # separates the labels in a cell; JSON and Parquet have lists
    conll: bool = False  # the files are CoNLL's; the labels are the types of entities in a sentence

    def read(self) -> LabelSetSplits:
        """Reads the files.

        Raises:
            FileNotFoundError: a file does not exist.
            ValueError: a row or label is invalid; the message names file and line.
        """
        with self.bad_rows():
            train = self._read(self.train_file, self.labels or None, self.weight_column)
            labels = list(self.labels) or label_names(train)
            dev = self._read(self.dev_file, labels) if self.dev_file else None
            test = self._read(self.test_file, labels) if self.test_file else None
        log_faults(train, dev, test)
        if dev is None:
            train, dev = split_label_sets(train, self.dev_fraction)
        return LabelSetSplits(train, dev, test, labels)

    def _read(
        self,
        path: Path,
        labels: Sequence[str] | None,
        weight_column: Column | None = None,
    ) -> LabelSets:
        if self.conll:
            return entity_types(load_conll(path, encoding=self.encoding))
        return load_label_sets(
            path,
            text_column=self.text_column,
            text_b_column=self.text_b_column,
            label_column=self.label_column,
            weight_column=weight_column,
            separator=self.separator,
            header=self.header,
            labels=labels,
            delimiter=self.delimiter,
            encoding=self.encoding,
        )


class LabelSetBatches(TextBatches):
    """Batches of (inputs, {"logits": float32 (batch, labels), 0 or 1}); see `TextBatches`.

    Raises:
        ValueError: there are no examples, the batch size is below 1, or the pipeline does not know
            a label.
    """

    def targets(self, examples: Any) -> dict[str, Any]:
        """Returns model output name -> targets (examples, labels)."""
        return {"logits": tf.constant(examples.matrix(self.pipeline.labels))}

    def counts(self, examples: Any) -> dict[str, int] | None:
        """Returns each label -> its number of examples; None if they have no labels."""
        if examples.labels is None:
            return None
        return counted((name for row in examples.labels for name in row), self.pipeline.labels)

    def class_weights(self, class_weight: ClassWeight, counts: Mapping[str, int]) -> np.ndarray:
        """Returns the weights of not having and of having each label: float32 (labels, 2).

        "balanced" weighs both the same in total, for each label; a mapping's weights are those of
        having the label, and not having it weighs 1.
        """
        if class_weight == "balanced":
            size = len(self.examples)
            return np.stack([balanced([size - count, count]) for count in counts.values()])
        having = class_weights(class_weight, counts)
        return np.stack([np.ones_like(having), having], axis=1)

    def target_weights(self, targets: tf.Tensor, of_class: np.ndarray) -> tf.Tensor:
        """Returns the weight of each label of each text: float32 (batch, labels)."""
        return tf.where(targets > 0, of_class[:, 1], of_class[:, 0])

    def samples(self, count: int) -> Any:
        """Returns the first examples with their labels."""
        samples = super().samples(count)
        return samples._replace(expected=[", ".join(labels) for labels in samples.expected])


def _cell(value: Any, name: Column) -> Any:
    keys = list(value)
    if isinstance(name, int) and -len(keys) <= name < len(keys):
        name = keys[name]
    if name not in value:
        raise ValueError(f"no column {name!r} among {', '.join(keys)}")
    cell = value[name]
    return list(cell) if isinstance(cell, list | tuple) else cell
