"""Texts whose targets are probabilities, such as a teacher's answers."""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import tensorflow as tf

from keras_transformers.data.text.classification import TextBatches, label_ids
from keras_transformers.data.text.examples import Examples
from keras_transformers.files import read_lines, replaced

__all__ = ["ProbabilityBatches", "kept_array", "random_spans", "read_texts"]

_logger = logging.getLogger(__name__)


class ProbabilityBatches(TextBatches):
    """Batches of (inputs, {"logits": probabilities float32 (batch, classes)}); see `TextBatches`.

    Args:
        examples: labelled examples, whose labels are certain, or others.
        pipeline: see `TextBatches`.
        probabilities: of each example, (examples, classes); None for labelled examples.
        options: see `TextBatches`.

    Raises:
        ValueError: the examples have neither labels nor probabilities, or their number differs.
    """

    def __init__(
        self,
        examples: Examples,
        pipeline: Any,
        *,
        probabilities: np.ndarray | None = None,
        **options: Any,
    ) -> None:
        self._probabilities = probabilities
        if probabilities is not None and len(probabilities) != len(examples):
            raise ValueError(
                f"{examples.source}: {len(probabilities)} rows of probabilities for "
                f"{len(examples)} texts"
            )
        super().__init__(examples, pipeline, **options)
        self._targets = self.targets(examples)

    def targets(self, examples: Examples) -> dict[str, Any]:
        """Returns model output name -> targets (examples, classes)."""
        found = self._probabilities
        if found is None:
            found = np.eye(len(self.pipeline.labels))[label_ids(examples, self.pipeline.labels)]
        return {"logits": tf.constant(found, tf.float32)}

    def of(self, examples: Examples) -> Self:
        """Returns batches of other, labelled examples, made the same way but in order."""
        return type(self)(
            examples,
            self.pipeline,
            batch_size=self._row_size,
            shuffle=False,
            static_shapes=self.static_shapes,
        )


def read_texts(
    paths: Sequence[Path],
    *,
    without: Iterable[Examples] = (),
    least_words: int = 1,
    shared_words: int | None = None,
) -> Examples:
    """Reads texts without labels, one per line; repeated ones count once.

    Args:
        paths: UTF-8 files, decompressed if their names end in `.gz`.
        without: examples whose texts are left out, such as those to measure on.
        least_words: shorter texts are left out.
        shared_words: a text that has so many words in a row, whatever their case and punctuation,
            in common with one of `without` is left out, too; None: only equal texts are.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a file is not UTF-8 (the message names file and line), or no text is left.
    """
    source = ", ".join(map(str, paths[:3])) + (" ..." if len(paths) > 3 else "")
    lines = [line.strip() for path in paths for line in read_lines(path)]
    texts = [line for line in lines if len(line.split()) >= least_words]
    found = Examples(texts, source=source)
    known = {examples.key(i) for examples in without for i in range(len(examples))}
    first: dict[Any, int] = {}
    for i in range(len(found)):
        first.setdefault(found.key(i), i)
    kept = [i for key, i in first.items() if key not in known]
    if shared_words:
        seen = {run for examples in without for run in _runs_of_words(examples.texts, shared_words)}
        kept = [i for i in kept if seen.isdisjoint(_runs_of_words([texts[i]], shared_words))]
    _logger.info(
        "%s: %d lines, %d texts of %d words or more, %d of them different, %d to keep",
        *(source, len(lines), len(texts), least_words, len(first), len(kept)),
    )
    if not kept:
        raise ValueError(f"{source}: no text of {least_words} words or more is left")
    return found.select(kept)


def random_spans(texts: Iterable[str], *, per_text: int, seed: int = 0) -> list[str]:
    """Draws runs of words from texts: as a teacher labels them, they are like SST's phrases.

    Args:
        texts: words are what stands between spaces; a text of fewer than 3 has no spans.
        per_text: number of spans of each text. Lengths are even from 2 words to all but one.
        seed: of the draws.

    Returns:
        The spans, without repetitions, in the order of the texts.

    Source: Tang et al. 2019, "Distilling Task-Specific Knowledge from BERT into Simple Neural
    Networks", section 3.3, whose n-grams have 1 to 5 words.
    """
    random = np.random.default_rng(seed)
    spans: dict[str, None] = {}
    for text in texts:
        words = text.split()
        for _ in range(per_text if len(words) > 2 else 0):
            length = random.integers(2, len(words))
            start = random.integers(len(words) - length + 1)
            spans[" ".join(words[start : start + length])] = None
    return list(spans)


def _runs_of_words(texts: Iterable[str], length: int) -> Iterator[tuple[str, ...]]:
    """Yields every run of `length` words of the texts."""
    for text in texts:
        words = re.findall(r"\w+", text.lower())
        for start in range(len(words) - length + 1):
            yield tuple(words[start : start + length])


def kept_array(path: Path, make: Callable[[], np.ndarray]) -> np.ndarray:
    """Returns the array in a file, made once; a stopped run finds it there."""
    if not path.is_file():
        array = make()
        with replaced(path) as scratch, open(scratch, "wb") as file:
            np.save(file, array)
    return np.load(path)
