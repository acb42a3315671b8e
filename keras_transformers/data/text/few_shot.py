"""Batches pairs of labelled texts, which share a label or do not, for few-shot training."""

import logging
from collections.abc import Sequence
from typing import Any, Self, TypeVar

import numpy as np
import tensorflow as tf

from keras_transformers.data.batching import LengthBatches
from keras_transformers.data.static_shapes import Batch
from keras_transformers.data.text.classification import label_ids
from keras_transformers.data.text.examples import Examples
from keras_transformers.data.text.label_sets import LabelSets
from keras_transformers.tokenizers.tensors import texts_of

__all__ = ["LabelPairBatches", "few_of_each", "label_pairs"]

_logger = logging.getLogger(__name__)

ExamplesT = TypeVar("ExamplesT", bound=Examples)

_MOST = 5000  # texts, whose 12.5 million pairs fit into memory


def label_pairs(
    has: np.ndarray, *, pairs: int | None = None, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs texts, half of which share a label and half of which do not.

    By default every pair occurs once, each text with itself included, and pairs of the rarer kind
    are repeated: the oversampling of Tunstall et al. 2022, "SetFit", arXiv:2209.11055. A pair of
    texts without any label is left out, since nothing says whether they are alike.

    Args:
        has: which text has which label, 0 or 1 (texts, labels).
        pairs: how many pairs to return; by default twice as many as there are of the more frequent
            kind.
        seed: which pairs there are, if not all, and which are repeated.

    Returns:
        The indices of each pair's texts, int32 (pairs, 2), and whether they share a label, float32
        (pairs,), 0 or 1.

    Raises:
        ValueError: all texts share a label, none does with another, or there are more than 5,000.

    Example:
        >>> found, same = label_pairs(np.array([[1, 0], [1, 0], [0, 1]]))
        >>> found.shape, same.sum().item()
        ((8, 2), 4.0)
    """
    count = len(has)
    if count > _MOST:
        raise ValueError(
            f"{count} texts: few-shot training compares all pairs of at most {_MOST}: pass fewer, "
            "or train on all of them without few_shot"
        )
    first, second = np.triu_indices(count)
    matrix = np.asarray(has, np.float32)
    shares = (matrix @ matrix.T)[first, second] > 0
    is_labelled = matrix.sum(axis=1) > 0
    is_comparable = is_labelled[first] | is_labelled[second]
    kinds = [np.flatnonzero(is_comparable & shares), np.flatnonzero(is_comparable & ~shares)]
    if not all(map(len, kinds)):
        what = "share a label" if len(kinds[0]) else "have no label"
        raise ValueError(
            f"all {count} texts {what}, so no pair of them says what a label is: pass texts with "
            "different labels"
        )
    random = np.random.default_rng(seed)
    size = max(map(len, kinds)) if pairs is None else -(-pairs // 2)
    chosen = np.concatenate([np.resize(random.permutation(kind), size) for kind in kinds])
    same = np.repeat(np.array([1, 0], np.float32), size)
    if pairs is not None:  # an odd number leaves out a pair that differs
        chosen, same = chosen[:pairs], same[:pairs]
    return np.stack([first[chosen], second[chosen]], axis=1).astype(np.int32), same


def few_of_each(
    examples: ExamplesT, labels: Sequence[str], count: int, *, seed: int = 0
) -> ExamplesT:
    """Draws as many texts with each label, to measure what few-shot training learns from them.

    A text with several labels is drawn once, for the first of them that lacks texts; so a label may
    have more.

    Args:
        examples: `Examples` with labels, or `LabelSets`.
        labels: the labels, in order.
        count: texts of each label.
        seed: which ones.

    Raises:
        ValueError: a label has fewer texts.

    Example:
        few = few_of_each(examples, ["bad", "good"], 8)
    """
    has = label_matrix(examples, labels)
    order = np.random.default_rng(seed).permutation(len(examples))
    drawn: list[int] = []
    for label, column in zip(labels, has.T, strict=True):
        places = [i for i in order.tolist() if column[i] and i not in drawn][:count]
        if len(places) < count:
            raise ValueError(
                f"{examples.source}: {len(places)} texts to draw for the label {label!r}, not "
                f"{count}: draw fewer"
            )
        drawn += places
    return examples.select(drawn)


class LabelPairBatches(LengthBatches):
    """Batches of (inputs, {"vectors": float32 (batch,), 1 if a pair shares a label, else 0}).

    They are for `heads.paired_vectors`. The inputs are the model's for each text of a batch once,
    (texts, length), and `pairs` int32 (batch, 2), the rows of each pair's texts. A text that is
    paired with itself has two rows, which dropout makes differ. The constructor tokenizes the
    texts.

    Args:
        examples: `Examples` with labels, or `LabelSets`.
        pipeline: a pipeline with labels, which tokenizes and packs the texts.
        batch_size: pairs per batch.
        pairs: pairs per pass; see `label_pairs`.
        shuffle: whether to reshuffle on each pass.
        seed: seed for the pairs and for shuffling.

    Raises:
        ValueError: a label has fewer than two texts, or all of them; there are no pairs of both
            kinds; examples have weights; or the batch size is below 1.

    Example:
        batches = LabelPairBatches(examples, classify, batch_size=16)
        model.fit(batches.dataset(), steps_per_epoch=len(batches))
    """

    def __init__(
        self,
        examples: Examples,
        pipeline: Any,
        *,
        batch_size: int,
        pairs: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
    ) -> None:
        self.examples, self.pipeline = examples, pipeline
        if examples.weights is not None:
            raise ValueError(
                f"{examples.source}: few-shot training does not read weights of examples: leave "
                "them out"
            )
        has = label_matrix(examples, pipeline.labels)
        check_few(has, pipeline.labels, examples.source)
        try:
            rows, same = label_pairs(has, pairs=pairs, seed=seed)
        except ValueError as error:
            raise ValueError(f"{examples.source}: {error}") from error
        columns = (examples.texts, examples.texts_b)
        self._segments = pipeline.tokenize(
            *(texts_of(x, f"{examples.source}: text") for x in columns if x is not None)
        )
        full = pipeline.lengths(self._segments).numpy()
        lengths = np.minimum(full, pipeline.max_sequence_length)
        super().__init__(
            # Batches of pairs of similar length would be of the same few texts.
            np.full(len(rows), lengths.mean()),
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
        )
        is_self = rows[:, :1] == rows[:, 1:]
        copies = np.concatenate([np.zeros_like(is_self), is_self], axis=1)
        self._pairs = tf.constant(rows + len(examples) * copies, tf.int32)
        self._same = tf.constant(same)
        num_trimmed = int(np.sum(full > lengths))
        _logger.log(
            logging.WARNING if num_trimmed else logging.INFO,
            "%s: %d texts, %d truncated, in %d pairs, %d of which share a label",
            *(examples.source, len(examples), num_trimmed, len(rows), same.sum()),
        )

    def batch(self, indices: tf.Tensor) -> Batch:
        """Returns the pairs at `indices`, int32 (batch,); runs in graphs."""
        with tf.device("CPU:0"):
            pairs = tf.gather(self._pairs, indices)  # (batch, 2)
            texts, rows = tf.unique(tf.reshape(pairs, [-1]))
            texts %= len(self.examples)
            inputs = self.pipeline.pack([tf.gather(part, texts) for part in self._segments])
        return (
            {**inputs, "pairs": tf.reshape(rows, [-1, 2])},
            {"vectors": tf.gather(self._same, indices)},
        )

    def of(self, examples: Examples) -> Self:
        """Returns as many pairs of other examples, or all if there are fewer, in order."""
        has = label_matrix(examples, self.pipeline.labels)
        most = len(label_pairs(has)[0])
        return type(self)(
            examples,
            self.pipeline,
            batch_size=self.batch_size,
            pairs=min(most, self.num_rows),
            shuffle=False,
        )


def label_matrix(examples: Examples, labels: Sequence[str]) -> np.ndarray:
    """Returns which text has which label: float32 (texts, labels), 0 or 1.

    Args:
        examples: `Examples` with labels, or `LabelSets`.
        labels: the labels, in order.

    Raises:
        ValueError: there are no labels, or one is unknown.
    """
    if isinstance(examples, LabelSets):
        return examples.matrix(labels)
    return np.eye(len(labels), dtype=np.float32)[label_ids(examples, labels)]


def check_few(has: np.ndarray, labels: Sequence[str], source: str) -> None:
    """Raises ValueError if a label has fewer than two texts, or all of them."""
    for label, count in zip(labels, has.sum(axis=0).astype(int).tolist(), strict=True):
        if count < 2:
            raise ValueError(
                f"{source}: {count} {'text has' if count == 1 else 'texts have'} the label "
                f"{label!r}; few-shot training needs at least 2 for each label, to pair them: add "
                "some, or load the pipeline without this label"
            )
        if count == len(has):
            raise ValueError(
                f"{source}: all {count} texts have the label {label!r}; few-shot training also "
                "needs texts without it: add some"
            )
