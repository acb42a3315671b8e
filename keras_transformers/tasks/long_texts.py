"""Defines the base class of pipelines that read texts of any length."""

import abc
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.ranges import Default
from keras_transformers.tasks.explaining import ExplainedPipeline
from keras_transformers.tasks.pipeline import Signature
from keras_transformers.tasks.token_inputs import (
    in_chunks,
    one_row,
    text_batches,
)
from keras_transformers.tasks.windows import (
    Pooling,
    limit_windows,
    over_windows,
    pooled,
    real_windows,
)
from keras_transformers.tokenizers import windows
from keras_transformers.tokenizers.protocols import PackingTokenizer

__all__: list[str] = []

LongTexts = Literal["cut", "windows"]

_OVERLAP = 8  # by default, windows share an eighth of their tokens


class LongTextPipeline(ExplainedPipeline):
    """A pipeline with one output per text, which it can pool over the windows of a long text.

    Args:
        model: see `TextPipeline`, as for the other arguments without a description.
        tokenizer: see `TextPipeline`.
        output: the model's output that the answers are made of, (batch, ...).
        max_sequence_length: tokens of a row or a window.
        pair: whether a row is a pair of texts.
        long_texts: "cut" leaves out what exceeds `max_sequence_length` tokens; "windows" reads all
            of it, in overlapping windows of that length, and pools `output` over them.
        window_pooling: "mean" or "max" over the windows.
        window_overlap: tokens that a window shares with the next; an eighth of
            `max_sequence_length` by default.

    Raises:
        ValueError: model, tokenizer and lengths do not match, or an option is unknown.
    """

    def __init__(
        self,
        model: keras.Model,
        tokenizer: PackingTokenizer,
        *,
        output: str,
        max_sequence_length: int | None,
        pair: bool = False,
        long_texts: LongTexts = "cut",
        window_pooling: Pooling = "mean",
        window_overlap: int | None = None,
    ) -> None:
        super().__init__(
            model,
            tokenizer,
            outputs=(output,),
            max_sequence_length=max_sequence_length,
            pair=pair,
        )
        for name, value, kind in (
            ("long_texts", long_texts, LongTexts),
            ("window_pooling", window_pooling, Pooling),
        ):
            if value not in get_args(kind):
                raise ValueError(f"{name}={value!r}: use {' or '.join(map(repr, get_args(kind)))}")
        self.long_texts, self.window_pooling = long_texts, window_pooling
        if window_overlap is None or isinstance(window_overlap, Default):
            window_overlap = Default(self.max_sequence_length // _OVERLAP)
        windows.check_overlap(
            tokenizer,
            max_sequence_length=self.max_sequence_length,
            overlap=window_overlap,
            num_texts=1 + pair,
        )
        self.window_overlap: int = window_overlap
        if long_texts == "windows" and "padding_mask" not in self.token_inputs:
            raise ValueError(
                f"long_texts='windows' needs a model with the input padding_mask, which model "
                f"{model.name!r} lacks: leave it out"
            )

    @property
    def reads_windows(self) -> bool:
        """Whether the inputs are windows of long texts, (batch, windows, length)."""
        return self.long_texts == "windows"

    def check_explained(self) -> None:
        """Checks that the pipeline can be explained; ValueError with the remedy if not."""
        if self.reads_windows:
            raise ValueError(
                "explanations are of a text that one window holds: set long_texts='cut', as in "
                "pipeline.with_options(long_texts='cut'), and pass a part of the text"
            )
        super().check_explained()

    @abc.abstractmethod
    def interpret(self, output: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes the answers from the model's output (batch, ...), in the graph."""

    def decode(self, tokens: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Computes the answers from what `encode` returns, in the graph."""
        if not self.reads_windows:
            return self.interpret(self._output(tokens))
        real = real_windows(tokens)
        return self._pooled(real.inputs, real.rows, tf.shape(tokens["token_ids"])[0])

    def answer(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes the answers from strings, in the graph."""
        return self.answer_segments(self.tokenize(*(texts[name] for name in self.text_names)))

    def answer_segments(self, segments: Sequence[tf.RaggedTensor]) -> dict[str, tf.Tensor]:
        """Computes the answers from the tokens of one or two texts, in the graph."""
        if not self.reads_windows:
            return self.decode(self.pack(segments))
        with tf.device("CPU:0"):  # ragged ops run only on the CPU
            inputs, plan = self._windows(segments)
            num_rows = tf.cast(segments[0].nrows(), tf.int32)
        return self._pooled(inputs, plan.rows, num_rows)

    def pack(self, segments: Sequence[tf.RaggedTensor]) -> dict[str, tf.Tensor]:
        """Packs the tokens of one or two texts, with special tokens, and pads them.

        Returns:
            The model's inputs: (batch, length), as long as the longest row; or (batch, windows,
            length) if the pipeline reads windows, where those after a row's own are all padding.
        """
        if not self.reads_windows:
            return super().pack(segments)
        with tf.device("CPU:0"):
            inputs, plan = self._windows(segments)
            num_rows = segments[0].nrows()
            counts = tf.math.bincount(
                tf.cast(plan.rows, tf.int32), minlength=tf.cast(num_rows, tf.int32)
            )
            most = tf.maximum(1, tf.reduce_max(tf.pad(counts, [[0, 1]])))
            places = tf.where(tf.sequence_mask(counts, most))  # (all windows, 2), in their order
            shape = tf.stack([num_rows, tf.cast(most, tf.int64)])
            return {
                name: tf.scatter_nd(
                    places, value, tf.concat([shape, tf.shape(value, tf.int64)[1:]], axis=0)
                )
                for name, value in inputs.items()
            }

    def encode_row(self, *texts: str | bytes | Sequence[str]) -> dict[str, tf.Tensor]:
        """Turns one row of texts, as far as one window holds it, into the model's inputs."""
        return super().pack(self.tokenize(*map(one_row, self.text_names, texts)))

    def num_windows(self, segments: Sequence[tf.RaggedTensor]) -> tf.Tensor:
        """Counts the windows in which each row of tokens is read: int32 (batch,)."""
        if not self.reads_windows:
            return super().num_windows(segments)
        with tf.device("CPU:0"):
            plan, _ = self._cut(segments)
            num_rows = tf.cast(segments[0].nrows(), tf.int32)
            return tf.math.bincount(tf.cast(plan.rows, tf.int32), minlength=num_rows)

    def is_trimmed(self, segments: Sequence[tf.RaggedTensor]) -> tf.Tensor:
        """Returns which rows of tokens lose some: bool (batch,)."""
        if not self.reads_windows:
            return self.lengths(segments) > self.max_sequence_length
        room = self.max_sequence_length - self.tokenizer.num_special_tokens(len(segments))
        rows = [second.row_lengths() > room // 2 for second in segments[1:]]
        return rows[0] if rows else tf.zeros([tf.cast(segments[0].nrows(), tf.int32)], tf.bool)

    def training_model(self, *, at_once: int | None = None) -> keras.Model:
        """Returns the model that reads what `encode` returns; see `Pipeline.training_model`."""
        if not self.reads_windows:
            return super().training_model(at_once=at_once)
        if at_once is not None:
            limit_windows(self._over_windows, at_once=at_once)
        return self._over_windows

    def other_signatures(self, batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Signature]:
        """Returns `tokens`; and `windows`, from texts to their number of windows."""
        signatures = super().other_signatures(batches)
        if not self.reads_windows:
            return signatures
        counts = {"num_windows": tf.TensorSpec([None], tf.int32)}
        count = Signature(self._count, self.input_specs(), counts, batches)
        return {**signatures, "windows": count}

    def tokens_signature(self, *args: Any, **options: Any) -> Signature:
        """Returns a signature that takes what `encode` returns."""
        signature = super().tokens_signature(*args, **options)
        if not self.reads_windows:
            return signature
        specs = {
            name: tf.TensorSpec([None, *spec.shape], spec.dtype)
            for name, spec in signature.inputs.items()
        }
        return Signature(signature.function, specs, signature.outputs, signature.examples)

    def example_batches(self, examples: Sequence[Any] | None) -> list[dict[str, np.ndarray]]:
        """Returns the examples, awkward texts (one of several windows) and an empty batch."""
        long = self.max_sequence_length * (3 if self.reads_windows else 1)
        return text_batches(examples, self.text_names, long=long)

    def config(self) -> dict[str, Any]:
        """Returns the keyword arguments that rebuild this pipeline, as JSON values."""
        return {**super().config(), **self.window_options()}

    def window_options(self) -> dict[str, Any]:
        """Returns the options of windows; without windows, only those that are not defaults."""
        options: dict[str, Any] = {
            "long_texts": self.long_texts,
            "window_pooling": self.window_pooling,
            "window_overlap": self.window_overlap,
        }
        if self.reads_windows:
            return options
        changed = {"window_pooling": self.window_pooling != "mean"}
        changed["window_overlap"] = not isinstance(self.window_overlap, Default)
        return {name: options[name] for name, is_changed in changed.items() if is_changed}

    @functools.cached_property
    def _over_windows(self) -> keras.Model:
        return over_windows(self.model, pooling=self.window_pooling, unit=self._is_unit)

    @property
    def _is_unit(self) -> bool:
        """Whether pooled outputs are scaled to length 1."""
        return False

    def _count(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        segments = self.tokenize(*(texts[name] for name in self.text_names))
        return {"num_windows": self.num_windows(segments)}

    def _cut(
        self, segments: Sequence[tf.RaggedTensor]
    ) -> tuple[windows.Windows, list[tf.RaggedTensor]]:
        return windows.cut_texts(
            self.tokenizer,
            segments,
            max_sequence_length=self.max_sequence_length,
            overlap=self.window_overlap,
        )

    def _windows(
        self, segments: Sequence[tf.RaggedTensor]
    ) -> tuple[dict[str, tf.Tensor], windows.Windows]:
        """Returns the inputs of all windows, row by row, (windows, length), and their plan."""
        plan, of_windows = self._cut(segments)
        return super().pack(of_windows), plan

    def _output(self, tokens: Mapping[str, tf.Tensor]) -> tf.Tensor:
        (output,) = self.run_model(tokens).values()
        return tf.cast(output, tf.float32)

    def _pooled(
        self, inputs: Mapping[str, tf.Tensor], rows: tf.Tensor, num_rows: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Computes the answers from the inputs of all windows, some of them at a time."""
        (output,) = self.model.output.values()
        outputs = in_chunks(
            lambda chunk: {"output": self._output(chunk)},
            inputs,
            {"output": tf.TensorSpec(output.shape, tf.float32)},
        )["output"]
        return self.interpret(
            pooled(outputs, rows, num_rows, pooling=self.window_pooling, unit=self._is_unit)
        )
