"""A stack of recurrent layers that reads the source of a sequence-to-sequence model."""

from typing import Any

import keras
from keras import ops

from keras_transformers.layers.dense import PACKAGE
from keras_transformers.layers.recurrent.cells import CellKind, Recurrent


@keras.saving.register_keras_serializable(PACKAGE)
class RecurrentEncoder(keras.layers.Layer):
    """LSTMs or GRUs on top of each other, in one direction or in both.

    Args:
        cell: "lstm" or "gru".
        units: width of each direction.
        num_layers: how many.
        bidirectional: a second network reads from the end; their outputs stand side by side.
        join_states: of two directions, give the states of both side by side; by default those of
            the backward one alone, which has read all down to the first token (Bahdanau et al.
            2014, appendix A.2.2).
        dropout: rate on what enters every layer but the first.

    Raises:
        ValueError: an unknown cell, or no layer.
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
            raise ValueError(f"num_layers={num_layers}: an encoder has at least one layer")
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
        """Makes the layers."""
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
            training: whether dropout acts.

        Returns:
            `memory` (batch, source, width), the last layer's outputs, 0 at padding; `summary`
            (batch, width), what its directions said last; `states`, for each layer the tuple of
            states after its last step, each (batch, units), or with `join_states` (batch, width).
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

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return super().get_config() | self._arguments
