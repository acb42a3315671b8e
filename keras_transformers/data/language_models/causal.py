"""Turns text into rows for causal language models: documents end to end, cut into rows.

TextFiles.read -> TokenStream.of -> RowBatches
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf

from keras_transformers.data.batching import Batches
from keras_transformers.data.static_shapes import filled
from keras_transformers.tokenizers.packing import document_start
from keras_transformers.tokenizers.protocols import TextTokenizer
from keras_transformers.tokenizers.scripts import WITHOUT_SPACES, share, words_of

__all__ = ["RowBatches", "TokenStream"]


@dataclasses.dataclass(frozen=True)
class TokenStream:
    """Documents end to end, each preceded by the start token, which also ends the stream.

    Attributes:
        token_ids: int32 (tokens,).
        document_ids: the document of each token, start tokens included, int32 (tokens,).
        num_words: words of the texts between white space plus line ends, as is usual for WikiText
            and the Penn Treebank; characters in texts without spaces, such as Chinese.
        num_bytes: bytes of the texts in UTF-8.
    """

    token_ids: np.ndarray
    document_ids: np.ndarray
    num_words: int
    num_bytes: int

    @classmethod
    def of(cls, texts: Sequence[str], tokenizer: TextTokenizer) -> Self:
        """Tokenizes documents into a stream."""
        start = np.array([document_start(tokenizer)], np.int32)
        parts: list[np.ndarray] = []
        for text in texts:  # one by one, to save memory
            parts += [start, tokenizer.tokenize([text]).values.numpy()]
        lengths = [len(text) + 1 for text in parts[1::2]]
        split = words_of if share(WITHOUT_SPACES, texts) > 0.5 else str.split
        return cls(
            np.concatenate([*parts, start]),
            np.repeat(np.arange(len(texts) + 1, dtype=np.int32), [*lengths, 1]),
            sum(len(split(text)) + text.count("\n") for text in texts),
            sum(len(text.encode()) for text in texts),
        )

    @property
    def num_targets(self) -> int:
        """The number of predicted tokens: all but the first."""
        return len(self.token_ids) - 1

    def targets(self) -> np.ndarray:
        """Returns the predicted tokens, int32 (num_targets,)."""
        return self.token_ids[1:]

    def documents(self) -> list[np.ndarray]:
        """Returns the tokens of each document, ending with the start token of the next one."""
        starts = [0, *(np.flatnonzero(np.diff(self.document_ids)) + 1).tolist()]
        return [self.token_ids[s + 1 : end + 1] for s, end in itertools.pairwise(starts)]

    def __str__(self) -> str:
        return (
            f"{self.document_ids[-1]} documents, {self.num_targets} tokens, {self.num_words} "
            f"words, {self.num_bytes} bytes"
        )


class RowBatches(Batches):
    """Batches of text rows, with the next token of each position as its target.

    An element is (inputs, {"logits": targets}). Inputs are `token_ids` int32 (batch, length) and,
    with `separate_documents`, `document_ids` of the same type and shape. Targets are the next
    tokens, int32 (batch, length).

    Shuffled batches, for training, are endless. Each epoch cuts the text at new places, which
    depend only on the seed and the epoch, and shuffles the rows. Up to `length` - 1 tokens at the
    two ends of the text are left out of an epoch.

    Unshuffled batches count every token exactly once. They add {"logits": weights}, float32 (batch,
    length), 1 where a token counts; the weights sum to `stream.num_targets`. With `static_shapes`
    all batches have weights.

    Args:
        stream: the text.
        length: tokens per row.
        batch_size: rows per forward pass; the last batch may be smaller.
        accumulate: forward passes per batch, for gradient accumulation.
        separate_documents: whether to add `document_ids`, for models that take them.
        shuffle: whether to split and shuffle again in each epoch.
        seed: seed for cuts and order.
        stride: for unshuffled batches, the distance between the starts of rows: 1 to `length`, by
            default `length`, the cheapest. Tokens counted in an earlier row get weight 0, so that
            beyond the first row each counted token has at least `length - stride` tokens before it.
        static_shapes: see `LengthBatches`; all rows have one length.

    Raises:
        ValueError: the text is too short for a row, or a number is out of range.
    """

    def __init__(
        self,
        stream: TokenStream,
        *,
        length: int,
        batch_size: int,
        accumulate: int = 1,
        separate_documents: bool = False,
        shuffle: bool = True,
        seed: int = 0,
        stride: int | None = None,
        static_shapes: int | None = None,
    ) -> None:
        stride = length if stride is None else stride
        if length < 1 or batch_size < 1:
            raise ValueError(
                f"length={length} and batch_size={batch_size}: expected at least 1 of each"
            )
        if not 1 <= stride <= length:
            raise ValueError(f"stride={stride}: must be from 1 to length={length}")
        self.stream = stream
        self.length = length
        self.batch_size = batch_size * accumulate
        self.separate_documents = separate_documents
        self.shuffle = shuffle
        self.seed = seed
        self.stride = stride
        self.static_shapes = static_shapes
        self._part_size = batch_size
        if shuffle:
            self.num_rows = max(0, (stream.num_targets - (length - 1)) // length)
        else:
            self.num_rows = 1 - (min(0, length - stream.num_targets) // stride)
        if not self.num_rows:
            raise ValueError(
                f"a text of {stream.num_targets} tokens is too short for rows of {length} at every "
                "cut: use more text, or shorter rows"
            )
        self.mean_lengths = float(length)

    def __len__(self) -> int:
        return -(-self.num_rows // self.batch_size)

    def dataset(self, *, skip: int = 0) -> tf.data.Dataset:
        """Returns the batches: endless if shuffled, otherwise one pass in order."""

        def batches() -> Iterator[Any]:
            first, done = divmod(skip, len(self)) if self.shuffle else (0, skip)
            for epoch in itertools.count(first) if self.shuffle else range(1):
                starts = self._starts(epoch)
                for place in range(done * self.batch_size, self.num_rows, self.batch_size):
                    yield self._batch(starts[place : place + self.batch_size])
                done = 0

        names = ["token_ids", *(["document_ids"] if self.separate_documents else [])]
        row = tf.TensorSpec([None, self.length], tf.int32)
        signature: tuple[Any, ...] = (dict.fromkeys(names, row), {"logits": row})
        if not self.shuffle or self.static_shapes:
            signature += ({"logits": tf.TensorSpec([None, self.length], tf.float32)},)
        dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
        if not self.shuffle:
            count = max(0, len(self) - skip)
            dataset = dataset.apply(tf.data.experimental.assert_cardinality(count))
        if self.static_shapes:
            dataset = dataset.map(lambda *batch: filled(batch, self.batch_size))
        return dataset.prefetch(2)

    def of(self, examples: TokenStream, *, stride: int | None = None) -> Self:
        """Returns batches of another text, made the same way but in order, for evaluation."""
        return type(self)(
            examples,
            length=self.length,
            batch_size=self._part_size,
            separate_documents=self.separate_documents,
            shuffle=False,
            stride=stride,
            static_shapes=self.static_shapes,
        )

    def _starts(self, epoch: int) -> np.ndarray:
        """Returns the starts of an epoch's rows: (rows,)."""
        if not self.shuffle:
            return self.stride * np.arange(self.num_rows)
        random = np.random.default_rng((self.seed, epoch))
        return random.integers(self.length) + self.length * random.permutation(self.num_rows)

    def _batch(self, starts: np.ndarray) -> tuple[dict[str, np.ndarray], ...]:
        """Returns the rows that start at `starts`, padded with the last token of the text."""
        targets_of = self.stream.num_targets
        places = np.minimum(starts[:, None] + np.arange(self.length + 1), targets_of)
        token_ids = self.stream.token_ids[places]  # (rows, length + 1)
        inputs = {"token_ids": token_ids[:, :-1]}
        if self.separate_documents:
            inputs["document_ids"] = self.stream.document_ids[places[:, :-1]]
        targets = {"logits": token_ids[:, 1:]}
        if self.shuffle:
            weights = np.ones(targets["logits"].shape, np.float32)
            return (
                (inputs, targets, {"logits": weights}) if self.static_shapes else (inputs, targets)
            )
        places = starts[:, None] + np.arange(self.length)  # (rows, length), of the inputs
        counted = np.where(starts == 0, 0, starts + self.length - self.stride)[:, None]
        is_counted = (places >= counted) & (places < targets_of)
        return inputs, targets, {"logits": is_counted.astype(np.float32)}
