"""Defines what an index of a corpus offers to a search."""

import abc
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_transformers.tokenizers.protocols import Tokenizer

__all__ = ["Index"]


class Index(abc.ABC):
    """Scores all documents of a corpus for queries.

    Attributes:
        num_documents: size of the corpus.
        models: the models that turn a query into what is compared.
        tokenizers: theirs.
        stored: variables and tables of the graph besides these.
    """

    num_documents: int
    models: Sequence[keras.Model] = ()
    tokenizers: Sequence[Tokenizer] = ()
    stored: Sequence[Any] = ()

    @abc.abstractmethod
    def scores(self, text: tf.Tensor) -> tf.Tensor:
        """Scores texts for queries, strings (batch,), in the graph: float32 (batch, texts)."""

    @abc.abstractmethod
    def metadata(self) -> Mapping[str, Any]:
        """Returns what an export records of the index, as JSON values."""

    @property
    def num_bytes(self) -> int:
        """The bytes of what is stored for the documents, without their texts."""
        return sum(
            x.shape.num_elements() * x.dtype.size for x in self.stored if isinstance(x, tf.Variable)
        )
