"""Batches texts whose targets are probabilities, such as a teacher's answers."""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.data.text.classification import TextBatches, label_ids
from keras_transformers.data.text.examples import Examples
from keras_transformers.files import read_lines, replaced
from keras_transformers.tokenizers.scripts import WORD, words_of

__all__ = ["ProbabilityBatches", "kept_array", "random_spans", "read_texts"]

_logger = logging.getLogger(__name__)


class ProbabilityBatches(TextBatches):
    """Batches of (inputs, {"logits": probabilities float32 (batch, classes)}); see `TextBatches`.

    Args:
        examples: labelled examples, whose labels get probability 1, or unlabelled ones.
        pipeline: see `TextBatches`.
        probabilities: one distribution per example, (examples, classes); None for labelled
            examples.
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
        probabilities = self._probabilities
        if probabilities is None:
            probabilities = np.eye(len(self.pipeline.labels))[
                label_ids(examples, self.pipeline.labels)
            ]
        return {"logits": tf.constant(probabilities, tf.float32)}

    def target_weights(self, targets: tf.Tensor, of_class: np.ndarray) -> tf.Tensor:
        """Returns the mean weight of each text's classes: float32 (batch,)."""
        return tf.linalg.matvec(targets, of_class)


def read_texts(
    paths: Sequence[Path],
    *,
    without: Sequence[Examples] = (),
    least_words: int = 1,
    shared_words: int | None = None,
) -> Examples:
    """Reads texts without labels, one per line; repeated texts are used once.

    Args:
        paths: UTF-8 files, plain or compressed.
        without: examples whose texts are left out, such as those for evaluation.
        least_words: shorter texts are left out. In scripts without spaces, such as Chinese, here
            and below each character counts as a word.
        shared_words: also leaves out texts that share this many consecutive words with one of
            `without`, ignoring case and punctuation; None leaves out only equal texts.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a file is not UTF-8 (the message names file and line), no text is left, or
            `shared_words` is below 1.
    """
    if shared_words is not None and shared_words < 1:
        raise ValueError(f"shared_words is {shared_words}, must be 1 or more")
    source = ", ".join(map(str, paths[:3])) + (" ..." if len(paths) > 3 else "")
    lines = [line.strip() for path in paths for line in read_lines(path)]
    texts = [line for line in lines if len(words_of(line)) >= least_words]
    candidates = Examples(texts, source=source)
    keys_of_examples = {examples.key(i) for examples in without for i in range(len(examples))}
    first: dict[Any, int] = {}
    for i in range(len(candidates)):
        first.setdefault(candidates.key(i), i)
    kept = [i for key, i in first.items() if key not in keys_of_examples]
    num_known = len(first) - len(kept)
    if shared_words is not None:
        seen = {run for examples in without for run in _runs_of_words(examples.texts, shared_words)}
        kept = [i for i in kept if seen.isdisjoint(_runs_of_words([texts[i]], shared_words))]
    overlapping = len(first) - num_known - len(kept)
    counts = (
        f"{len(lines)} lines, {len(texts)} texts of {least_words} words or more, {len(first)} of "
        f"them different; left out: {num_known} that are examples, {overlapping} that share words"
    )
    _logger.info("%s: %s; %d to keep", source, counts, len(kept))
    if not kept:
        raise ValueError(f"{source}: no text is left of {counts}")
    return candidates.select(kept)


def random_spans(
    examples: Examples, *, per_text: int, seed: int = 0, without: Iterable[Examples] = ()
) -> list[str]:
    """Draws random runs of words from texts; labelled by a teacher, they resemble SST's phrases.

    Args:
        examples: texts; one with fewer than 3 words yields no spans. Words end at spaces; in
            scripts without spaces, such as Chinese, each character is a word.
        per_text: spans to draw from each text. Lengths are uniform from 2 words to all but one.
        seed: seed of the draws.
        without: more examples that no span may equal, such as those for evaluation.

    Returns:
        The spans, none of them a text of `examples` or drawn before, in the order of the texts.

    Raises:
        ValueError: `per_text` is negative.

    Example:
        >>> sorted(random_spans(Examples(["a fine film"]), per_text=20))
        ['a fine', 'fine film']

    Source: Tang et al. 2019, "Distilling Task-Specific Knowledge from BERT into Simple Neural
    Networks", section 3.3, whose n-grams have 1 to 5 words.
    """
    if per_text < 0:
        raise ValueError(f"per_text is {per_text}, must be 0 or more")
    random = np.random.default_rng(seed)
    spans: dict[str, None] = {}
    for text in examples.texts:
        words = [word.span() for word in WORD.finditer(text)]
        for _ in range(per_text if len(words) > 2 else 0):
            length = random.integers(2, len(words))
            start = random.integers(len(words) - length + 1)
            span = text[words[start][0] : words[start + length - 1][1]]
            spans[" ".join(span.split())] = None
    candidates = Examples(list(spans))
    keys_of_examples = {
        others.key(i) for others in (examples, *without) for i in range(len(others))
    }
    return [
        span for i, span in enumerate(candidates.texts) if candidates.key(i) not in keys_of_examples
    ]


def _runs_of_words(texts: Iterable[str], length: int) -> Iterator[tuple[str, ...]]:
    """Yields every run of `length` words of the texts."""
    for text in texts:
        # "does n't" and "film 's", as treebanks write them, are the words "doesn't" and "film's".
        joined = re.sub(r"\s*(?:(n)['\u2019](t\b)|['\u2019])", r"\1\2", text.lower())
        words = [word for part in re.findall(r"\w+", joined) for word in words_of(part)]
        for start in range(len(words) - length + 1):
            yield tuple(words[start : start + length])


def kept_array(path: Path, make: Callable[[], np.ndarray]) -> np.ndarray:
    """Returns the array in a file, computed once; a resumed run finds it there."""
    if not path.is_file():
        array = make()
        with replaced(path) as scratch, open(scratch, "wb") as file:
            np.save(file, array)
    return np.load(path)
