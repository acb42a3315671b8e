"""Batches texts, or pairs of texts, with one label each."""

import collections
import dataclasses
import logging
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf

from keras_transformers.data.batching import LengthBatches, Samples
from keras_transformers.data.static_shapes import Batch
from keras_transformers.data.text.examples import Examples
from keras_transformers.data.weighting import ClassWeight
from keras_transformers.tokenizers.tensors import texts_of

__all__ = ["NextSentenceBatches", "TextBatches"]

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Counts of one pass over the batches."""

    source: str
    num_examples: int
    num_trimmed: int
    num_tokens: int
    num_padding: int
    num_windows: int

    def __str__(self) -> str:
        positions = self.num_tokens + self.num_padding
        more = self.num_windows - self.num_examples
        return (
            f"{self.source}: {self.num_examples} examples"
            f"{f' in {self.num_windows} windows' if more else ''}, {self.num_tokens} tokens, "
            f"{self.num_trimmed} inputs trimmed, "
            f"{100 * self.num_padding / positions:.1f}% of {positions} positions are padding"
        )


class TextBatches(LengthBatches):
    """Batches of (inputs, {"logits": label ids}), with sample weights if labels have weights.

    The constructor tokenizes the texts. A batch is as long as its longest text. If the pipeline
    reads long texts in windows, inputs are (batch, windows, length), for its `training_model`, and
    texts with as many windows share a batch. Truncation and padding are counted and logged, as a
    warning if inputs are truncated.

    Args:
        examples: examples to batch; without labels the batches contain only inputs.
        pipeline: a `pipelines.TextClassifier`, which tokenizes and packs the texts.
        batch_size: examples per forward pass.
        accumulate: forward passes per batch, for gradient accumulation.
        shuffle: whether to reshuffle on each pass.
        seed: seed for shuffling.
        static_shapes: see `LengthBatches`; None for a pipeline that reads windows.
        label_weights: Deprecated since 1.1: use `class_weight`. Label -> weight, for all labels.
        class_weight: "balanced", or label -> the weight of its examples, 1 for other labels, which
            batches then have as sample weights, times `examples.weights`. It replaces Keras' own,
            which does not support named outputs. Batches made with `of` have no weights, so that
            evaluation counts all examples equally.

    Raises:
        ValueError: there are no examples, the batch size is below 1, the pipeline does not know a
            label, one has no weight, or there are static shapes for windows.
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
        label_weights: Mapping[str, float] | None = None,
        class_weight: ClassWeight | None = None,
    ) -> None:
        if not len(examples):
            raise ValueError(f"{examples.source}: no examples")
        if label_weights is not None:
            class_weight = _class_weight_of(examples, label_weights, class_weight)
        self.examples = examples
        self.pipeline = pipeline
        texts_b = () if examples.texts_b is None else (examples.texts_b,)
        self._segments = pipeline.tokenize(
            *(texts_of(column, f"{examples.source}: text") for column in (examples.texts, *texts_b))
        )
        full = pipeline.lengths(self._segments).numpy()
        lengths = np.minimum(full, pipeline.max_sequence_length)
        is_trimmed, counts = full > pipeline.max_sequence_length, np.ones_like(full)
        reads_windows = getattr(pipeline, "reads_windows", False)  # other readers have none
        if reads_windows:
            check_not_static(static_shapes)
            is_trimmed = pipeline.is_trimmed(self._segments).numpy()
            counts = pipeline.num_windows(self._segments).numpy()
        super().__init__(
            lengths * counts,  # the positions of a row's windows
            batch_size=batch_size * accumulate,
            shuffle=shuffle,
            seed=seed,
            static_shapes=static_shapes,
            weights=examples.weights,
            class_counts=self.counts(examples),
            class_weight=class_weight,
        )
        if reads_windows:
            self.mean_lengths = float(counts.mean()), float(lengths.mean())
        self._row_size = batch_size
        self._targets = None if examples.labels is None else self.targets(examples)
        self.statistics = Statistics(
            examples.source,
            len(examples),
            int(np.sum(is_trimmed)),
            int(self.lengths.sum()),
            self.num_positions - int(self.lengths.sum()),
            int(counts.sum()),
        )
        level = logging.WARNING if self.statistics.num_trimmed else logging.INFO
        _logger.log(level, "%s", self.statistics)

    def targets(self, examples: Examples) -> dict[str, Any]:
        """Returns model output name -> targets (examples, ...)."""
        return {"logits": tf.constant(label_ids(examples, self.label_names))}

    @property
    def label_names(self) -> Sequence[str]:
        """The labels that examples may have; a pipeline without labels takes any."""
        names: Sequence[str] = getattr(self.pipeline, "labels", ())
        return names

    def counts(self, examples: Examples) -> dict[str, int] | None:
        """Returns each label -> its number of examples; None if they have no labels."""
        if examples.labels is None:
            return None
        return counted(examples.labels, self.label_names or sorted(set(examples.labels)))

    def batch(self, indices: tf.Tensor) -> Batch:
        """Returns the examples at `indices`, int32 (batch,); runs in graphs."""
        inputs = self.pipeline.pack([tf.gather(part, indices) for part in self._segments])
        if self._targets is None:
            return inputs
        targets = {name: tf.gather(value, indices) for name, value in self._targets.items()}
        return inputs, targets

    def of(self, examples: Examples) -> Self:
        """Returns batches of other examples, made the same way but in order."""
        return type(self)(
            dataclasses.replace(examples, weights=None),
            self.pipeline,
            batch_size=self._row_size,
            shuffle=False,
            static_shapes=self.static_shapes,
        )

    def samples(self, count: int) -> Samples:
        """Returns the first examples with their labels."""
        columns = (self.examples.texts, self.examples.texts_b)
        inputs = [column[:count] for column in columns if column is not None]
        texts = dict(zip(self.pipeline.text_names, inputs, strict=True))
        return Samples(self.pipeline, texts, (self.examples.labels or ())[:count])


class NextSentenceBatches(TextBatches):
    """Batches of (inputs, {"next_sentence_logits": int32 (batch,)}); see `TextBatches`.

    Label "0" means that the second text follows the first, "1" that it does not, as in Google's
    BERT.

    Raises:
        ValueError: there are no examples, the batch size is below 1, or a label is neither.
    """

    label_output = "next_sentence_logits"
    label_names = ("0", "1")

    def targets(self, examples: Examples) -> dict[str, Any]:
        """Returns model output name -> targets (examples,)."""
        return {"next_sentence_logits": tf.constant(label_ids(examples, self.label_names))}


def _class_weight_of(
    examples: Examples, label_weights: Mapping[str, float], class_weight: ClassWeight | None
) -> ClassWeight:
    """Returns the weights of the deprecated argument, which has one for each label that occurs."""
    warnings.warn(
        "label_weights is deprecated since 1.1: use class_weight", FutureWarning, stacklevel=3
    )
    if class_weight is not None:
        raise ValueError("pass class_weight alone: label_weights is its older name")
    missing = sorted(set(examples.labels or ()) - set(label_weights))
    if examples.labels is None or missing:
        raise ValueError(
            f"{examples.source}: label_weights={dict(label_weights)} has no weight for "
            f"{missing or 'examples without labels'}: pass one for each label"
        )
    return label_weights


def check_not_static(static_shapes: int | None) -> None:
    """Raises ValueError if there are static shapes, which texts in windows cannot have."""
    if static_shapes is not None:
        raise ValueError(
            f"static_shapes={static_shapes}: texts differ in their number of windows, so shapes "
            "cannot be static: leave it out, or set long_texts='cut'"
        )


def counted(labels: Iterable[str], names: Sequence[str]) -> dict[str, int]:
    """Returns each name -> how often it is among the labels."""
    counts = collections.Counter(labels)
    return {name: counts[name] for name in names}


def label_ids(examples: Examples, labels: Sequence[str]) -> np.ndarray:
    """Returns each example's index in `labels`: int32 (examples,)."""
    if examples.labels is None:
        raise ValueError(f"{examples.source}: examples without labels cannot be targets")
    ids = {label: i for i, label in enumerate(labels)}
    unknown = sorted(set(examples.labels) - set(ids))
    if unknown:
        raise ValueError(f"{examples.source}: unknown labels {unknown}, expected {list(labels)}")
    return np.array([ids[label] for label in examples.labels], np.int32)
