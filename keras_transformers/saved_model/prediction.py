"""Runs an export with TensorFlow and tensorflow-text's ops alone, without this package's models.

`keras-transformers predict` uses this; for a service, use TF Serving.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.dependencies import graph_errors
from keras_transformers.dependencies.text_library import register_ops
from keras_transformers.saved_model.checks.check import why_not_loaded
from keras_transformers.saved_model.description import check_fingerprint, read_metadata
from keras_transformers.saved_model.versions import resolve
from keras_transformers.tasks import answers as reading
from keras_transformers.tasks.texts import (
    named_columns,
    string_column,
    text_inputs,
)

__all__ = ["Predictor", "predict"]


class Predictor:
    """A loaded export, called with columns of inputs.

    Args:
        path: an export, or the BASE of its versions, of which the newest is used.
        signature: the signature to run.

    Raises:
        FileNotFoundError: there is no export.
        ValueError: it cannot be loaded, or has no such signature.

    Attributes:
        path: the version folder that was loaded.
        signature_names: the names of all of its signatures.
        inputs: name -> tf.TensorSpec of the signature's inputs.
        text_names: the inputs that take texts, in the order of a call; empty if the signature takes
            anything else.
    """

    def __init__(self, path: str | os.PathLike[str], *, signature: str = "serving_default") -> None:
        self.path = resolve(path)
        check_fingerprint(self.path)
        register_ops()
        # The signatures do not reference the loaded object, which owns their variables.
        try:
            self._loaded = tf.saved_model.load(str(self.path))
        except Exception as error:  # any error that a damaged file causes
            why = why_not_loaded(self.path, error)
            raise ValueError(f"{self.path} cannot be loaded: {why}") from error
        if signature not in self._loaded.signatures:
            raise ValueError(
                f"{self.path} has no signature {signature!r}; it has "
                f"{', '.join(sorted(self._loaded.signatures))}"
            )
        self.signature_names = tuple(self._loaded.signatures)
        self._function = self._loaded.signatures[signature]
        self.inputs: dict[str, Any] = self._function.structured_input_signature[1]
        self._answer = reading.answer_type(read_metadata(self.path).get("task", ""))
        self.text_names = text_inputs(list(self.inputs))
        shapes = {name: spec.shape for name, spec in self._function.structured_outputs.items()}
        self._padded = [
            name
            for name, shape in shapes.items()
            if shape.rank is not None and shape.rank > 1 and shape[1] is None
        ]

    def __call__(
        self, inputs: Mapping[str, Sequence[Any]], *, batch_size: int = 32
    ) -> list[dict[str, Any]]:
        """Answers rows of inputs.

        Args:
            inputs: name -> one value per row; or a table (pandas, polars, Arrow) with these
                columns. Strings may be str or bytes; a str may contain undecodable bytes as
                surrogates, as with Python's `surrogateescape`. Strings (batch, any) are lists; ""
                pads shorter ones.
            batch_size: rows in one call of the graph.

        Returns:
            One dict per row, output name -> str, number or nested list: JSON values; see
            `tasks.answers.rows`.

        Raises:
            ValueError: names, lengths or types of the inputs do not fit the signature, or the graph
                rejects them.
        """
        by_name = named_columns(inputs)
        takes = f"{self.path} takes {', '.join(sorted(self.inputs))} with the same number of rows"
        if set(by_name) != set(self.inputs):
            raise ValueError(f"{takes}, not {', '.join(map(str, by_name))}")
        columns = {name: self._column(name, values) for name, values in by_name.items()}
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"{takes}, not rows {lengths}")
        rows: list[dict[str, Any]] = []
        for start in range(0, next(iter(lengths.values())), batch_size):
            batch = {
                name: tf.constant(column[start : start + batch_size], self.inputs[name].dtype)
                for name, column in columns.items()
            }
            try:
                outputs = {name: value.numpy() for name, value in self._function(**batch).items()}
            except tf.errors.OpError as error:
                end = start + len(next(iter(batch.values())))
                place = f"{self.path}: rows {start + 1} to {end}"
                raise graph_errors.value_error(error, place) from error
            rows += reading.rows(outputs, self._padded, self._answer)
        return rows

    def _column(self, name: str, values: Sequence[Any]) -> np.ndarray:
        spec = self.inputs.get(name)
        if spec is not None and spec.dtype != tf.string:
            return np.asarray(values, spec.dtype.as_numpy_dtype)
        rank = 2 if spec is not None and spec.shape.rank == 2 else 1
        return string_column(name, values, rank=rank)


def predict(
    path: str | os.PathLike[str],
    inputs: Mapping[str, Sequence[Any]],
    *,
    signature: str = "serving_default",
    batch_size: int = 32,
) -> list[dict[str, Any]]:
    """Loads an export and answers rows of inputs; see `Predictor`."""
    return Predictor(path, signature=signature)(inputs, batch_size=batch_size)
