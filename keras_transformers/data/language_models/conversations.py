"""Packs conversations into rows for causal language models, which learn only some of their tokens.

Several conversations share a row, but do not see each other; see `models.packing.with_documents`.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np
import tensorflow as tf

from keras_transformers.data.batching import Batches
from keras_transformers.data.faults import Content
from keras_transformers.data.pretraining.packing import first_fit
from keras_transformers.data.rows import Rows
from keras_transformers.data.static_shapes import filled

__all__: list[str] = []

Arrays = tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray]]


class LearnedText(NamedTuple):
    """A text of which a model learns some tokens; it reads the others.

    Attributes:
        token_ids: int32 (tokens,), at least two.
        is_learned: bool (tokens,); the first token is never learned.
    """

    token_ids: np.ndarray
    is_learned: np.ndarray


@dataclasses.dataclass(frozen=True)
class Conversations(Rows):
    """Conversations as tokens.

    Attributes:
        texts: the texts of each conversation. There are several where an answer is read in another
            form than it is written in, as by templates that remove earlier thoughts.
        source: see `Rows`.
    """

    texts: Sequence[Sequence[LearnedText]]
    source: str

    def all_texts(self) -> list[LearnedText]:
        """Returns the texts of all conversations, in order."""
        return list(itertools.chain.from_iterable(self.texts))

    def targets(self) -> np.ndarray:
        """Returns the learned tokens, int32 (tokens,)."""
        return np.concatenate([text.token_ids[text.is_learned] for text in self.all_texts()])

    def contents(self) -> Iterator[Content]:
        """Yields what each conversation is, to count repeated ones."""
        for row, texts in enumerate(self.texts):
            key = tuple(text.token_ids.tobytes() for text in texts)
            yield Content(key, f"row {row}")

    def __str__(self) -> str:
        texts = self.all_texts()
        num_tokens = sum(len(text.token_ids) for text in texts)
        num_learned = sum(int(text.is_learned.sum()) for text in texts)
        return f"{len(self)} conversations, {num_tokens} tokens, {num_learned} of them learned"


class ConversationBatches(Batches):
    """Batches of conversations, packed into rows as long as the longest of the batch.

    An element is (inputs, {"logits": targets}, {"logits": weights}), each (rows, length). Inputs
    are int32 `token_ids` and `document_ids`, the number of a text in its row from 1, and 0 at
    padding. Targets are the next tokens, int32. Weights are float32: 1 where the next token is
    learned, else 0. What a batch teaches does not depend on the packing.

    Args:
        conversations: the conversations.
        batch_size: texts per forward pass, in as few rows as first-fit decreasing finds; the last
            batch may be smaller.
        accumulate: forward passes per batch, for gradient accumulation.
        shuffle: whether batches are endless, in a new order in each epoch, which depends only on
            the seed and the epoch. Otherwise they are one pass in order.
        seed: seed for the order.
        static_shapes: a number makes all batches have one shape, which XLA and TPUs need: rows as
            long as the longest text, and as many as any batch may take. None does not.

    Raises:
        ValueError: there are no conversations, or a number is below 1.
    """

    def __init__(
        self,
        conversations: Conversations,
        *,
        batch_size: int,
        accumulate: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        static_shapes: int | None = None,
    ) -> None:
        self._texts = conversations.all_texts()
        if not self._texts:
            raise ValueError(f"{conversations.source}: there are no conversations to batch")
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}, must be 1 or more")
        self.batch_size = batch_size * accumulate
        self.shuffle = shuffle
        self.seed = seed
        self.static_shapes = static_shapes
        self._part_size = batch_size
        self._lengths = np.array([len(text.token_ids) - 1 for text in self._texts])  # of inputs
        self.num_rows = len(self._texts)
        self.mean_lengths = float(self._lengths.mean())

    def __len__(self) -> int:
        return -(-self.num_rows // self.batch_size)

    def dataset(self, *, skip: int = 0) -> tf.data.Dataset:
        """Returns the batches: endless if shuffled, otherwise one pass in order."""

        def batches() -> Iterator[Arrays]:
            first, done = divmod(skip, len(self)) if self.shuffle else (0, skip)
            for epoch in itertools.count(first) if self.shuffle else range(1):
                order = self._order(epoch)
                for place in range(done * self.batch_size, self.num_rows, self.batch_size):
                    yield self._batch(order[place : place + self.batch_size])
                done = 0

        length = int(self._lengths.max()) if self.static_shapes else None
        ids, weights = (tf.TensorSpec([None, length], dtype) for dtype in (tf.int32, tf.float32))
        inputs = dict.fromkeys(("token_ids", "document_ids"), ids)
        dataset = tf.data.Dataset.from_generator(
            batches, output_signature=(inputs, {"logits": ids}, {"logits": weights})
        )
        if not self.shuffle:
            count = max(0, len(self) - skip)
            dataset = dataset.apply(tf.data.experimental.assert_cardinality(count))
        if self.static_shapes:
            dataset = dataset.map(lambda *batch: filled(batch, self._most_rows()))
        return dataset.prefetch(2)

    def of(self, examples: Conversations) -> Self:
        """Returns batches of other conversations, made the same way but in order."""
        return type(self)(
            examples,
            batch_size=self._part_size,
            shuffle=False,
            static_shapes=self.static_shapes,
        )

    def _order(self, epoch: int) -> np.ndarray:
        if not self.shuffle:
            return np.arange(self.num_rows)
        return np.random.default_rng((self.seed, epoch)).permutation(self.num_rows)

    def _most_rows(self) -> int:
        """Returns the number of rows that suffices for any batch.

        First-fit leaves at most one row less than half full.
        """
        most_tokens = int(np.sort(self._lengths)[-self.batch_size :].sum())
        return min(self.batch_size, self.num_rows, 2 * most_tokens // int(self._lengths.max()) + 1)

    def _batch(self, numbers: np.ndarray) -> Arrays:
        """Returns the texts with these numbers, packed."""
        lengths = self._lengths[numbers]
        length = int((self._lengths if self.static_shapes else lengths).max())
        rows = first_fit(lengths[:, None], (length,))
        shape = (len(rows), length)
        token_ids, document_ids, targets = (np.zeros(shape, np.int32) for _ in range(3))
        weights = np.zeros(shape, np.float32)
        for row, members in enumerate(rows):
            start = 0
            for document, member in enumerate(members, start=1):
                text = self._texts[numbers[member]]
                place = slice(start, start + lengths[member])
                token_ids[row, place] = text.token_ids[:-1]
                document_ids[row, place] = document
                targets[row, place] = text.token_ids[1:]
                weights[row, place] = text.is_learned[1:]
                start = place.stop
        inputs = {"token_ids": token_ids, "document_ids": document_ids}
        return inputs, {"logits": targets}, {"logits": weights}
