"""The encoder of a recurrent sequence-to-sequence model."""

from typing import Any

import keras
from keras import ops

from keras_transformers.layers.composite import CompositeLayer
from keras_transformers.layers.dense import PACKAGE
from keras_transformers.layers.recurrent.cells import CellKind, Recurrent

__all__ = ["RecurrentEncoder"]


@keras.saving.register_keras_serializable(PACKAGE)
class RecurrentEncoder(CompositeLayer):
    """Stacks LSTMs or GRUs, in one direction or both.

    Args:
        cell: "lstm" or "gru".
        units: width of each direction.
        num_layers: number of layers.
        bidirectional: whether a second network reads backward; the outputs are concatenated.
        join_states: with two directions, whether to concatenate the states of both. By default
            `states` are the backward direction's, which end at the first token (Bahdanau et al.
            2014, appendix A.2.2).
        dropout: rate on the inputs of every layer but the first.

    Raises:
        ValueError: an unknown cell, or fewer than one layer.
    """

    def __init__(
        self,
        cell: CellKind,
        units: int,
        *,
        num_layers: int = 1,
        bidirectional: bool = False,
        join_states: bool = False,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if num_layers < 1:
            raise ValueError(f"num_layers={num_layers}: an encoder needs at least one layer")
        self._arguments = {
            "cell": cell,
            "units": units,
            "num_layers": num_layers,
            "bidirectional": bidirectional,
            "join_states": join_states,
            "dropout": dropout,
        }
        self.join_states = join_states
        directions = ("forward", "backward") if bidirectional else ("forward",)
        self.recurrent_layers = [
            [
                Recurrent(
                    cell,
                    units,
                    reverse=direction == "backward",
                    dtype=self.dtype_policy,
                    name=f"{direction}_{index}",
                )
                for direction in directions
            ]
            for index in range(num_layers)
        ]
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, inputs_shape: Any) -> None:
        """Builds the layers."""
        for layers in self.recurrent_layers:
            for layer in layers:
                layer.build(inputs_shape)
            inputs_shape = (*inputs_shape[:-1], sum(layer.cell.output_dim for layer in layers))

    def call(
        self, inputs: Any, padding_mask: Any = None, training: bool | None = None
    ) -> dict[str, Any]:
        """Reads the sources.

        Args:
            inputs: (batch, source, features).
            padding_mask: bool (batch, source), True at real tokens.
            training: whether to apply dropout.

        Returns:
            A dictionary: `memory` (batch, source, width), the last layer's outputs, 0 at padding;
            `summary` (batch, width), the final output of each of its directions; `states`, each
            layer's tuple of final states, (batch, units) or with `join_states` (batch, width).
        """
        hidden = inputs
        states = []
        for index, layers in enumerate(self.recurrent_layers):
            if index:
                hidden = self.dropout(hidden, training=training)
            outputs, finals = zip(*(layer(hidden, padding_mask) for layer in layers), strict=True)
            hidden = ops.concatenate(outputs, axis=-1) if len(outputs) > 1 else outputs[0]
            joined = tuple(ops.concatenate(parts, axis=-1) for parts in zip(*finals, strict=True))
            states.append(joined if self.join_states else finals[-1])
        summary = joined[0]
        return {"memory": hidden, "summary": summary, "states": tuple(states)}

    def compute_output_spec(
        self, inputs: Any, padding_mask: Any = None, training: bool | None = None
    ) -> dict[str, Any]:
        """Returns the shapes and dtypes of `call`'s results; tracing `call` for them is slow."""
        batch, length = inputs.shape[:2]
        directions = self.recurrent_layers[0]
        cell = directions[0].cell
        width = len(directions) * cell.output_dim

        def spec(*shape: int | None) -> Any:
            return keras.KerasTensor(shape, dtype=self.compute_dtype)

        widths = [width if self.join_states else n for n in cell.state_dims]
        return {
            "memory": spec(batch, length, width),
            "summary": spec(batch, width),
            # A tensor of its own for each state: Keras tells results apart by identity.
            "states": tuple(tuple(spec(batch, n) for n in widths) for _ in self.recurrent_layers),
        }

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | self._arguments
