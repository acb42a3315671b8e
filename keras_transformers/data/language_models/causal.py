"""Text for language models: documents end to end, cut into rows, each with the tokens that follow.

    read_texts -> split_tail -> tokenize -> training_batches, evaluation_batches

For classifiers with a language model beside them: `classification_batches`.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from keras_transformers.data.text import classification
from keras_transformers.data.text.examples import Examples
from keras_transformers.files import read_lines
from keras_transformers.tokenizers import packing
from keras_transformers.tokenizers.byte_pair import BytePairTokenizer

TextFormat = Literal["text", "wikitext"]

# A document's title; " = = Early life = = " is a section's.
_WIKITEXT_TITLE = re.compile(r" = (?!=).* = ")


@dataclasses.dataclass(frozen=True)
class TokenStream:
    """Documents end to end, each behind the start token, and one more start token at the end.

    Attributes:
        token_ids: int32 (tokens,).
        document_ids: the document that each is of, its start token counted, int32 (tokens,).
        num_words: of the texts: what stands between white space, and the end of each line, as is
            usual for WikiText and the Penn Treebank.
        num_bytes: of the texts, in UTF-8.
    """

    token_ids: np.ndarray
    document_ids: np.ndarray
    num_words: int
    num_bytes: int

    @property
    def num_targets(self) -> int:
        """Tokens that are predicted: all but the first."""
        return len(self.token_ids) - 1

    def documents(self) -> list[np.ndarray]:
        """The tokens of each document, with the start token of the next one, which ends it."""
        starts = np.flatnonzero(np.diff(self.document_ids)) + 1
        return [ids[1:] for ids in _overlapping(self.token_ids, starts)]

    def __str__(self) -> str:
        return (
            f"{self.document_ids[-1]} documents, {self.num_targets} tokens, {self.num_words} "
            f"words, {self.num_bytes} bytes"
        )


def read_texts(files: Sequence[str | Path], *, text_format: TextFormat = "text") -> list[str]:
    r"""Documents as they stand in files, their line ends as "\n".

    Args:
        files: UTF-8, plain or `.gz`.
        text_format: "text": each file is a document; "wikitext": each article of a file, from its
            title " = Title = " to the next one.

    Raises:
        FileNotFoundError: one of the files does not exist.
        ValueError: the format is unknown, a line is not UTF-8 (file and line are named), or there
            is no text.
    """
    if text_format not in ("text", "wikitext"):
        raise ValueError(f"text_format={text_format!r}: take 'text' or 'wikitext'")
    texts: list[str] = []
    for file in files:
        lines: list[str] = []
        for line in read_lines(file):
            if (
                text_format == "wikitext"
                and _WIKITEXT_TITLE.fullmatch(line)
                and any(earlier.strip() for earlier in lines)
            ):
                texts.append("".join(lines))
                lines = []
            lines.append(f"{line}\n")
        texts.append("".join(lines))
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise ValueError(f"{', '.join(map(str, files)) or 'no files'}: no text")
    return texts


def split_tail(texts: Sequence[str], *, held_out_fraction: float) -> tuple[list[str], list[str]]:
    """Splits off the end of a text, from the next begin of a line on.

    Args:
        texts: documents; that in which the border falls is cut in two.
        held_out_fraction: share of all characters, above 0 and below 1.

    Returns:
        The documents to train on and those held out.

    Raises:
        ValueError: the fraction is out of range, or one of the parts stays empty.
    """
    if not 0 < held_out_fraction < 1:
        raise ValueError(f"held_out_fraction is {held_out_fraction}, must be above 0 and below 1")
    room = round((1 - held_out_fraction) * sum(map(len, texts)))
    kept, held_out = [], []
    for text in texts:
        border = len(text) if len(text) <= room else text.find("\n", max(room, 0)) + 1 or len(text)
        border = 0 if room <= 0 else border
        kept.append(text[:border])
        held_out.append(text[border:])
        room -= len(text)
    parts = [[text for text in part if text.strip()] for part in (kept, held_out)]
    if not all(parts):
        raise ValueError(
            f"held_out_fraction={held_out_fraction:g} leaves {len(parts[0])} documents to train on "
            f"and {len(parts[1])} held out: take more text, or another fraction"
        )
    return parts[0], parts[1]


def tokenize(texts: Sequence[str], tokenizer: BytePairTokenizer) -> TokenStream:
    """Puts documents end to end."""
    start = np.array([tokenizer.start_token_id], np.int32)
    parts: list[np.ndarray] = []
    for text in texts:  # one by one, for the memory that it takes
        parts += [start, tokenizer.tokenize([text]).values.numpy()]
    lengths = [len(text) + 1 for text in parts[1::2]]
    return TokenStream(
        np.concatenate([*parts, start]),
        np.repeat(np.arange(len(texts) + 1, dtype=np.int32), [*lengths, 1]),
        sum(len(text.split()) + text.count("\n") for text in texts),
        sum(len(text.encode()) for text in texts),
    )


def num_rows(stream: TokenStream, length: int) -> int:
    """Rows of an epoch of `training_batches`."""
    return max(0, (stream.num_targets - (length - 1)) // length)


def training_batches(
    stream: TokenStream,
    *,
    length: int,
    batch_size: int,
    seed: int = 0,
    separate_documents: bool = False,
    skip_epochs: int = 0,
) -> tf.data.Dataset:
    """Batches of full rows, epoch after epoch without end.

    Each epoch cuts the stream at other places, which `seed` and its number decide, and shuffles the
    rows. What is left over at the two ends, fewer than `length` tokens, waits for another epoch.
    An epoch is `num_rows` rows, and its last batch may be smaller.

    Args:
        stream: the text.
        length: tokens a row.
        batch_size: rows a batch.
        seed: of cuts and order.
        separate_documents: adds `document_ids` to the inputs, for a model that was built so.
        skip_epochs: begin with the epoch after so many.

    Returns:
        Batches of (`token_ids` int32 (batch, length) in a dict, {"logits": the token that follows
        each, int32 (batch, length)}).

    Raises:
        ValueError: the text is too short for a row, or a number is below 1.
    """
    if length < 1 or batch_size < 1:
        raise ValueError(f"length={length} and batch_size={batch_size}: give at least 1 of each")
    rows = num_rows(stream, length)
    if not rows:
        raise ValueError(
            f"a text of {stream.num_targets} tokens has no row of {length} at every cut: take more "
            "text or shorter rows"
        )

    def batches() -> Iterator[Any]:
        for epoch in itertools.count(skip_epochs):
            random = np.random.default_rng((seed, epoch))
            starts = random.integers(length) + length * random.permutation(rows)
            for chosen in _chunks(starts, batch_size):
                inputs, targets = _rows(stream, chosen, length, separate_documents)
                yield inputs, {"logits": targets}

    names = _input_names(separate_documents)
    row = tf.TensorSpec([None, length], tf.int32)
    signature = (dict.fromkeys(names, row), {"logits": row})
    return tf.data.Dataset.from_generator(batches, output_signature=signature).prefetch(2)


def evaluation_batches(
    stream: TokenStream,
    *,
    length: int,
    batch_size: int,
    stride: int | None = None,
    separate_documents: bool = False,
) -> tf.data.Dataset:
    """Batches in which every token of the text counts once.

    Args:
        stream: the text.
        length: tokens a row.
        batch_size: rows a batch.
        stride: by how much a row begins after the one before it. Tokens that the row before has
            counted have weight 0: all that count, but for the first, are predicted from `length` -
            `stride` tokens at least. `length` by default, the cheapest.
        separate_documents: see `training_batches`.

    Returns:
        As `training_batches`, and {"logits": weights float32 (batch, length)}, 1 where a token
        counts: all of them sum to `stream.num_targets`.

    Raises:
        ValueError: `stride` is not in 1 to `length`.
    """
    stride = length if stride is None else stride
    if not 1 <= stride <= length:
        raise ValueError(f"stride={stride}: give from 1 to length={length}")
    num_strides = -(-max(0, stream.num_targets - length) // stride)
    starts = stride * np.arange(num_strides + 1)

    def batches() -> Iterator[Any]:
        for chosen in _chunks(starts, batch_size):
            inputs, targets = _rows(stream, chosen, length, separate_documents)
            places = chosen[:, None] + np.arange(length)  # (batch, length), of the inputs
            counted = np.where(chosen == 0, 0, chosen + length - stride)[:, None]
            weights = (places >= counted) & (places < stream.num_targets)
            yield inputs, {"logits": targets}, {"logits": weights.astype(np.float32)}

    row = tf.TensorSpec([None, length], tf.int32)
    signature = (
        dict.fromkeys(_input_names(separate_documents), row),
        {"logits": row},
        {"logits": tf.TensorSpec([None, length], tf.float32)},
    )
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    count = -(-len(starts) // batch_size)
    return dataset.apply(tf.data.experimental.assert_cardinality(count)).prefetch(2)


class TextPacker(tf.Module):
    """Texts as `models.gpt.classifier` reads them: start token, text, end token.

    With a second text behind an end token of its own. What is too long loses its end. It stands
    for the tokenizer where a classifier is exported.

    Args:
        tokenizer: whose start, end and padding tokens are one.
        name: of the module.

    Attributes:
        tokenizer: the same.
        vocabulary_size: of the tokenizer.
    """

    def __init__(self, tokenizer: BytePairTokenizer, *, name: str = "text_packer") -> None:
        super().__init__(name=name)
        self.tokenizer = tokenizer
        self.vocabulary_size = tokenizer.vocabulary_size

    @property
    def vocabulary(self) -> list[str]:
        """All tokens, by id. Not in the graph."""
        return self.tokenizer.vocabulary

    def __call__(
        self, text: Any, text_b: Any = None, *, max_sequence_length: int
    ) -> dict[str, tf.Tensor]:
        """Strings (batch,) to `token_ids` int32 and `padding_mask` bool, (batch, length)."""
        segments = self._segments(text, text_b)
        packed = packing.pack(
            packing.trim_longest_first(segments, max_sequence_length - 1 - len(segments)),
            special_tokens=[
                [self.tokenizer.start_token_id],
                *[[self.tokenizer.end_token_id]] * len(segments),
            ],
            pad_token_id=self.tokenizer.pad_token_id,
        )
        return {name: packed[name] for name in ("token_ids", "padding_mask")}

    def lengths(self, text: Any, text_b: Any = None) -> tf.Tensor:
        """Packed lengths before anything is trimmed: int32 (batch,)."""
        segments = self._segments(text, text_b)
        num_tokens = sum(segment.row_lengths() for segment in segments)
        return tf.cast(num_tokens + 1 + len(segments), tf.int32)

    def _segments(self, text: Any, text_b: Any) -> list[tf.RaggedTensor]:
        return [self.tokenizer.tokenize(t) for t in (text, text_b) if t is not None]


def classification_batches(
    examples: Examples,
    tokenizer: BytePairTokenizer,
    labels: Sequence[str],
    *,
    batch_size: int,
    max_sequence_length: int,
    shuffle: bool = False,
    seed: int = 0,
) -> tf.data.Dataset:
    """What a `models.gpt.classifier` learns from; arguments and errors as `classification.dataset`.

    Returns:
        Batches of (`token_ids` and `padding_mask`; `logits`, the label ids (batch,), and
        `token_logits`, the tokens that follow (batch, length); weights by the same names, 0 where
        no real token follows).
    """
    batches = classification.dataset(
        examples,
        TextPacker(tokenizer),
        labels,
        batch_size=batch_size,
        max_sequence_length=max_sequence_length,
        shuffle=shuffle,
        seed=seed,
    )

    def add_next_tokens(inputs: dict[str, Any], targets: dict[str, Any]) -> Any:
        token_ids, mask = inputs["token_ids"], inputs["padding_mask"]
        following = tf.pad(token_ids[:, 1:], [[0, 0], [0, 1]])
        weights = tf.cast(tf.pad(mask[:, 1:], [[0, 0], [0, 1]]), tf.float32)
        return (
            inputs,
            targets | {"token_logits": following},
            {"logits": tf.ones_like(targets["logits"], tf.float32), "token_logits": weights},
        )

    return batches.map(add_next_tokens)


def _rows(
    stream: TokenStream, starts: np.ndarray, length: int, separate_documents: bool
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Inputs and targets of rows that begin at `starts`; beyond the text its last token repeats."""
    places = np.minimum(starts[:, None] + np.arange(length + 1), stream.num_targets)
    token_ids = stream.token_ids[places]  # (rows, length + 1)
    inputs = {"token_ids": token_ids[:, :-1]}
    if separate_documents:
        inputs["document_ids"] = stream.document_ids[places[:, :-1]]
    return inputs, token_ids[:, 1:]


def _input_names(separate_documents: bool) -> list[str]:
    return ["token_ids", "document_ids"] if separate_documents else ["token_ids"]


def _chunks(values: np.ndarray, size: int) -> Iterator[np.ndarray]:
    return (values[start : start + size] for start in range(0, len(values), size))


def _overlapping(values: np.ndarray, starts: np.ndarray) -> list[np.ndarray]:
    """Parts that begin at 0 and `starts`, each but the last with the first value of the next."""
    bounds = [0, *starts.tolist()]
    return [values[start : end + 1] for start, end in itertools.pairwise(bounds)]
