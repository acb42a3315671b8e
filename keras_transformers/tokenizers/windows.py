"""Cuts texts that are too long for an encoder into overlapping windows.

Uses only core ops, eagerly or in a graph. Training and serving share this code, so they cut the
same windows.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from keras_transformers.tokenizers import packing
from keras_transformers.tokenizers.protocols import PackingTokenizer, SpanTokenizer
from keras_transformers.tokenizers.tensors import Texts, item_numbers


class Windows(NamedTuple):
    """The tokens in each window, row by row.

    Attributes:
        rows: int64 (windows,), the row of each window.
        starts: int64 (windows,), the index in the row of the window's first token.
        lengths: int64 (windows,), in tokens; a row without tokens has one window of length 0.
    """

    rows: tf.Tensor
    starts: tf.Tensor
    lengths: tf.Tensor


def plan(num_tokens: tf.Tensor, room: int | tf.Tensor, step: int | tf.Tensor) -> Windows:
    """Plans windows over rows of tokens, `step` tokens apart until they reach the row's end.

    Each token is in at least one window.

    Args:
        num_tokens: int64 (rows,), number of tokens in each row.
        room: maximum tokens in a window, 1 or more; one number or int64 (rows,).
        step: tokens between the starts of windows, at most `room`; one number or int64 (rows,).

    Example:
        >>> plan([7, 2], 4, 2).starts.numpy().tolist()
        [0, 2, 4, 0]
    """
    num_tokens = tf.cast(num_tokens, tf.int64)
    room, step = (tf.cast(size, tf.int64) + tf.zeros_like(num_tokens) for size in (room, step))
    counts = 1 + tf.nn.relu(-((room - num_tokens) // step))  # rounded up
    rows = item_numbers(counts, tf.int64)
    first = tf.gather(tf.cumsum(counts, exclusive=True), rows)
    starts = (tf.range(tf.size(rows, tf.int64)) - first) * tf.gather(step, rows)
    lengths = tf.minimum(tf.gather(room, rows), tf.gather(num_tokens, rows) - starts)
    return Windows(rows, starts, lengths)


class Halves(NamedTuple):
    """Windows that overlap by half. Each token counts in only one: where it has more context.

    Attributes:
        windows: the windows.
        step: tokens between the starts of windows.
        lead: tokens `lead` to `lead + step` of a window count, plus those before them in a row's
            first window and those after them in its last.
    """

    windows: Windows
    step: int
    lead: int


def plan_halves(num_tokens: tf.Tensor, room: int) -> Halves:
    """Plans windows for labelling every token.

    Each token has a quarter of a window of context on both sides, or all there is.

    Args:
        num_tokens: int64 (rows,), number of tokens in each row.
        room: maximum tokens in a window, 1 or more.

    Example:
        >>> halves = plan_halves([7], 4)
        >>> halves.windows.starts.numpy().tolist(), halves.step, halves.lead
        ([0, 2, 4], 2, 1)
    """
    step = max(1, room // 2)
    return Halves(plan(num_tokens, room, step), step, (room - step) // 2)


def cut(tokens: tf.RaggedTensor, windows: Windows) -> tf.RaggedTensor:
    """Cuts `tokens` (rows, None) into windows (windows, None)."""
    first = tf.gather(tokens.row_starts(), windows.rows) + windows.starts
    return tf.gather(tokens.values, tf.ragged.range(first, first + windows.lengths))


def cut_texts(
    tokenizer: PackingTokenizer,
    segments: Sequence[tf.RaggedTensor],
    *,
    max_sequence_length: int,
    overlap: int,
) -> tuple[Windows, list[tf.RaggedTensor]]:
    """Cuts texts, or the first texts of pairs, into windows with room for special tokens.

    The second text of a pair is whole in each window of the first, up to half of a window's tokens
    that are not special. The last window of a text has more tokens than the overlap.

    Args:
        tokenizer: the tokenizer that packs the windows.
        segments: the tokens of one or two texts, int32 (rows, None).
        max_sequence_length: tokens in a window, including special tokens.
        overlap: tokens that a window shares with the next.

    Returns:
        The windows of the first texts, and the segments of each window, (windows, None).
    """
    first, *others = segments
    room = max_sequence_length - tokenizer.num_special_tokens(len(segments))
    others = [packing.trim(second, room // 2) for second in others]
    left = room - sum(second.row_lengths() for second in others)
    windows = plan(first.row_lengths(), left, left - overlap)
    return windows, [cut(first, windows), *(tf.gather(x, windows.rows) for x in others)]


def check_overlap(
    tokenizer: PackingTokenizer, *, max_sequence_length: int, overlap: int, num_texts: int
) -> None:
    """Raises ValueError unless each window of `cut_texts` has tokens that the last one lacks."""
    room = max_sequence_length - tokenizer.num_special_tokens(num_texts)
    most = room - 1 if num_texts == 1 else room - room // 2 - 1
    if not 0 <= overlap <= most:
        what = "a window" if num_texts == 1 else "the first text's half of a window"
        raise ValueError(
            f"window_overlap={overlap}: expected 0 to {most} tokens, fewer than {what} of "
            f"max_sequence_length={max_sequence_length}"
        )


def check_question_windows(
    tokenizer: SpanTokenizer, *, max_sequence_length: int, doc_stride: int, max_question_length: int
) -> None:
    """Raises ValueError unless a window has room for a question and some context."""
    if doc_stride < 1 or max_question_length < 1:
        raise ValueError(
            f"doc_stride={doc_stride}, max_question_length={max_question_length}: both must be at "
            "least 1 token"
        )
    num_special = tokenizer.num_special_tokens(2)
    if max_sequence_length - max_question_length - num_special < 1:
        raise ValueError(
            f"max_sequence_length={max_sequence_length} leaves no room for the context after a "
            f"question of max_question_length={max_question_length} tokens and {num_special} "
            "special tokens: raise the first or lower the second"
        )


def plan_question_windows(
    tokenizer: SpanTokenizer,
    num_question_tokens: tf.Tensor,
    num_context_tokens: tf.Tensor,
    *,
    max_sequence_length: int,
    doc_stride: int,
) -> Windows:
    """Plans windows over contexts that leave room for questions and special tokens.

    Args:
        tokenizer: the tokenizer that packs the windows.
        num_question_tokens: int64 (questions,), after truncation.
        num_context_tokens: int64 (questions,).
        max_sequence_length: tokens in a window, including question and special tokens.
        doc_stride: context tokens between the starts of windows, as in BERT (Hugging Face's stride
            is the overlap). If a window has less room, that room.
    """
    num_special = tokenizer.num_special_tokens(2)
    room = max_sequence_length - num_special - tf.cast(num_question_tokens, tf.int64)
    return plan(num_context_tokens, room, tf.minimum(room, doc_stride))


def question_windows(
    tokenizer: SpanTokenizer,
    question: Texts,
    context: Texts,
    *,
    max_sequence_length: int = 384,
    doc_stride: int = 128,
    max_question_length: int = 64,
) -> dict[str, tf.Tensor]:
    """Converts questions and contexts to the inputs of an encoder.

    BERT's inputs are [CLS] question [SEP] context [SEP] (Devlin et al. 2018, section 4.2). A long
    context takes several windows.

    Args:
        tokenizer: the encoder's tokenizer.
        question: strings (batch,); tokens beyond `max_question_length` are cut off.
        context: strings (batch,).
        max_sequence_length: tokens in a window, including question and special tokens.
        doc_stride: context tokens between the starts of windows.
        max_question_length: in tokens.

    Returns:
        The outputs of `tokenizer.pack`, each (windows, length); `rows` int32 (windows,), the
        question of each window; `starts` and `ends` int32 (windows, length), the span of each
        context token in bytes of its context, -1 for other tokens; `numbers` int32 (windows,
        length), which token of the texts each is: all questions' tokens are counted, then all
        contexts', -1 for special tokens and padding.

    Raises:
        ValueError: the lengths leave no room for a context.
    """
    check_question_windows(
        tokenizer,
        max_sequence_length=max_sequence_length,
        doc_stride=doc_stride,
        max_question_length=max_question_length,
    )
    asked = tokenizer.tokenize(question)
    questions = packing.trim(asked, max_question_length)
    token_ids, starts, ends = tokenizer.tokenize_with_offsets(context)
    tf.debugging.assert_equal(
        questions.nrows(), token_ids.nrows(), "question and context differ in number"
    )
    windows = plan_question_windows(
        tokenizer,
        questions.row_lengths(),
        token_ids.row_lengths(),
        max_sequence_length=max_sequence_length,
        doc_stride=doc_stride,
    )
    count = tf.size(asked.values)
    number = packing.trim(asked.with_values(tf.range(count)), max_question_length)
    context_number = count + tf.range(tf.size(token_ids.values))
    questions, number = (tf.gather(x, windows.rows) for x in (questions, number))  # (windows, None)
    inputs = tokenizer.pack(
        [questions, cut(token_ids, windows)],
        max_sequence_length=max_sequence_length,
    )
    elsewhere = [[-1] * len(tokens) for tokens in tokenizer.special_tokens(2)]
    nowhere = questions.with_values(tf.fill(tf.shape(questions.values), -1))

    def packed(values: tf.RaggedTensor, of_question: tf.RaggedTensor = nowhere) -> tf.Tensor:
        return packing.join([of_question, cut(values, windows)], elsewhere).to_tensor(-1)

    return {
        **inputs,
        "rows": tf.cast(windows.rows, tf.int32),
        "starts": packed(starts),
        "ends": packed(ends),
        "numbers": packed(token_ids.with_values(context_number), number),
    }
