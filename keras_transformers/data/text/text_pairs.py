"""Reads and batches texts for training embeddings: pairs, triples and scored pairs."""

import dataclasses
import itertools
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import tensorflow as tf

from keras_transformers.data.bad_rows import (
    RowOptions,
    bad_rows,
    check_any,
    check_rows,
    each_row,
)
from keras_transformers.data.batching import LengthBatches, Samples
from keras_transformers.data.faults import Content, content, log_faults
from keras_transformers.data.rows import Rows
from keras_transformers.data.splits import by_keys
from keras_transformers.data.static_shapes import Batch
from keras_transformers.data.tables.columns import Choice, Column, Header, read_columns
from keras_transformers.data.tables.reading import FileFormat
from keras_transformers.data.text.squad import load_squad
from keras_transformers.ranges import AnyInt, Fraction, PositiveFloat, Rate
from keras_transformers.tokenizers.tensors import texts_of

__all__ = [
    "TextPairBatches",
    "TextPairFiles",
    "TextPairs",
    "load_text_pairs",
    "pairs_of_questions",
    "split_text_pairs",
]

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class TextPairs(Rows):
    """Texts, each with a matching text.

    Attributes:
        texts: the texts, such as questions or titles.
        partners: the matching text for each, such as an answer or a paraphrase.
        negatives: texts that look like matches but are not, equally many for each text; () if there
            are none.
        scores: how similar text and partner are in meaning, from 0 to 1; None if all pairs match.
        teacher: another model's scores for each text, of its partner and of its negatives, to learn
            these; () if there are none.
        source: where they come from, for messages.

    Raises:
        ValueError: the columns differ in length, texts have different numbers of negatives, there
            are negatives and scores, a score is not from -1 to 1, or a text has not one teacher's
            score for each of its two or more documents.
    """

    texts: Sequence[str]
    partners: Sequence[str]
    negatives: Sequence[Sequence[str]] = ()
    scores: Sequence[float] | None = None
    source: str = "memory"
    teacher: Sequence[Sequence[float]] = ()

    def __post_init__(self) -> None:
        columns: dict[str, Sequence[Any]] = {"partners": self.partners}
        if self.teacher:
            columns["lists of a teacher's scores"] = self.teacher
        if self.negatives:
            columns["lists of negatives"] = self.negatives
        if self.scores is not None:
            columns["scores"] = self.scores
        for name, values in columns.items():
            if len(values) != len(self.texts):
                raise ValueError(f"{self.source}: {len(values)} {name} for {len(self.texts)} texts")
        if self.negatives and self.scores is not None:
            raise ValueError(f"{self.source}: pass negatives or scores, not both")
        counts = {len(texts) for texts in self.negatives}
        if len(counts) > 1:
            raise ValueError(
                f"{self.source}: {min(counts)} to {max(counts)} negatives: every text needs as many"
            )
        reasons = {
            row: f"the score {score:g} is not from -1 to 1: divide the scores by their highest "
            "value"
            for row, score in enumerate(self.scores or ())
            if not -1 <= score <= 1
        }
        documents = 1 + max(counts, default=0)
        reasons |= {
            row: f"{len(scores)} teacher's scores for {documents} documents, text_b and its "
            "negatives: pass one for each, and at least one negative"
            for row, scores in enumerate(self.teacher)
            if documents < 2 or len(scores) != documents
        }
        check_rows(self.source, reasons)

    def _content(self, index: int) -> Content:
        score = None if self.scores is None else self.scores[index]
        return content(self.texts[index], self.partners[index], label=score)

    def documents(self) -> list[str]:
        """Returns the texts to search: every distinct partner and negative, in order."""
        return list(dict.fromkeys([*self.partners, *(x for row in self.negatives for x in row)]))

    def queries(self) -> dict[str, set[str]]:
        """Returns each text once -> all of its partners."""
        partners: dict[str, set[str]] = {}
        for text, partner in zip(self.texts, self.partners, strict=True):
            partners.setdefault(text, set()).add(partner)
        return partners


@bad_rows()
def load_text_pairs(
    path: str | Path,
    *,
    text_column: Column = 0,
    text_b_column: Column = 1,
    negative_columns: Sequence[Column] = (),
    score_column: Column | None = None,
    score_scale: float = 1.0,
    header: Header = "auto",
    format: FileFormat | None = None,
    delimiter: str = "auto",
    encoding: str = "utf-8",
) -> TextPairs:
    """Reads pairs, triples or scored pairs from TSV, CSV, JSON Lines or Parquet.

    Args:
        path: the file, plain or compressed.
        text_column: header name, JSON key or index of the text.
        text_b_column: the column of its partner.
        negative_columns: the columns of texts that do not match it.
        score_column: the column of the pair's score; None if all pairs match.
        score_scale: divides the scores, such as 5 for STS-B.
        header: see `load`, as for the next two.
        format: None infers it from the file name.
        delimiter: separates the cells of a row.
        encoding: the file's encoding, such as "utf-8", "utf-16" or "cp1252".

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: see `load`; or a score is not a number, or outside -1 to 1 after division. The
            message names the file and the line.
    """
    texts = [text_column, text_b_column, *negative_columns]
    choice = Choice(texts=texts, label=score_column, header=header)
    rows: list[tuple[list[str], float]] = []
    for number, cells in read_columns(
        path, choice, format=format, delimiter=delimiter, encoding=encoding
    ):
        with each_row(f"{path}:{number}"):
            score = 1.0 if score_column is None else _score(cells[-1], score_scale)
            rows.append((cells, score))
    check_any(rows, path)
    scores = None if score_column is None else [score for _, score in rows]
    return TextPairs(
        [cells[0] for cells, _ in rows],
        [cells[1] for cells, _ in rows],
        [cells[2 : 2 + len(negative_columns)] for cells, _ in rows] if negative_columns else (),
        scores,
        str(path),
    )


def pairs_of_questions(path: str | Path) -> TextPairs:
    """Reads SQuAD's files as questions, each with the paragraph that answers it.

    Raises:
        FileNotFoundError, ValueError: see `load_squad`.
    """
    questions = load_squad(path, answered=False)
    contexts = [questions.contexts[i] for i in questions.context_of]
    return TextPairs(questions.questions, contexts, source=str(path))


def split_text_pairs(pairs: TextPairs, share: float) -> tuple[TextPairs, TextPairs]:
    """Divides pairs so that each partner is in only one part, by the number of partners alone.

    Args:
        pairs: pairs to divide.
        share: the share of the second part, above 0 and below 1.

    Raises:
        ValueError: a part would be empty.
    """
    train, held_out = by_keys(pairs.partners, share, f"{pairs.source}: different partners")
    return pairs.select(train), pairs.select(held_out)


class TextPairSplits(NamedTuple):
    """Pairs for training, model selection and testing."""

    train: TextPairs
    dev: TextPairs
    test: TextPairs | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextPairFiles(RowOptions):
    """Options for pairs of texts; a base class for recipe configurations."""

    # .tsv, .txt (tabs), .csv, .jsonl or .parquet, plain or compressed; several are joined
    train_file: tuple[Path, ...]
    dev_file: tuple[Path, ...] = ()  # chooses the best epoch; none: a share of the training files
    test_file: tuple[Path, ...] = ()  # measured once, at the end
    dev_fraction: Fraction = (
        0.1  # the dev set's share of the training files, the same for all seeds
    )
    test_fraction: Rate = 0.0  # held out from the training files first; the same for all seeds
    text_column: AnyInt | str = 0  # index from 0 (-1: the last), or name
    text_b_column: AnyInt | str = 1  # the matching text
    negative_columns: tuple[AnyInt | str, ...] = ()  # texts that do not match
    score_column: AnyInt | str | None = None  # how similar the two are in meaning
    score_scale: PositiveFloat = 1.0  # divides the scores: 5 for SICK and STS-B
    header: Literal["auto", "present", "absent"] = "auto"  # does the first row name the columns?
    delimiter: str = "auto"  # separates columns: a character, or tab; auto detects it in a .csv
    encoding: str = "utf-8"  # encoding of the files, such as utf-16 or cp1252
    squad: bool = False  # the files are SQuAD's: a question matches its paragraph

    def read(self) -> TextPairSplits:
        """Reads the files; holds out the parts for dev and test from each file separately.

        Raises:
            FileNotFoundError: a file does not exist.
            ValueError: a row is invalid; the message names file and line.
        """
        with self.bad_rows():
            train = [self._read(path) for path in self.train_file]
            test = [self._read(path) for path in self.test_file]
            dev = [self._read(path) for path in self.dev_file]
        joined = (_joined(files) if files else None for files in (train, dev, test))
        log_faults(*joined)
        if not test and self.test_fraction:
            train, test = _apart(train, self.test_fraction)
        if not dev:
            train, dev = _apart(train, self.dev_fraction)
        return TextPairSplits(_joined(train), _joined(dev), _joined(test) if test else None)

    def _read(self, path: Path) -> TextPairs:
        if self.squad:
            return pairs_of_questions(path)
        return load_text_pairs(
            path,
            text_column=self.text_column,
            text_b_column=self.text_b_column,
            negative_columns=self.negative_columns,
            score_column=self.score_column,
            score_scale=self.score_scale,
            header=self.header,
            delimiter=self.delimiter,
            encoding=self.encoding,
        )


class TextPairBatches(LengthBatches):
    """Batches of (inputs, {"embedding": targets}) for `heads.grouped_embedder`.

    The inputs are (batch, group, length), or (batch, group, windows, length) if the pipeline reads
    long texts in windows: a text, its partner and its negatives. The targets are
    int32 (batch, group), equal for equal texts, for `training.InBatchContrast`; for scored pairs,
    float32 (batch,), for `training.PairSimilarity`; a teacher's scores are float32 (batch, group -
    1). The constructor tokenizes the texts. If the pipeline has prompts named "query" and
    "document", texts get the first and all others the second; scored pairs get the default prompt.

    Args:
        pairs: pairs to batch.
        pipeline: a `pipelines.Embedder`, which tokenizes and packs the texts.
        batch_size: pairs per batch.
        accumulate: batches per update; texts in different batches are not compared.
        shuffle: whether to reshuffle on each pass.
        seed: seed for shuffling.
        static_shapes: None; see `LengthBatches`.

    Raises:
        ValueError: there are no pairs, the batch size is below 1, or there are static shapes.
    """

    def __init__(
        self,
        pairs: TextPairs,
        pipeline: Any,
        *,
        batch_size: int,
        accumulate: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        static_shapes: int | None = None,
    ) -> None:
        if not len(pairs):
            raise ValueError(f"{pairs.source}: no pairs")
        if static_shapes is not None:
            raise ValueError(
                f"static_shapes={static_shapes}: rows that complete a batch would be compared with "
                "the others: leave it out"
            )
        self.pairs = pairs
        self.pipeline = pipeline
        columns = [pairs.texts, pairs.partners, *zip(*pairs.negatives, strict=True)]
        self._group = len(columns)
        self._segments, full, most = self._tokenized(columns)
        counts = np.stack([pipeline.num_windows([segment]).numpy() for segment in self._segments])
        lengths = np.minimum(full, most)
        super().__init__(
            np.max(lengths * counts, axis=0),  # the positions of the longest text's windows
            batch_size=batch_size * accumulate,
            shuffle=shuffle,
            seed=seed,
        )
        self.mean_lengths = self._mean_lengths(counts, lengths)
        self._row_size = batch_size
        ids = {text: number for number, text in enumerate(dict.fromkeys(itertools.chain(*columns)))}
        numbers = pairs.teacher or pairs.scores
        self._targets = tf.constant(
            np.array([[ids[text] for text in column] for column in columns], np.int32).T
            if numbers is None
            else np.array(numbers, np.float32)
        )
        num_trimmed = 0 if pipeline.reads_windows else int(np.sum(full > lengths))
        _logger.log(
            logging.WARNING if num_trimmed else logging.INFO,
            "%s: %d pairs, %d texts each in %d windows, %d truncated",
            *(pairs.source, len(pairs), self._group, counts.sum(), num_trimmed),
        )

    def batch(self, indices: tf.Tensor) -> Batch:
        """Returns the pairs at `indices`, int32 (batch,); runs in graphs."""
        segments = tf.concat([tf.gather(part, indices) for part in self._segments], axis=0)
        packed = self.pipeline.pack([segments])  # (group * batch, length), or with windows between
        groups = tf.stack([self._group, tf.shape(indices)[0]])
        inputs = {}
        for name, value in packed.items():
            grouped = tf.reshape(value, tf.concat([groups, tf.shape(value)[1:]], axis=0))
            others = range(2, value.shape.rank + 1)
            inputs[name] = tf.transpose(grouped, [1, 0, *others])
            inputs[name].set_shape([None, self._group, *[None] * len(others)])
        return inputs, {"embedding": tf.gather(self._targets, indices)}

    def of(self, pairs: TextPairs) -> Self:
        """Returns batches of other pairs, made the same way but in order."""
        return type(self)(pairs, self.pipeline, batch_size=self._row_size, shuffle=False)

    def samples(self, count: int) -> Samples:
        """Returns the first texts with their partners."""
        return Samples(
            self.pipeline, {"text": self.pairs.texts[:count]}, self.pairs.partners[:count]
        )

    def _tokenized(
        self, columns: Sequence[Sequence[str]]
    ) -> tuple[list[tf.RaggedTensor], np.ndarray, int | np.ndarray]:
        """Tokenizes the texts, their partners and each column of negatives.

        Returns:
            The tokens of each column; how many there are with special tokens, (group, rows); and
            how many of them are read, of each column (group, 1) if they differ.
        """
        pipeline, source = self.pipeline, f"{self.pairs.source}: text"
        prompts = self._prompts(pipeline, scored=self.pairs.scores is not None)
        segments = [
            pipeline.tokenize(texts_of(column, source), prompt=prompts[min(place, 1)])[0]
            for place, column in enumerate(columns)
        ]
        full = np.stack([pipeline.lengths([segment]).numpy() for segment in segments])
        return segments, full, pipeline.max_sequence_length

    def _mean_lengths(self, counts: np.ndarray, lengths: np.ndarray) -> float | tuple[float, ...]:
        """Returns `mean_lengths`, from the windows and tokens of each text, (group, rows)."""
        of_windows = [float(counts.mean())] if self.pipeline.reads_windows else []
        return float(self._group), *of_windows, float(lengths.mean())

    @staticmethod
    def _prompts(pipeline: Any, *, scored: bool) -> list[str | None]:
        if scored or not {"query", "document"} <= set(pipeline.prompts):
            return [None, None]
        return [pipeline.prompts["query"], pipeline.prompts["document"]]


def _score(cell: str, scale: float) -> float:
    try:
        value = float(cell) / scale
    except ValueError:
        raise ValueError(f"the score is {cell!r:.60}, expected a number") from None
    if not -1 <= value <= 1:
        raise ValueError(
            f"the score {cell} divided by {scale:g} is not from -1 to 1: pass "
            "score_scale, the highest score"
        )
    return value


def _apart(files: Sequence[TextPairs], share: float) -> tuple[list[TextPairs], list[TextPairs]]:
    parts = [split_text_pairs(pairs, share) for pairs in files]
    return [one for one, _ in parts], [other for _, other in parts]


def _joined(files: Sequence[TextPairs]) -> TextPairs:
    """Joins the pairs of several files."""
    if len({(bool(x.negatives), x.scores is None, bool(x.teacher)) for x in files}) > 1:
        raise ValueError(
            f"{', '.join(pairs.source for pairs in files)}: all need the same columns: "
            "negatives, scores, a teacher's scores, or none of them"
        )
    scores = None
    if files[0].scores is not None:
        scores = [score for pairs in files for score in pairs.scores or ()]
    return TextPairs(
        [text for pairs in files for text in pairs.texts],
        [text for pairs in files for text in pairs.partners],
        [texts for pairs in files for texts in pairs.negatives],
        scores,
        ", ".join(pairs.source for pairs in files),
        [numbers for pairs in files for numbers in pairs.teacher],
    )
