"""Packs rows of tokens into an encoder's dense, padded inputs.

Uses only core TensorFlow ops: tensorflow_text's trimmers and packers need ops that TensorFlow
Serving's images lack (github.com/tensorflow/serving/issues/2267).
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from keras_transformers.tokenizers.protocols import SpanTokenizer, TextTokenizer
from keras_transformers.tokenizers.tensors import Texts, kept, row_numbers


def trim(rows: tf.RaggedTensor, max_tokens: int | tf.Tensor) -> tf.RaggedTensor:
    """Cuts the ends off rows that are too long.

    Args:
        rows: (batch, None).
        max_tokens: maximum tokens in a row, one number or int64 (batch,).

    Returns:
        The shortened rows.
    """
    num_kept = tf.minimum(rows.row_lengths(), max_tokens)  # (batch,)
    row = row_numbers(rows)  # (tokens,)
    position = tf.range(tf.size(row, tf.int64)) - tf.gather(rows.row_starts(), row)
    values = kept(rows.values, position < tf.gather(num_kept, row))
    return tf.RaggedTensor.from_row_lengths(values, num_kept, validate=False)


def trim_longest_first(
    segments: Sequence[tf.RaggedTensor], max_tokens: int
) -> list[tf.RaggedTensor]:
    """Cuts tokens off the end of the longer segment, one by one, until both fit together.

    Same result as truncation="longest_first" in Hugging Face's fast tokenizers: if both segments
    are cut and `max_tokens` is odd, the longer one keeps the odd token, or the second if they were
    equally long.

    Args:
        segments: one or two ragged tensors of tokens, (batch, None).
        max_tokens: maximum tokens of a row in both segments together.

    Returns:
        The shortened segments.
    """
    if len(segments) == 1:
        return [trim(segments[0], max_tokens)]
    first, second = segments
    num_first, num_second = first.row_lengths(), second.row_lengths()  # (batch,)
    half = (max_tokens + tf.cast(num_first > num_second, tf.int64)) // 2
    return [
        trim(first, tf.maximum(max_tokens - num_second, half)),
        trim(second, tf.maximum(max_tokens - num_first, max_tokens - half)),
    ]


def pack(
    segments: Sequence[tf.RaggedTensor],
    *,
    special_tokens: Sequence[Sequence[int]],
    pad_token_id: int,
    length: int | None = None,
) -> dict[str, tf.Tensor]:
    """Joins segments and special tokens, and pads the rows to one length.

    Args:
        segments: ragged tensors of tokens, int32 (batch, None).
        special_tokens: ids before each segment and after the last; BERT: [CLS] a [SEP] b [SEP].
        pad_token_id: pads the rest of each row.
        length: length to pad to, at least that of the longest row with its special tokens (the
            default).

    Returns:
        token_ids int32, segment_ids int32 (0 for the first segment and padding, 1 for the second)
        and padding_mask bool (True = token), each (batch, length). Hugging Face calls them
        input_ids, token_type_ids and attention_mask.
    """
    rows = join(segments, special_tokens)
    token_ids = rows.to_tensor(pad_token_id, shape=[None, length])  # (batch, length)
    width = tf.shape(token_ids)[1]
    padding_mask = tf.sequence_mask(rows.row_lengths(), width)
    num_special = sum(map(len, special_tokens[:2]))
    in_first = tf.sequence_mask(segments[0].row_lengths() + num_special, width)
    return {
        "token_ids": token_ids,
        "segment_ids": tf.cast(padding_mask & ~in_first, tf.int32),
        "padding_mask": padding_mask,
    }


def join(segments: Sequence[tf.RaggedTensor], between: Sequence[Sequence[int]]) -> tf.RaggedTensor:
    """Joins segments, with the same tokens around them in each row.

    Args:
        segments: ragged tensors of tokens, int32 (batch, None).
        between: ids before each segment and after the last.

    Returns:
        int32 (batch, None).
    """
    batch = segments[0].nrows()
    first, *others = (tf.tile(tf.constant([tokens], tf.int32), [batch, 1]) for tokens in between)
    parts = [part for pair in zip(segments, others, strict=True) for part in pair]
    return tf.concat([first, *parts], axis=1)


def ends_of_sources(tokenizer: TextTokenizer | SpanTokenizer) -> tuple[list[int], list[int]]:
    """Returns the ids before and after a source: its encoder's own, or only the end token.

    Args:
        tokenizer: the tokenizer for the sources of an encoder-decoder. A pretrained encoder's has
            `special_tokens` that its encoder expects, such as [CLS] and [SEP].
    """
    if hasattr(tokenizer, "special_tokens"):
        before, after = tokenizer.special_tokens(1)
        return before, after
    return [], [tokenizer.end_token_id]


class Packing:
    """Packs the tokens of texts and pairs, with the tokenizer's special tokens around them.

    A base of tokenizers; they set `pad_token_id` and say which `special_tokens` they add.
    """

    pad_token_id: int
    tokenize: Callable[[Texts], tf.RaggedTensor]
    _marks = "special tokens"  # for messages

    def pack(
        self,
        segments: Sequence[tf.RaggedTensor],
        *,
        max_sequence_length: int,
        pad_to_max_length: bool = False,
    ) -> dict[str, tf.Tensor]:
        """Packs the tokens of texts or pairs of texts into the inputs of an encoder.

        Texts that are too long lose their end, the longer one of a pair first
        (`trim_longest_first`).

        Args:
            segments: one or two ragged tensors from `tokenize`, int32 (batch, None).
            max_sequence_length: in tokens, including special ones.
            pad_to_max_length: pad to that length instead of the longest row of the batch.

        Returns:
            token_ids and segment_ids int32, padding_mask bool, each (batch, length).

        Raises:
            ValueError: `max_sequence_length` has no room for the special tokens.
        """
        num_added = self.num_special_tokens(len(segments))
        if max_sequence_length < num_added:
            raise ValueError(
                f"max_sequence_length={max_sequence_length}: {self._marks} take {num_added} tokens "
                "already; increase it"
            )
        return pack(
            trim_longest_first(segments, max_sequence_length - num_added),
            special_tokens=self.special_tokens(len(segments)),
            pad_token_id=self.pad_token_id,
            length=max_sequence_length if pad_to_max_length else None,
        )

    def special_tokens(self, num_segments: int) -> list[list[int]]:
        """Returns the ids that `pack` adds: before each segment and after the last."""
        raise NotImplementedError

    def num_special_tokens(self, num_segments: int) -> int:
        """Returns the number of tokens that `pack` adds."""
        return sum(map(len, self.special_tokens(num_segments)))

    def _segments(self, text: Texts, text_b: Texts | None) -> list[tf.RaggedTensor]:
        if text_b is None:
            return [self.tokenize(text)]
        segments = [self.tokenize(text), self.tokenize(text_b)]
        counts = [segment.nrows() for segment in segments]
        tf.debugging.assert_equal(*counts, "text and text_b differ in number")
        return segments


class BertPacking(Packing):
    """Packing as in BERT: [CLS] a [SEP] for one text, [CLS] a [SEP] b [SEP] for a pair.

    A base of tokenizers; they set the ids and `tokenize`.
    """

    cls_token_id: int
    sep_token_id: int
    mask_token: str
    _marks = "[CLS] and [SEP]"

    def __call__(
        self,
        text: Texts,
        text_b: Texts | None = None,
        *,
        max_sequence_length: int,
        pad_to_max_length: bool = False,
    ) -> dict[str, tf.Tensor]:
        """Converts texts or pairs of texts to the inputs of an encoder; see `pack`.

        Args:
            text: strings (batch,).
            text_b: second texts, strings (batch,).
            max_sequence_length: in tokens, including [CLS] and [SEP].
            pad_to_max_length: pad to that length instead of the longest row of the batch.

        Returns:
            token_ids and segment_ids int32, padding_mask bool, each (batch, length).

        Raises:
            ValueError: `max_sequence_length` has no room for [CLS] and [SEP], or texts are not of
                shape (batch,).
            tf.errors.InvalidArgumentError: `text` and `text_b` differ in number.
        """
        return self.pack(
            self._segments(text, text_b),
            max_sequence_length=max_sequence_length,
            pad_to_max_length=pad_to_max_length,
        )

    def special_tokens(self, num_segments: int) -> list[list[int]]:
        """Returns the ids that `pack` adds around segments: [CLS] a [SEP] b [SEP]."""
        return [[self.cls_token_id], *[[self.sep_token_id]] * num_segments]

    def split_at_masks(self, text: Texts) -> tf.RaggedTensor:
        """Splits strings (batch,) at mask tokens into one or more pieces: (batch, None)."""
        return tf.strings.split(text, self.mask_token)

    def lengths(self, text: Texts, text_b: Texts | None = None) -> tf.Tensor:
        """Returns the lengths of texts or pairs before truncation and padding.

        Calling the tokenizer truncates those with `lengths(text) > max_sequence_length`.

        Args:
            text: strings (batch,).
            text_b: second texts, strings (batch,).

        Returns:
            int32 (batch,), in tokens, including [CLS] and [SEP].
        """
        segments = self._segments(text, text_b)
        num_tokens = sum(segment.row_lengths() for segment in segments)
        return tf.cast(num_tokens, tf.int32) + self.num_special_tokens(len(segments))


class RobertaPacking(Packing):
    """Packing as in RoBERTa: <s> a </s> for one text, <s> a </s></s> b </s> for a pair.

    A base of tokenizers that come from fairseq; they set the ids and `tokenize`.
    """

    start_token_id: int
    end_token_id: int
    mask_token: str = "<mask>"

    def __call__(
        self,
        text: Texts,
        text_b: Texts | None = None,
        *,
        max_sequence_length: int,
        pad_to_max_length: bool = False,
    ) -> dict[str, tf.Tensor]:
        """Converts texts or pairs of texts to the inputs of an encoder; see `pack`.

        Args:
            text: strings (batch,).
            text_b: the second texts, strings (batch,).
            max_sequence_length: number of tokens, with the special ones.
            pad_to_max_length: pad to that length, not to the longest row.
        """
        packed = self.pack(
            self._segments(text, text_b),
            max_sequence_length=max_sequence_length,
            pad_to_max_length=pad_to_max_length,
        )
        return {name: packed[name] for name in ("token_ids", "padding_mask")}

    def pack(
        self,
        segments: Sequence[tf.RaggedTensor],
        *,
        max_sequence_length: int,
        pad_to_max_length: bool = False,
    ) -> dict[str, tf.Tensor]:
        """Packs the tokens of texts or pairs of texts as `Packing.pack` does.

        All segment_ids are 0: RoBERTa has no segments, but a BERT may read such a tokenizer's
        tokens.
        """
        packed = super().pack(
            segments, max_sequence_length=max_sequence_length, pad_to_max_length=pad_to_max_length
        )
        return {
            **{name: packed[name] for name in ("token_ids", "padding_mask")},
            "segment_ids": tf.zeros_like(packed["token_ids"]),
        }

    def special_tokens(self, num_segments: int) -> list[list[int]]:
        """Returns the ids that `pack` adds around segments: <s> a </s></s> b </s>."""
        between = [[self.end_token_id, self.end_token_id]] * (num_segments - 1)
        return [[self.start_token_id], *between, [self.end_token_id]]

    def split_at_masks(self, text: Texts) -> tf.RaggedTensor:
        """Splits strings (batch,) at the mask token into pieces (batch, None).

        A mask stands for a word and the white space before it, so that is removed.
        """
        text = tf.strings.regex_replace(text, rf"[\s\pZ]*{self.mask_token}", self.mask_token)
        return tf.strings.split(text, self.mask_token)


def document_start(tokenizer: TextTokenizer) -> int:
    """Returns the token before a document: the start token, or the previous one's end token."""
    start = tokenizer.start_token_id
    return tokenizer.end_token_id if start is None else start
