"""Defines the encoder of a recurrent sequence-to-sequence model."""

from typing import Any, Literal

import keras
from keras import ops

from keras_transformers.layers.composite import CompositeLayer
from keras_transformers.layers.dense import PACKAGE, RowDense
from keras_transformers.layers.pooling import MeanOfTokens
from keras_transformers.layers.recurrent.cells import CellKind, Recurrent
from keras_transformers.layers.tensors import Shape, Tensor

__all__ = ["RecurrentEncoder"]

ContextFrom = Literal["last", "mean"]


@keras.saving.register_keras_serializable(PACKAGE)
class RecurrentEncoder(CompositeLayer):
    """Stacks LSTMs, GRUs or plain networks, in one direction or both.

    The context c, the source as one vector, is a function of the last state or of all states:

    | c | `context_from` | `context_dim` |
    |---|---|---|
    | `h_T` (Sutskever et al. 2014) | "last" | None |
    | `q(h_T) = tanh(V h_T + b)` (Cho et al. 2014, appendix A.1) | "last" | its width |
    | `mean(h_1 .. h_T)` | "mean" | None |
    | `q(h_1 .. h_T) = tanh(V mean(h_1 .. h_T) + b)` | "mean" | its width |

    Args:
        cell: "lstm", "gru" or "rnn" (see `Recurrent`).
        units: width of each direction.
        num_layers: number of layers.
        bidirectional: whether a second network reads backward; the outputs are concatenated.
        join_states: with two directions, whether to concatenate the states of both. By default
            `states` are the backward direction's, which end at the first token (Bahdanau et al.
            2014, appendix A.2.2).
        context_from: "last", the last layer's final output, or "mean", the mean of its outputs at
            real tokens. See above.
        context_dim: width of a dense layer with tanh on that; none by default.
        dropout: rate on the inputs of every layer but the first.

    Raises:
        ValueError: an unknown choice, or fewer than one layer.
    """

    def __init__(
        self,
        cell: CellKind,
        units: int,
        *,
        num_layers: int = 1,
        bidirectional: bool = False,
        join_states: bool = False,
        context_from: ContextFrom = "last",
        context_dim: int | None = None,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if context_from not in ("last", "mean"):
            raise ValueError(f"context_from={context_from!r} is unknown: use 'last' or 'mean'")
        if num_layers < 1:
            raise ValueError(f"num_layers={num_layers}: an encoder needs at least one layer")
        self._arguments = {
            "cell": cell,
            "units": units,
            "num_layers": num_layers,
            "bidirectional": bidirectional,
            "join_states": join_states,
            "context_from": context_from,
            "context_dim": context_dim,
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
        self.mean: keras.layers.Layer = (
            MeanOfTokens(dtype=self.dtype_policy) if context_from == "mean" else None
        )
        self.context: keras.layers.Layer = None
        if context_dim:
            self.context = RowDense(
                context_dim, activation="tanh", dtype=self.dtype_policy, name="context"
            )

    @property
    def starts_from_context(self) -> bool:
        """Whether `states` are the context, not each layer's own states."""
        return self.mean is not None or self.context is not None

    def build(self, inputs_shape: Shape) -> None:
        """Builds the layers."""
        for layers in self.recurrent_layers:
            for layer in layers:
                layer.build(inputs_shape)
            inputs_shape = (*inputs_shape[:-1], sum(layer.cell.output_dim for layer in layers))
        if self.context:
            self.context.build((None, inputs_shape[-1]))

    def call(
        self, inputs: Tensor, padding_mask: Tensor | None = None, training: bool | None = None
    ) -> dict[str, Any]:
        """Reads the sources.

        Args:
            inputs: (batch, source, features).
            padding_mask: bool (batch, source), True at real tokens.
            training: whether to apply dropout.

        Returns:
            A dictionary: `memory` (batch, source, width), the last layer's outputs, 0 at padding;
            `summary` (batch, context width), the context; `states`, each layer's tuple of final
            states, (batch, units) or with `join_states` (batch, width). If the context is not just
            the last state, it replaces every state.
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
        if self.mean:
            if padding_mask is None:
                padding_mask = ops.ones(ops.shape(inputs)[:2], dtype="bool")
            summary = self.mean(hidden, padding_mask)
        if self.context:
            summary = self.context(summary)
        if self.starts_from_context:
            states = [(summary,) * len(layer) for layer in states]
        return {"memory": hidden, "summary": summary, "states": tuple(states)}

    def compute_output_spec(
        self, inputs: Tensor, padding_mask: Tensor | None = None, training: bool | None = None
    ) -> dict[str, Any]:
        """Returns the shapes and dtypes of `call`'s results; tracing `call` for them is slow."""
        batch, length = inputs.shape[:2]
        directions = self.recurrent_layers[0]
        cell = directions[0].cell
        width = len(directions) * cell.output_dim

        def spec(*shape: int | None) -> Tensor:
            return keras.KerasTensor(shape, dtype=self.compute_dtype)

        summary = self.context.units if self.context else width
        widths = [width if self.join_states else n for n in cell.state_dims]
        if self.starts_from_context:
            widths = [summary for _ in widths]
        return {
            "memory": spec(batch, length, width),
            "summary": spec(batch, summary),
            # A separate tensor for each state, because Keras distinguishes results by identity.
            "states": tuple(tuple(spec(batch, n) for n in widths) for _ in self.recurrent_layers),
        }

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | self._arguments
