"""Defines the base class of pipelines whose rows are a text and a list of others."""

from collections.abc import Sequence
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.files.errors import short_repr
from keras_transformers.tasks.texts import string_column
from keras_transformers.tasks.token_inputs import TextPipeline, one_row
from keras_transformers.tokenizers.protocols import PackingTokenizer

__all__: list[str] = []


class ListPipeline(TextPipeline):
    """A pipeline whose model reads a text with each item of a list; "" pads the lists of a batch.

    Subclasses name their lists and have examples of rows. See `TextPipeline`.
    """

    _LIST: ClassVar[str]
    _EXAMPLES: ClassVar[Sequence[tuple[str, list[str]]]]

    def __init__(
        self,
        model: keras.Model,
        tokenizer: PackingTokenizer,
        *,
        outputs: Sequence[str],
        extra_inputs: Sequence[str] = (),
        max_sequence_length: int | None,
    ) -> None:
        super().__init__(
            model,
            tokenizer,
            outputs=outputs,
            extra_inputs=extra_inputs,
            max_sequence_length=max_sequence_length,
            pair=True,
        )
        self.text_names = ("text", self._LIST)

    def input_specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the inputs of `answer`: name -> tf.TensorSpec of strings."""
        return {
            "text": tf.TensorSpec([None], tf.string),
            self._LIST: tf.TensorSpec([None, None], tf.string),
        }

    def example_batches(self, examples: Sequence[Any] | None) -> list[dict[str, np.ndarray]]:
        """Returns the examples, awkward texts (too long, or with an empty list) and an empty batch.

        Args:
            examples: a text and its list per row; None for default ones.
        """
        for row in (pairs := self._EXAMPLES if examples is None else examples):
            is_pair = isinstance(row, tuple | list) and len(row) == 2 and isinstance(row[0], str)
            if not is_pair or isinstance(row[1], str):
                raise ValueError(
                    f"examples must be tuples (text, {self._LIST}), not {short_repr(row)}"
                )
        strange, long = b"\xff\xfe is no UTF-8 \x00", "long " * self.max_sequence_length
        awkward = [("", [long, strange, ""]), (strange, ["", "a", " "]), (long, [long]), ("a", [])]
        return [
            {
                "text": string_column("text", [text for text, _ in rows]),
                self._LIST: string_column(self._LIST, [items for _, items in rows], rank=2),
            }
            for rows in (pairs, awkward, [])
        ]

    def config(self) -> dict[str, Any]:
        """Returns the keyword arguments that rebuild this pipeline, as JSON values."""
        return {"max_sequence_length": self.max_sequence_length}

    def packed_pairs(
        self, text: tf.Tensor, items: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Packs texts with each item of their lists.

        Args:
            text: strings (batch,).
            items: strings (batch, items), where "" is not an item.

        Returns:
            The model's inputs (pairs, length), and the row and column of each item, (pairs, 2).
        """
        with tf.device("CPU:0"):  # string ops run only on the CPU
            tf.debugging.assert_equal(
                tf.size(text), tf.shape(items)[0], f"text and {self._LIST} differ in number"
            )
            is_item = tf.not_equal(items, "")
            places = tf.where(is_item)  # (pairs, 2)
            return self.encode(tf.gather(text, places[:, 0]), items[is_item]), places

    def _first(self, items: str | bytes | Sequence[str]) -> tf.Tensor:
        item = next(filter(None, items), None)
        if item is None:
            raise ValueError(
                f"there is no {self._LIST.removesuffix('s')} to show: pass at least one"
            )
        return one_row(self._LIST, item)


class RankingPipeline(ListPipeline):
    """A pipeline that scores a list of documents for each text, and orders them.

    See `ListPipeline`.
    """

    def answer_specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the outputs of `answer`: name -> tf.TensorSpec (None, ...)."""
        return {
            "scores": tf.TensorSpec([None, None], tf.float32),
            "order": tf.TensorSpec([None, None], tf.int32),
            "num_documents": tf.TensorSpec([None], tf.int32),
        }


def likeliest(
    probabilities: tf.Tensor, is_item: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Finds the item of each row with the highest probability, in the graph.

    Args:
        probabilities: float32 (batch, items).
        is_item: bool (batch, items); others do not count.

    Returns:
        The index of the item, -1 in a row without items, and how many columns a row has up to its
        last item, int32 (batch,); and the item's probability, 0 without items, float32 (batch,).
    """
    one_more = [[0, 0], [0, 1]]  # column, so that there is one
    ranked = tf.pad(tf.where(is_item, probabilities, -1.0), one_more, constant_values=-1.0)
    best = tf.argmax(ranked, axis=1, output_type=tf.int32)
    places = tf.range(1, tf.shape(is_item)[1] + 1)
    ends = tf.pad(tf.where(is_item, places, 0), one_more)
    return (
        tf.where(tf.reduce_any(is_item, axis=1), best, -1),
        tf.reduce_max(ends, axis=1),
        tf.maximum(tf.reduce_max(ranked, axis=1), 0.0),
    )


def picked(items: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
    """Returns the item at an index of each row, strings (batch,); "" at -1.

    Args:
        items: strings (batch, items).
        index: int32 (batch,), from `likeliest`.
    """
    with tf.device("CPU:0"):  # string ops run only on the CPU
        nothing = tf.fill([tf.shape(items)[0], 1], "")
        return tf.gather(tf.concat([nothing, items], axis=1), index + 1, batch_dims=1)


def ranking(scores: tf.Tensor, documents: tf.Tensor) -> dict[str, tf.Tensor]:
    """Orders documents by their scores, in the graph.

    Args:
        scores: float32 (batch, documents).
        documents: strings (batch, documents), where "" is not a document.

    Returns:
        scores; order int32 (batch, documents), the indices of the documents, the best first, then
        -1; and num_documents int32 (batch,), which counts up to the last document.
    """
    is_document = tf.not_equal(documents, "")
    ranked = tf.where(is_document, scores, -np.inf)
    order = tf.argsort(ranked, axis=1, direction="DESCENDING", stable=True)
    counts = tf.reduce_sum(tf.cast(is_document, tf.int32), axis=1, keepdims=True)
    width = tf.range(tf.shape(documents)[1])
    ends = tf.pad(tf.where(is_document, width + 1, 0), [[0, 0], [0, 1]])
    return {
        "scores": scores,
        "order": tf.where(width[None] < counts, order, -1),
        "num_documents": tf.reduce_max(ends, axis=1),
    }
