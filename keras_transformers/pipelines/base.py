"""What every pipeline is: a model with what comes before it and after it, written once.

`encode` and `answer` are graph code. Training batches and validation use the first; Python answers
and the export use both, so they cannot disagree.
"""

import abc
import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.pipelines import results, saving

__all__ = ["Pipeline", "Signature"]

PREDICT = tf.saved_model.PREDICT_METHOD_NAME
CLASSIFY = tf.saved_model.CLASSIFY_METHOD_NAME
REGRESS = tf.saved_model.REGRESS_METHOD_NAME


@dataclass(frozen=True)
class Signature:
    """One named entry point of a SavedModel.

    Attributes:
        function: takes the inputs as keyword arguments and returns a dict of tensors; traced for
            the export, and run eagerly on the examples for the outputs that the export must repeat.
        inputs: name -> tf.TensorSpec, None for the batch dimension.
        outputs: the same for the outputs.
        examples: one dict of input arrays per example, each a whole batch; strings in arrays of
            dtype object. They are stored in the export with their outputs.
        method_name: which of TF Serving's APIs takes it: PREDICT, CLASSIFY or REGRESS.
    """

    function: Callable[..., Mapping[str, Any]]
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    examples: Sequence[Mapping[str, np.ndarray]]
    method_name: str = PREDICT


class Pipeline(abc.ABC):
    """A model together with its text processing and its answers.

    A pipeline is called with strings and answers with the types of `pipelines.results`; `save` and
    `keras_transformers.load` keep it in a folder; `keras_transformers.export` makes a SavedModel
    with the same answers.

    Attributes:
        task: its name, as in an export's metadata.
        model: the functional Keras model, reduced to what the task uses.
        text_names: the inputs, in the order in which a call takes them.
        tolerance: how far an export's float outputs may be from the pipeline's.
    """

    task: ClassVar[str]
    model: keras.Model
    text_names: tuple[str, ...]

    @abc.abstractmethod
    def answer(self, **texts: Any) -> dict[str, Any]:
        """Strings to outputs, in the graph: what the signature `serving_default` computes.

        Args:
            **texts: `text_names` -> strings (batch,), where `batch` may be 0.

        Returns:
            Output name -> tensor (batch, ...).
        """

    @abc.abstractmethod
    def answer_specs(self) -> dict[str, Any]:
        """The outputs of `answer`: name -> tf.TensorSpec (None, ...)."""

    @abc.abstractmethod
    def example_batches(self, examples: Sequence[Any] | None) -> list[dict[str, np.ndarray]]:
        """What an export is checked on: the examples, awkward texts and an empty batch.

        Args:
            examples: as a call takes them, one or a tuple per row; None for plain ones.

        Returns:
            Batches, each `text_names` -> strings (batch,) in an array of dtype object.

        Raises:
            ValueError: an example is not of the right type.
        """

    def other_signatures(self, batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Signature]:
        """The entry points of an export beside `serving_default`, with examples from `batches`."""
        return {}

    @abc.abstractmethod
    def config(self) -> dict[str, Any]:
        """The keyword arguments that make this pipeline again, as JSON values.

        Without the model and the tokenizers, which `save` writes to files of their own.
        """

    def metadata(self) -> dict[str, Any]:
        """What an export tells of this pipeline beside its model and vocabulary, as JSON values."""
        return {}

    @property
    def tokenizers(self) -> dict[str, Any]:
        """The tokenizers by the names of the arguments that take them."""
        return {}

    @property
    def tolerance(self) -> float:
        """1e-5 in float32; bfloat16 and float16 graphs round differently from eager execution."""
        dtypes = {layer.compute_dtype for layer in self.model.layers}
        return 1e-5 if dtypes == {"float32"} else 2e-2

    def signatures(self, examples: Sequence[Any] | None = None) -> dict[str, Signature]:
        """The entry points of an export, `serving_default` first.

        Args:
            examples: to check the export with, stored in it; None for plain ones.
        """
        batches = self.example_batches(examples)
        default = Signature(self.answer, self._input_specs(), self.answer_specs(), batches)
        return {"serving_default": default, **self.other_signatures(batches)}

    def __call__(self, *texts: Any, batch_size: int = 32) -> Any:
        """Answers one string or many.

        Args:
            *texts: `text_names` in order, such as `text` or `question, context`: one string each
                (str or bytes), or a sequence of them each.
            batch_size: rows that are computed at once; rows of like length share a batch.

        Returns:
            A result of the task's type for one string; a list of them, in order, for many.

        Raises:
            ValueError: too few or too many texts, or what is not a string.
        """
        one = bool(texts) and all(isinstance(text, str | bytes) for text in texts)
        columns = [[text] for text in texts] if one else list(texts)
        if len(columns) != len(self.text_names):
            raise ValueError(
                f"{type(self).__name__} takes {', '.join(self.text_names)}, not {len(columns)} "
                "arguments: give one string or a list of strings for each"
            )
        named = dict(zip(self.text_names, columns, strict=True))
        found = [results.typed(row) for row in self.rows(named, batch_size=batch_size)]
        return found[0] if one else found

    def rows(
        self, texts: Mapping[str, Iterable[str | bytes]], *, batch_size: int = 32
    ) -> list[dict[str, Any]]:
        """As a call; each answer is a dict, output name -> str, number or nested list.

        Args:
            texts: `text_names` -> strings.
            batch_size: as for a call.
        """
        columns = {name: _strings(name, column) for name, column in texts.items()}
        counts = {name: len(column) for name, column in columns.items()}
        if set(counts) != set(self.text_names) or len(set(counts.values())) != 1:
            raise ValueError(
                f"{type(self).__name__} takes as many {' as '.join(self.text_names)}, not {counts}"
            )
        num_rows = next(iter(counts.values()))
        lengths = [sum(len(column[i]) for column in columns.values()) for i in range(num_rows)]
        order = sorted(range(num_rows), key=lengths.__getitem__)
        padded = [
            name
            for name, spec in self.answer_specs().items()
            if len(spec.shape) > 1 and spec.shape[1] is None
        ]
        found: list[dict[str, Any]] = [{}] * num_rows
        for start in range(0, num_rows, batch_size):
            chosen = order[start : start + batch_size]
            batch = {name: tf.constant(column[chosen]) for name, column in columns.items()}
            outputs = {name: value.numpy() for name, value in self._graph(**batch).items()}
            for i, row in zip(chosen, results.rows(outputs, padded), strict=True):
                found[i] = row
        return found

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Writes the pipeline to a new folder, whole or not at all.

        `keras_transformers.load` restores it bit for bit: configuration, weights (safetensors),
        vocabulary, labels.

        Args:
            folder: to be made; its parents too.

        Raises:
            FileExistsError: the folder exists.
        """
        return saving.save(self, folder)

    @classmethod
    def restore(cls, model: keras.Model, tokenizers: Mapping[str, Any], **config: Any) -> Self:
        """The pipeline that `config`, `tokenizers` and `model` were taken from."""
        make: Any = cls
        return make(model, **tokenizers, **config)

    @functools.cached_property
    def _graph(self) -> Callable[..., dict[str, Any]]:
        specs = {
            name: tf.TensorSpec(spec.shape, spec.dtype, name=name)
            for name, spec in self._input_specs().items()
        }
        return tf.function(self.answer, autograph=False).get_concrete_function(**specs)

    def _input_specs(self) -> dict[str, Any]:
        return dict.fromkeys(self.text_names, tf.TensorSpec([None], tf.string))


def _strings(name: str, texts: Iterable[str | bytes]) -> np.ndarray:
    one = isinstance(texts, str | bytes) or not isinstance(texts, Iterable)
    column = [] if one else list(texts)
    if one or not all(isinstance(text, str | bytes) for text in column):
        raise ValueError(f"{name} must be a list of strings, not {column or texts!r:.200}")
    return np.array(
        [t.encode("utf-8", "surrogateescape") if isinstance(t, str) else t for t in column],
        dtype=object,
    )
