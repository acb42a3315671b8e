"""Batches queries with their documents, for rerankers."""

import dataclasses
import logging
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf

from keras_transformers.data.batching import LengthBatches, Samples
from keras_transformers.data.static_shapes import Batch
from keras_transformers.data.text.examples import Examples
from keras_transformers.data.text.regression import scores
from keras_transformers.tokenizers.tensors import texts_of

__all__ = ["RankingBatches", "are_judgements", "document_lists"]

_logger = logging.getLogger(__name__)

_NO_DOCUMENT = -1.0  # the target where a list has fewer documents than others


def are_judgements(examples: Examples) -> bool:
    """Returns whether all scores are 0 or 1: relevant or not, and not a teacher's."""
    return {float(score) for score in examples.labels or ()} <= {0.0, 1.0}


def document_lists(examples: Examples, size: int) -> list[list[int]]:
    """Divides the documents of each query into lists for training.

    If the scores are judgements, each list has one relevant document of its query, if there is one,
    and `size - 1` others, or all others if there are fewer. Each document is in at least one list.
    Other scores are divided in their order.

    Args:
        examples: queries, documents and scores.
        size: the largest number of documents of a list.

    Returns:
        The rows of each list.

    Example:
        >>> examples = Examples(["a"] * 5, list("bcdef"), ["0", "1", "0", "0", "1"])
        >>> document_lists(examples, 3)
        [[1, 0, 2], [4, 3, 0]]
    """
    of_query: dict[str, list[int]] = {}
    for row, text in enumerate(examples.texts):
        of_query.setdefault(text, []).append(row)
    labels = examples.labels or ()
    lists = []
    for rows in of_query.values():
        relevant = [row for row in rows if float(labels[row]) > 0.5]
        if size == 1 or not relevant or not are_judgements(examples):
            lists += [rows[start : start + size] for start in range(0, len(rows), size)]
            continue
        others = [row for row in rows if float(labels[row]) <= 0.5]
        width = min(size - 1, len(others))
        count = max(len(relevant), -(-len(others) // width) if width else 0)
        for number in range(count):
            places = range(number * width, (number + 1) * width)
            chosen = [others[place % len(others)] for place in places]
            lists.append([relevant[number % len(relevant)], *chosen])
    return lists


class RankingBatches(LengthBatches):
    """Batches of (inputs, {"score": float32 (batch, documents)}, sample weights of that shape).

    A row is a list of documents of one query, from `document_lists`; the inputs are
    (batch, documents, length). Where a list has fewer documents than others, the rest is padding:
    its target is -1, its weight 0. The constructor tokenizes the texts. Truncated pairs are counted
    and logged, as a warning.

    Args:
        examples: queries, documents and scores.
        pipeline: a `pipelines.Reranker`, which tokenizes and packs the texts.
        batch_size: pairs of a query and a document per forward pass, at least one list.
        accumulate: forward passes per batch, for gradient accumulation.
        shuffle: whether to reshuffle on each pass.
        seed: seed for shuffling.
        static_shapes: see `LengthBatches`.
        list_size: the largest number of documents of a list.

    Raises:
        ValueError: there are no examples, the batch size is below 1, or a score is not a number.
    """

    def __init__(
        self,
        examples: Examples,
        pipeline: Any,
        *,
        batch_size: int,
        accumulate: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        static_shapes: int | None = None,
        list_size: int = 8,
    ) -> None:
        if not len(examples):
            raise ValueError(f"{examples.source}: no examples")
        self.examples = examples
        self.pipeline = pipeline
        columns = (examples.texts, examples.texts_b or ())
        self._segments = pipeline.tokenize(
            *(texts_of(column, f"{examples.source}: text") for column in columns)
        )
        full = pipeline.lengths(self._segments).numpy()
        lengths = np.minimum(full, pipeline.max_sequence_length)
        self._scores = tf.constant(scores(examples))  # which also checks them
        self._lists = document_lists(examples, list_size)
        counts = np.array([len(rows) for rows in self._lists])
        self._width = int(counts.max())
        super().__init__(
            np.array([lengths[rows].max() for rows in self._lists]),
            batch_size=max(1, batch_size // self._width) * accumulate,
            shuffle=shuffle,
            seed=seed,
            static_shapes=static_shapes,
        )
        self.has_weights = examples.weights is not None
        self.mean_lengths = float(counts.mean()), float(lengths.mean())
        self._options = {"batch_size": batch_size, "list_size": list_size}
        places = np.full((len(counts), self._width), -1, np.int32)
        places[np.arange(self._width) < counts[:, None]] = np.concatenate(self._lists)
        self._places = tf.constant(places)
        weights = np.ones(len(examples)) if examples.weights is None else examples.weights
        self._weights = tf.constant(weights, tf.float32)
        num_trimmed = int(np.sum(full > pipeline.max_sequence_length))
        _logger.log(
            logging.WARNING if num_trimmed else logging.INFO,
            "%s: %d pairs in %d lists, %d tokens, %d pairs trimmed",
            *(examples.source, len(examples), len(counts), lengths.sum(), num_trimmed),
        )

    def batch(self, indices: tf.Tensor) -> Batch:
        """Returns the lists at `indices`, int32 (batch,); runs in graphs."""
        rows = tf.gather(self._places, indices)  # (batch, documents)
        if self.static_shapes is None:  # only as wide as the longest list
            rows = rows[:, : tf.reduce_max(tf.reduce_sum(tf.cast(rows >= 0, tf.int32), axis=1))]
        is_document = rows >= 0
        real = tf.boolean_mask(rows, is_document)  # (pairs,)
        packed = self.pipeline.pack([tf.gather(part, real) for part in self._segments])
        at = tf.cast(tf.where(is_document), tf.int32)
        inputs = {}
        for name, value in packed.items():
            shape = tf.concat([tf.shape(rows), tf.shape(value)[1:]], axis=0)
            inputs[name] = tf.scatter_nd(at, value, shape)  # (batch, documents, length)
        place = tf.maximum(rows, 0)
        targets = tf.where(is_document, tf.gather(self._scores, place), _NO_DOCUMENT)
        weights = tf.where(is_document, tf.gather(self._weights, place), 0.0)
        return inputs, {"score": targets}, {"score": weights}

    def with_weights(self, batch: Batch, indices: tf.Tensor) -> Batch:
        """Returns the batch, which has its weights."""
        return batch

    def of(self, examples: Examples) -> Self:
        """Returns batches of other examples, made the same way but in order."""
        return type(self)(
            dataclasses.replace(examples, weights=None),
            self.pipeline,
            shuffle=False,
            static_shapes=self.static_shapes,
            **self._options,
        )

    def by_pair(self, outputs: Iterable[np.ndarray]) -> np.ndarray:
        """Returns the scores of each pair, (examples,), from those of batches in order."""
        scores = np.zeros(len(self.examples), np.float32)
        values = (row for batch in outputs for row in batch)
        for rows, row in zip(self._lists, values, strict=True):
            scores[rows] = row[: len(rows)]
        return scores

    def samples(self, count: int) -> Samples:
        """Returns the first pairs with their scores."""
        examples = self.examples
        documents: Sequence[list[str]] = [[text] for text in (examples.texts_b or ())[:count]]
        texts = {"text": examples.texts[:count], "documents": documents}
        return Samples(self.pipeline, texts, (examples.labels or ())[:count])
