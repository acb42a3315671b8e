"""Defines the base of all pipelines: a model with its pre- and postprocessing, written once.

`encode` and `answer` are graph code. Training and validation use the first; Python answers and the
export use both, so they cannot disagree.
"""

import abc
import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.dependencies import graph_errors
from keras_transformers.pipelines.results import reading
from keras_transformers.pipelines.results.texts import string_column, without_tensors
from keras_transformers.pipelines.weights import saving

__all__ = ["Pipeline", "Signature"]

PREDICT = tf.saved_model.PREDICT_METHOD_NAME
CLASSIFY = tf.saved_model.CLASSIFY_METHOD_NAME
REGRESS = tf.saved_model.REGRESS_METHOD_NAME


@dataclass(frozen=True)
class Signature:
    """One named entry point of a SavedModel.

    Attributes:
        function: takes the inputs as keyword arguments and returns a dict of tensors. The export
            traces it, and runs it eagerly on the examples to get the outputs to reproduce.
        inputs: name -> tf.TensorSpec, with None for the batch dimension.
        outputs: the same for the outputs.
        examples: dicts of input arrays, each a whole batch; strings are in arrays of dtype object.
            The export stores them with their outputs.
        method_name: the TF Serving API that calls it: PREDICT, CLASSIFY or REGRESS.
    """

    function: Callable[..., Mapping[str, Any]]
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    examples: Sequence[Mapping[str, np.ndarray]]
    method_name: str = PREDICT


def shared(method: Callable[..., Any]) -> Callable[..., Any]:
    """Makes an export store the graph of a pipeline's method once, for all signatures that use it.

    Args:
        method: graph code that takes and returns tensors; signatures call it with keywords.
    """

    @functools.wraps(method)
    def call(self: Any, *args: Any, **inputs: Any) -> Any:
        if self._as_function is None:
            return method(self, *args, **inputs)
        if method not in self._functions:
            self._functions[method] = self._as_function(functools.partial(method, self))
        return self._functions[method](*args, **inputs)

    return call


class Pipeline(abc.ABC):
    """A model together with its text processing and its answers.

    Call a pipeline with strings; it returns the types in `pipelines.results`. `save` writes it to a
    folder that `keras_transformers.load` reads; `keras_transformers.export` makes a SavedModel that
    gives the same answers.

    Attributes:
        task: the task's name in the metadata of exports.
        model: the functional Keras model, reduced to the part that the task uses.
        text_names: the inputs, in the order in which a call takes them.
        adapter: the low-rank updates from the last training, if it trained any; they are merged
            into the model. See `fitting.Adapter`.
        tolerance: how far an export's float outputs may be from the pipeline's.
    """

    task: ClassVar[str]
    adapter: Any = None
    model: keras.Model
    text_names: tuple[str, ...]
    _run: Callable[..., Any] | None = None
    _as_function: Callable[..., Any] | None = None
    _functions: dict[Callable[..., Any], Callable[..., Any]]

    @abc.abstractmethod
    def answer(self, **texts: Any) -> dict[str, Any]:
        """Computes the outputs of the signature `serving_default` from strings, in the graph.

        Args:
            **texts: name in `text_names` -> strings, shaped as `input_specs` says; `batch` may
                be 0.

        Returns:
            Output name -> tensor (batch, ...).
        """

    def input_specs(self) -> dict[str, Any]:
        """Returns the inputs of `answer`: name in `text_names` -> tf.TensorSpec of strings.

        Their shape is (None,), or (None, None) for inputs with a list of strings in each row, where
        "" pads shorter rows.
        """
        return dict.fromkeys(self.text_names, tf.TensorSpec([None], tf.string))

    @abc.abstractmethod
    def answer_specs(self) -> dict[str, Any]:
        """Returns the outputs of `answer`: name -> tf.TensorSpec (None, ...)."""

    @abc.abstractmethod
    def example_batches(self, examples: Sequence[Any] | None) -> list[dict[str, np.ndarray]]:
        """Returns batches for checking an export: the examples, awkward texts and an empty batch.

        Args:
            examples: arguments for calls, one string or tuple per row; None for the defaults.

        Returns:
            Batches, each name in `text_names` -> strings in an array of dtype object, with the rank
            in `input_specs`.

        Raises:
            ValueError: an example has the wrong type.
        """

    def other_signatures(self, batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Signature]:
        """Returns the signatures other than `serving_default`, with `batches` as their examples."""
        return {}

    @abc.abstractmethod
    def config(self) -> dict[str, Any]:
        """Returns the keyword arguments that rebuild this pipeline, as JSON values.

        The model and the tokenizers are not among them: `save` writes those to separate files.
        """

    def metadata(self) -> dict[str, Any]:
        """Returns metadata that an export records with the model and vocabulary, as JSON values."""
        return {}

    def run_model(self, inputs: Mapping[str, Any]) -> Any:
        """Computes the model's outputs from its inputs by name, in inference."""
        if self._run is None:
            return self.model(inputs, training=False)
        return self._run(**{name: inputs[name] for name in self.model.input})

    def read(self, *texts: Any) -> dict[str, list[str]]:
        """Runs the model once on one row of texts, for `inspection.attention`.

        Returns:
            The tokens at the positions of the attention: `source` for an encoder, `target` for a
            decoder's inputs, `predicted` for the tokens that it predicts there.

        Raises:
            ValueError: the pipeline's model has no attention.
        """
        raise ValueError(f"{type(self).__name__}: the model has no attention to show")

    @contextlib.contextmanager
    def exporting(self, run: Callable[..., Any], as_function: Callable[..., Any]) -> Iterator[None]:
        """Makes graphs compute and share functions as exports do.

        Args:
            run: `run(**inputs)` computes the model's outputs faster.
            as_function: makes a tf.function from each `shared` method; calls then use it.
        """
        self._run, self._as_function, self._functions = run, as_function, {}
        try:
            yield
        finally:
            del self._run, self._as_function, self._functions

    @property
    def tokenizers(self) -> dict[str, Any]:
        """The tokenizers, keyed by the names of their arguments."""
        return {}

    @property
    def tolerance(self) -> float:
        """1e-5 in float32, else 2e-2, because graphs round differently in half precision."""
        dtypes = {layer.compute_dtype for layer in self.model.layers}
        return 1e-5 if dtypes == {"float32"} else 2e-2

    def signatures(self, examples: Sequence[Any] | None = None) -> dict[str, Signature]:
        """Returns the signatures of an export, `serving_default` first.

        Args:
            examples: stored in the export and used to check it; None for the defaults.
        """
        batches = self.example_batches(examples)
        default = Signature(self.answer, self.input_specs(), self.answer_specs(), batches)
        return {"serving_default": default, **self.other_signatures(batches)}

    def __call__(self, *texts: Any, batch_size: int = 32) -> Any:
        """Answers one input or many.

        Args:
            *texts: the inputs in the order of `text_names`, such as `text` or `question, context`:
                each is a string (str or bytes), or each is a sequence or tensor of strings. Inputs
                of rank 2 are a sequence of strings, or a sequence of those.
            batch_size: rows per batch; rows of similar length share a batch.

        Returns:
            One result of the task's type for one input; a list of results, in order, for many.

        Raises:
            ValueError: there are too few or too many texts, one is not a string (None, for
                example; the message says which), or the graph refuses one, such as a text that
                the model has no positions for.
        """
        texts = tuple(map(without_tensors, texts))
        one = bool(texts) and isinstance(texts[0], str | bytes)
        columns = [[text] for text in texts] if one else list(texts)
        if len(columns) != len(self.text_names):
            raise ValueError(
                f"{type(self).__name__} takes {', '.join(self.text_names)}, not {len(columns)} "
                "arguments: pass one string or a list of strings for each"
            )
        named = dict(zip(self.text_names, columns, strict=True))
        answer = reading.answer_type(self.task)
        found = [reading.typed(row, answer) for row in self.rows(named, batch_size=batch_size)]
        return found[0] if one else found

    def rows(
        self, texts: Mapping[str, Iterable[str | bytes]], *, batch_size: int = 32
    ) -> list[dict[str, Any]]:
        """Answers like a call, but returns dicts: output name -> str, number or nested list.

        Args:
            texts: name in `text_names` -> strings; lists of strings for inputs of rank 2.
            batch_size: rows per batch.
        """
        ranks = {name: len(spec.shape) for name, spec in self.input_specs().items()}
        columns = {
            name: string_column(name, column, rank=ranks.get(name, 1))
            for name, column in texts.items()
        }
        counts = {name: len(column) for name, column in columns.items()}
        if set(counts) != set(self.text_names) or len(set(counts.values())) != 1:
            raise ValueError(
                f"{type(self).__name__} needs as many {' as '.join(self.text_names)}, not {counts}"
            )
        num_rows = next(iter(counts.values()))
        order = np.argsort(sum(map(_num_bytes, columns.values())), kind="stable")
        padded = [
            name
            for name, spec in self.answer_specs().items()
            if len(spec.shape) > 1 and spec.shape[1] is None
        ]
        answer = reading.answer_type(self.task)
        found: list[dict[str, Any]] = [{}] * num_rows
        for start in range(0, num_rows, batch_size):
            chosen = order[start : start + batch_size]
            batch = {name: tf.constant(column[chosen]) for name, column in columns.items()}
            with graph_errors.as_value_errors():
                outputs = {name: value.numpy() for name, value in self._graph(**batch).items()}
            for i, row in zip(chosen, reading.rows(outputs, padded, answer), strict=True):
                found[i] = row
        return found

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Writes the pipeline to a new folder, completely or not at all.

        `keras_transformers.load` restores it bit for bit: configuration, weights (safetensors),
        vocabulary and labels.

        Args:
            folder: created, with its parents.

        Raises:
            FileExistsError: the folder exists.
        """
        return saving.save(self, folder)

    @classmethod
    def restore(cls, model: keras.Model, tokenizers: Mapping[str, Any], **config: Any) -> Self:
        """Rebuilds a pipeline from its `model`, `tokenizers` and `config`."""
        make: Any = cls
        return make(model, **tokenizers, **config)

    @functools.cached_property
    def _graph(self) -> Callable[..., dict[str, Any]]:
        specs = {
            name: tf.TensorSpec(spec.shape, spec.dtype, name=name)
            for name, spec in self.input_specs().items()
        }
        return tf.function(self.answer, autograph=False).get_concrete_function(**specs)


def _num_bytes(column: np.ndarray) -> np.ndarray:
    """Returns the total length of each row's strings: int (rows,)."""
    lengths = np.vectorize(len, otypes=[int])(column)
    return lengths.sum(axis=tuple(range(1, column.ndim)))
