"""Computes LSTM, GRU and a plain tanh network, one step at a time or over whole sequences.

A cell has two parts: the projection of its inputs, one matrix product for all steps, and the step
itself, which needs the previous state. Only the step runs in a loop. On a CPU this is faster than
`keras.layers.GRU` and `LSTM`. The LSTM also has what ELMo needs and Keras lacks: a projection,
clipping and TensorFlow 1's order of gates.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import keras
from keras import ops

from keras_transformers.layers.composite import CompositeLayer
from keras_transformers.layers.dense import PACKAGE, AddBias, RowDense
from keras_transformers.layers.tensors import Initializer, Shape, Tensor

__all__ = ["GRUCell", "LSTMCell", "RNNCell", "Recurrent"]

CellKind = Literal["lstm", "gru", "rnn"]
# A cell's states, each (rows, dim); the first is its output.
States = tuple[Tensor, ...]


class _Cell(CompositeLayer):
    """Base of all cells: the input projection and the initial states.

    Args:
        has_inputs: whether there is a matrix for inputs. Without one, the input projection only
            adds its bias to given gates (..., gates), such as zeros.

    Attributes:
        output_dim: width of the output, which is the first state.
        state_dims: width of each state.
        input_projection: maps (..., features) to (..., gates), bias included.
    """

    def __init__(
        self,
        units: int,
        num_gates: int,
        recurrent_initializer: Initializer,
        *,
        has_inputs: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.output_dim = units
        self.state_dims: tuple[int, ...] = (units,)
        self.num_gates = num_gates
        self.has_inputs = has_inputs
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer)
        arguments = {"dtype": self.dtype_policy, "name": "input_projection"}
        self.input_projection: keras.layers.Layer = (
            RowDense(num_gates * units, **arguments) if has_inputs else AddBias(**arguments)
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {
            "units": self.units,
            "has_inputs": self.has_inputs,
            "recurrent_initializer": keras.initializers.serialize(self.recurrent_initializer),
        }

    def _recurrent_weight(self, name: str, shape: tuple[int, int]) -> Tensor:
        return self.add_weight(
            name=name, shape=shape, initializer=self.recurrent_initializer.clone()
        )

    def zero_states(self, rows: Tensor) -> States:
        """Returns the states before the first step, all zeros."""
        return tuple(ops.zeros((rows, dim), dtype=self.compute_dtype) for dim in self.state_dims)


@keras.saving.register_keras_serializable(PACKAGE)
class RNNCell(_Cell):
    """The plain recurrent network of Elman 1990: the new state is `tanh(W x + U h + b)`.

    Args:
        units: width of the state.
        recurrent_initializer: initializer of the state matrix.
    """

    def __init__(
        self, units: int, *, recurrent_initializer: Initializer = "orthogonal", **kwargs: Any
    ) -> None:
        super().__init__(units, 1, recurrent_initializer, **kwargs)

    def build(self, input_shape: Shape) -> None:
        """Creates the weights for inputs (..., features)."""
        self.input_projection.build(input_shape)
        self.recurrent_kernel = self._recurrent_weight("recurrent_kernel", (self.units, self.units))

    def call(self, gates: Tensor, states: States) -> States:
        """Takes one step; `gates` (rows, units) are from `input_projection`."""
        (hidden,) = states
        return (ops.tanh(gates + ops.matmul(hidden, self.recurrent_kernel)),)


@keras.saving.register_keras_serializable(PACKAGE)
class GRUCell(_Cell):
    """The gated recurrent unit of Cho et al. 2014: the reset gate acts before the matrix product.

    `n = tanh(W x + U (r * h) + b)`; the new state is `z * h + (1 - z) * n`. Each gate has one bias.
    Cho and Bahdanau swap z and 1 - z, which changes only the name.

    Args:
        units: width of the state.
        recurrent_initializer: initializer of the state matrices.
    """

    def __init__(
        self, units: int, *, recurrent_initializer: Initializer = "orthogonal", **kwargs: Any
    ) -> None:
        super().__init__(units, 3, recurrent_initializer, **kwargs)

    def build(self, input_shape: Shape) -> None:
        """Creates the weights for inputs (..., features)."""
        self.input_projection.build(input_shape)
        self.gates_kernel = self._recurrent_weight("gates_kernel", (self.units, 2 * self.units))
        self.candidate_kernel = self._recurrent_weight("candidate_kernel", (self.units, self.units))

    def call(self, gates: Tensor, states: States) -> States:
        """Takes one step; `gates` (rows, 3 units), from `input_projection`, are z, r and n."""
        (hidden,) = states
        gates, candidate = ops.split(gates, [2 * self.units], axis=-1)
        gates = ops.sigmoid(gates + ops.matmul(hidden, self.gates_kernel))
        update, reset = ops.split(gates, 2, axis=-1)
        candidate = ops.tanh(candidate + ops.matmul(reset * hidden, self.candidate_kernel))
        return (candidate + update * (hidden - candidate),)


@keras.saving.register_keras_serializable(PACKAGE)
class LSTMCell(_Cell):
    """TensorFlow 1's `LSTMCell` without peepholes, with the projection of Sak et al. 2014.

    `c = sigmoid(f + 1) * c + sigmoid(i) * tanh(j)`, then `h = sigmoid(o) * tanh(c)`, projected. The
    1 is TensorFlow's forget bias, added to the trained bias, which starts at 0.

    Args:
        units: width of the memory c.
        projection_dim: width of the projected output; by default there is no projection.
        cell_clip: bound on the memory's absolute values; none by default.
        projection_clip: bound on the projected output's absolute values; none by default.
        recurrent_initializer: initializer of the recurrent matrix and the projection.
    """

    def __init__(
        self,
        units: int,
        *,
        projection_dim: int | None = None,
        cell_clip: float | None = None,
        projection_clip: float | None = None,
        recurrent_initializer: Initializer = "orthogonal",
        **kwargs: Any,
    ) -> None:
        super().__init__(units, 4, recurrent_initializer, **kwargs)
        self.projection_dim = projection_dim
        self.cell_clip = cell_clip
        self.projection_clip = projection_clip
        self.output_dim = projection_dim or units
        self.state_dims = (self.output_dim, units)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {
            "projection_dim": self.projection_dim,
            "cell_clip": self.cell_clip,
            "projection_clip": self.projection_clip,
        }

    def build(self, input_shape: Shape) -> None:
        """Creates the weights for inputs (..., features)."""
        self.input_projection.build(input_shape)
        self.recurrent_kernel = self._recurrent_weight(
            "recurrent_kernel", (self.output_dim, 4 * self.units)
        )
        if self.projection_dim:
            self.projection_kernel = self._recurrent_weight(
                "projection_kernel", (self.units, self.projection_dim)
            )

    def call(self, gates: Tensor, states: States) -> States:
        """Takes one step; `gates` (rows, 4 units), from `input_projection`, are i, j, f and o."""
        hidden, memory = states
        gates = gates + ops.matmul(hidden, self.recurrent_kernel)
        enter, candidate, forget, leave = ops.split(gates, 4, axis=-1)
        memory = ops.sigmoid(forget + 1.0) * memory
        memory = _clip(memory + ops.sigmoid(enter) * ops.tanh(candidate), self.cell_clip)
        hidden = ops.sigmoid(leave) * ops.tanh(memory)
        if self.projection_dim:
            hidden = _clip(ops.matmul(hidden, self.projection_kernel), self.projection_clip)
        return hidden, memory


def _clip(values: Tensor, bound: float | None) -> Tensor:
    return values if bound is None else ops.clip(values, -bound, bound)


def make_cell(kind: CellKind, units: int, **kwargs: Any) -> keras.layers.Layer:
    """Makes an `LSTMCell`, a `GRUCell` or an `RNNCell` with these keyword arguments.

    Raises:
        ValueError: the kind is unknown.
    """
    cells: dict[str, type[_Cell]] = {"lstm": LSTMCell, "gru": GRUCell, "rnn": RNNCell}
    if kind not in cells:
        raise ValueError(f"cell={kind!r} is unknown: use 'lstm', 'gru' or 'rnn'")
    return cells[kind](units, **kwargs)


def time_major(sequence: Tensor) -> Tensor:
    """Transposes (batch, time, ...) to (time, batch, ...), and back."""
    rank = len(sequence.shape)
    return ops.transpose(sequence, (1, 0, *range(2, rank)))


def scan_steps(
    step: Callable[..., Tensor],
    state: Tensor,
    sequences: Sequence[Tensor],
    *,
    reverse: bool = False,
) -> tuple[Tensor, Tensor]:
    """Loops over time and keeps the state of every step: `ops.scan` in a form TensorFlow can run.

    Do not pass a sequence that needs no gradient, such as a mask; let the step index into it.

    Args:
        step: called with the state, the index (an int32 scalar) and a slice of each sequence;
            returns the next state.
        state: any structure of tensors.
        sequences: one or more, each (time, ...), all of the same length.
        reverse: go from the last step to the first.

    Returns:
        The states after each step (time, ...), at that step's index, and the final state.
    """
    length = ops.shape(sequences[0])[0]
    stepped = [at_least_one(sequence) for sequence in sequences]
    indices = ops.arange(ops.shape(stepped[0])[0], dtype="int32")
    every = _scan(lambda state, inputs: step(state, *inputs), state, (indices, *stepped), reverse)
    after = keras.tree.map_structure(lambda kept: kept[0 if reverse else -1], every)
    if stepped[0] is sequences[0]:
        return every, after
    every = keras.tree.map_structure(lambda kept: kept[:length], every)
    pick = functools.partial(ops.where, ops.convert_to_tensor(length) > 0)
    return every, keras.tree.map_structure(pick, after, state)


def _scan(step: Callable[..., Tensor], state: Tensor, inputs: Tensor, reverse: bool) -> Tensor:
    """Returns the states after each step."""
    if keras.backend.backend() == "tensorflow":
        # Keras 3.15's scan fails here on several inputs of unknown length. It also sets no maximum
        # number of iterations, and without one XLA cannot differentiate the loop.
        import tensorflow as tf

        def alike(state: Tensor, inputs: Tensor) -> Tensor:  # lists from a saved model stay lists
            after = keras.tree.flatten(step(state, inputs))
            return keras.tree.pack_sequence_as(state, after)

        return tf.scan(alike, inputs, state, reverse=reverse)

    def both(state: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        state = step(state, inputs)
        return state, state

    return ops.scan(both, state, inputs, reverse=reverse)[1]


def at_least_one(sequence: Tensor) -> Tensor:
    """Adds an element of zeros to a sequence whose first axis is empty; returns others unchanged.

    An empty batch has no steps, and TensorFlow cannot stack zero steps of unknown shape. On JAX, an
    unknown length means a symbolic call, which runs no data.
    """
    length, *shape = ops.shape(sequence)
    is_known = isinstance(length, int)
    if length if is_known else keras.backend.backend() != "tensorflow":
        return sequence
    missing = 1 if is_known else ops.maximum(1 - length, 0)
    return ops.concatenate([sequence, ops.zeros((missing, *shape), dtype=sequence.dtype)], axis=0)


def run_cell(
    cell: keras.layers.Layer,
    gates: Tensor,
    states: States,
    padding_mask: Tensor | None = None,
    *,
    reverse: bool = False,
) -> tuple[Tensor, States]:
    """Runs a cell over whole sequences.

    Args:
        cell: an `LSTMCell`, `GRUCell` or `RNNCell`.
        gates: (time, batch, gates), from the cell's `input_projection`.
        states: states before the first step, each (batch, dim).
        padding_mask: bool (time, batch), True at real tokens; by default all tokens are real.
            Padding leaves the states unchanged.
        reverse: go from the last step to the first.

    Returns:
        The outputs (time, batch, output_dim), and the states after the last step.
    """
    if padding_mask is not None:
        padding_mask = at_least_one(padding_mask)

    def step(states: States, index: Tensor, gates: Tensor) -> States:
        after = cell(gates, states)
        if padding_mask is None:
            return after
        is_real = ops.expand_dims(ops.take(padding_mask, index, axis=0), -1)  # (batch, 1)
        pairs = zip(after, states, strict=True)
        return tuple(ops.where(is_real, new, old) for new, old in pairs)

    every, states = scan_steps(step, states, [gates], reverse=reverse)
    return every[0], states


@keras.saving.register_keras_serializable(PACKAGE)
class Recurrent(CompositeLayer):
    """Runs an LSTM, a GRU or a plain network over whole sequences, in one direction.

    Padding leaves the states unchanged and gets the output 0, so a reversed layer starts at each
    row's last real token.

    Args:
        cell: "lstm", "gru" or "rnn", a plain network with tanh (`RNNCell`).
        units: width of the state.
        reverse: read from the last token to the first.
        projection_dim: see `LSTMCell`. Other cells accept neither this nor the clips.
        cell_clip: see `LSTMCell`.
        projection_clip: see `LSTMCell`.
        recurrent_initializer: see `LSTMCell` and `GRUCell`.

    Raises:
        ValueError: an unknown cell, or LSTM options for another cell.

    Example:
        >>> outputs, states = Recurrent("lstm", 4)(keras.ops.ones((2, 3, 8)))
        >>> outputs.shape, len(states)
        (TensorShape([2, 3, 4]), 2)
    """

    def __init__(
        self,
        cell: CellKind,
        units: int,
        *,
        reverse: bool = False,
        projection_dim: int | None = None,
        cell_clip: float | None = None,
        projection_clip: float | None = None,
        recurrent_initializer: Initializer = "orthogonal",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        options: dict[str, Any] = {
            "projection_dim": projection_dim,
            "cell_clip": cell_clip,
            "projection_clip": projection_clip,
        }
        self._arguments = {"cell": cell, "units": units, "reverse": reverse, **options}
        self.reverse = reverse
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer)
        of_lstm = {name: value for name, value in options.items() if value is not None}
        if cell in ("gru", "rnn") and of_lstm:
            raise ValueError(f"cell={cell!r} has no {', '.join(of_lstm)}: use cell='lstm'")
        self.cell = make_cell(
            cell,
            units,
            recurrent_initializer=self.recurrent_initializer,
            dtype=self.dtype_policy,
            name="cell",
            **of_lstm,
        )

    def build(self, inputs_shape: Shape) -> None:
        """Builds the cell."""
        self.cell.build(inputs_shape)

    def call(self, inputs: Tensor, padding_mask: Tensor | None = None) -> tuple[Tensor, States]:
        """Reads the sequences.

        Args:
            inputs: (batch, time, features).
            padding_mask: bool (batch, time), True at real tokens.

        Returns:
            Outputs (batch, time, output_dim), 0 at padding, and the states after the last step,
            each (batch, dim).
        """
        gates = self.cell.input_projection(time_major(inputs))
        outputs, states = run_cell(
            self.cell,
            gates,
            self.cell.zero_states(ops.shape(inputs)[0]),
            None if padding_mask is None else time_major(padding_mask),
            reverse=self.reverse,
        )
        outputs = time_major(outputs)
        if padding_mask is not None:
            outputs = ops.where(padding_mask[:, :, None], outputs, ops.zeros_like(outputs))
        return outputs, states

    def compute_output_spec(self, inputs: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        """Returns the shapes and dtypes of `call`'s results; tracing `call` for them is slow."""
        batch, time = inputs.shape[:2]
        shapes = [(batch, time, self.cell.output_dim), *((batch, n) for n in self.cell.state_dims)]
        outputs, *states = (keras.KerasTensor(shape, self.compute_dtype) for shape in shapes)
        return outputs, tuple(states)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        initializer = keras.initializers.serialize(self.recurrent_initializer)
        return super().get_config() | self._arguments | {"recurrent_initializer": initializer}
