"""Reads a text that is too long for a model in overlapping windows, and pools their outputs."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Self

import keras
import tensorflow as tf

from keras_transformers.dependencies.private_api import inner_layers, seed_generators
from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.layers.dense import PACKAGE
from keras_transformers.layers.tensors import Shape
from keras_transformers.tasks.token_inputs import in_chunks

__all__: list[str] = []

Pooling = Literal["mean", "max"]


class RealWindows(NamedTuple):
    """The windows of a batch that are not padding.

    Attributes:
        inputs: the model's inputs, each (windows, length).
        rows: int64 (windows,), the row of each window.
    """

    inputs: dict[str, tf.Tensor]
    rows: tf.Tensor


def real_windows(inputs: Mapping[str, tf.Tensor]) -> RealWindows:
    """Leaves out the windows that pad a batch (batch, windows, length) of the model's inputs.

    Each row keeps its first window, real or not.
    """
    is_real = tf.reduce_any(inputs["padding_mask"], axis=-1)  # (batch, windows)
    is_first = tf.range(tf.shape(is_real)[1]) == 0
    places = tf.where(is_real | is_first)  # (real windows, 2)
    return RealWindows(
        {name: tf.gather_nd(value, places) for name, value in inputs.items()}, places[:, 0]
    )


def pooled(
    outputs: Tensor, rows: Tensor, num_rows: Tensor, *, pooling: Pooling, unit: bool
) -> Tensor:
    """Pools the outputs of windows by their rows.

    Args:
        outputs: float (windows, ...).
        rows: int (windows,), the row of each window, ascending; each row has at least one.
        num_rows: the number of rows.
        pooling: "mean", in which all windows of a row count the same, or "max", of each number.
        unit: whether to scale the results to length 1.

    Returns:
        (num_rows, ...).
    """
    if pooling == "max":
        result = tf.math.unsorted_segment_max(outputs, rows, num_rows)
    else:
        result = tf.math.unsorted_segment_mean(outputs, rows, num_rows)
    return tf.math.l2_normalize(result, axis=-1, epsilon=1e-24) if unit else result


@keras.saving.register_keras_serializable(PACKAGE)
class OverWindows(keras.layers.Layer):
    """Runs a model on the windows of each row and pools its output, on TensorFlow.

    Only `at_once` windows are in memory at a time. A training step first computes the outputs of
    all windows and keeps only these, then computes each chunk again, with the same dropout, for its
    gradients (Gao et al. 2021, "GradCache", arXiv:2101.06983): one more forward pass, whose memory
    does not depend on the number of windows. Windows that are all padding are left out.

    Args:
        model: functional, from inputs (rows, length), with padding_mask, to one output (rows, ...).
        pooling: "mean" or "max"; see `pooled`.
        unit: whether to scale the results to length 1.
        at_once: windows per pass.
    """

    def __init__(
        self, model: keras.Model, *, pooling: Pooling, unit: bool, at_once: int = 32, **options: Any
    ) -> None:
        super().__init__(**options)
        (self.output_name,) = model.output
        self.model, self.pooling, self.unit, self.at_once = model, pooling, unit, at_once

    def call(self, inputs: Mapping[str, Tensor], training: bool | None = None) -> Tensor:
        """Maps inputs (batch, windows, length) to the pooled output (batch, ...), in float32."""
        windows = real_windows(inputs)
        outputs = self._outputs(windows.inputs, bool(training))
        return pooled(
            tf.cast(outputs, tf.float32),
            windows.rows,
            tf.shape(inputs["token_ids"])[0],
            pooling=self.pooling,
            unit=self.unit,
        )

    def compute_output_spec(
        self, inputs: Mapping[str, Tensor], training: bool | None = None
    ) -> Tensor:
        """Returns the shape and dtype of `call`'s result."""
        batch = inputs["token_ids"].shape[0]
        shape = self.model.output[self.output_name].shape
        return keras.KerasTensor((batch, *shape[1:]), dtype="float32")

    def inner_call(self, inputs: Mapping[str, Tensor]) -> tuple[keras.Model, dict[str, Shape]]:
        """Returns the model, and the shapes of its inputs for these, to count its operations."""
        shapes = {name: (x.shape[0] * x.shape[1], x.shape[2]) for name, x in inputs.items()}
        return self.model, shapes

    def get_config(self) -> dict[str, Any]:
        """Returns the layer's arguments."""
        options = {"pooling": self.pooling, "unit": self.unit, "at_once": self.at_once}
        model = keras.saving.serialize_keras_object(self.model)
        return {**super().get_config(), "model": model, **options}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Restores the layer."""
        model = keras.saving.deserialize_keras_object(config.pop("model"))
        return cls(model, **config)

    def _outputs(self, inputs: Mapping[str, tf.Tensor], training: bool) -> tf.Tensor:
        """Returns the model's output for rows (windows, length), some of them at a time."""
        model, name = self.model, self.output_name
        spec = tf.TensorSpec(model.output[name].shape, model.output[name].dtype)

        def run(rows: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            return {name: model(dict(rows), training=training)[name]}

        def all_outputs(rows: Mapping[str, tf.Tensor]) -> tf.Tensor:
            return in_chunks(run, rows, {name: spec}, size=self.at_once)[name]

        if not training:
            return all_outputs(inputs)
        generators = seed_generators(model)
        names = list(inputs)

        @tf.custom_gradient
        def recomputed(*tensors: tf.Tensor) -> Any:
            rows = dict(zip(names, tensors, strict=True))
            before = [tf.identity(generator.state) for generator in generators]
            outputs = all_outputs(rows)

            def gradient(upstream: tf.Tensor, variables: Any = ()) -> Any:
                after = [tf.identity(generator.state) for generator in generators]
                _set_states(generators, before)
                gradients = self._gradients(run, rows, upstream, variables)
                _set_states(generators, after)
                return [None] * len(tensors), gradients

            return outputs, gradient

        return recomputed(*inputs.values())

    def _gradients(
        self, run: Any, rows: Mapping[str, tf.Tensor], upstream: tf.Tensor, variables: Any
    ) -> list[tf.Tensor]:
        """Returns the sums of the chunks' gradients, from those of the outputs."""
        size = self.at_once

        def add(first: tf.Tensor, sums: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
            chunk = {name: value[first : first + size] for name, value in rows.items()}
            with tf.GradientTape() as tape:
                tape.watch(variables)
                outputs = run(chunk)[self.output_name]
            added = tape.gradient(
                outputs, variables, output_gradients=upstream[first : first + size]
            )
            return first + size, [
                total if one is None else total + tf.cast(tf.convert_to_tensor(one), total.dtype)
                for total, one in zip(sums, added, strict=True)
            ]

        zeros = [tf.zeros(variable.shape, variable.dtype) for variable in variables]
        num_windows = tf.shape(upstream)[0]
        _, gradients = tf.while_loop(
            lambda first, _: first < num_windows,
            add,
            (tf.constant(0), zeros),
            parallel_iterations=1,  # otherwise several chunks are in memory at once
        )
        return gradients


def over_windows(model: keras.Model, *, pooling: Pooling, unit: bool) -> keras.Model:
    """Returns a model with the same weights that reads each row in windows, for training.

    Args:
        model: functional, with inputs (batch, length) and one output.
        pooling: see `pooled`, as for `unit`.
        unit: whether results have length 1.

    Returns:
        A functional model with the inputs of `model`, each (batch, windows, length), and its output
        in float32.
    """
    inputs = {
        name: keras.Input((None, *tensor.shape[1:]), dtype=tensor.dtype, name=name)
        for name, tensor in model.input.items()
    }
    layer = OverWindows(model, pooling=pooling, unit=unit, name="over_windows")
    return keras.Model(
        inputs, {layer.output_name: layer(inputs)}, name=f"{model.name}_over_windows"
    )


def limit_windows(model: keras.Model, *, at_once: int) -> None:
    """Sets how many windows a model has in memory at a time, if it reads any."""
    for layer in inner_layers(model):
        if isinstance(layer, OverWindows):
            layer.at_once = at_once


def _set_states(generators: list[keras.random.SeedGenerator], states: list[tf.Tensor]) -> None:
    for generator, state in zip(generators, states, strict=True):
        generator.state.assign(state)
