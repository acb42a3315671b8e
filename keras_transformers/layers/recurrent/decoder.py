"""Defines the decoder of a recurrent sequence-to-sequence model, with and without attention."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import keras
from keras import ops

from keras_transformers.layers.composite import CompositeLayer, part_config
from keras_transformers.layers.dense import PACKAGE, RowDense
from keras_transformers.layers.recurrent.attention import RnnAttention, repeat_rows
from keras_transformers.layers.recurrent.bridges import (
    build_bridges,
    check_copy,
    first_states,
    make_bridges,
)
from keras_transformers.layers.recurrent.cells import run_cell, scan_steps, time_major
from keras_transformers.layers.recurrent.choices import Bridge, Context, Readout, check_choices
from keras_transformers.layers.scopes import WATCHERS, Attended
from keras_transformers.layers.tensors import Shape, Tensor

__all__ = ["RecurrentDecoder"]

# Tensors by name: those computed once per source, and those passed from step to step.
Source = dict[str, Any]
State = dict[str, Any]


@keras.saving.register_keras_serializable(PACKAGE)
class RecurrentDecoder(CompositeLayer):
    """Maps each step's embedded previous token to a readout vector, with a recurrent network.

    The network sees the source as a context vector c: without attention, the encoder's summary;
    with attention, a weighted mean of its outputs, different at each step. `bridge` sets how the
    decoder starts, `context` where the context is used after that:

    - "initial_state": nowhere else in the recurrence (Sutskever et al. 2014). With attention, the
      query is the new state, and the readout joins state and context (Luong et al. 2015).
      Everything but the recurrence is then computed for all steps at once, unless `input_feeding`
      gives each step the previous readout.
    - "input": into the network at every step, with the previous token. With attention, the query
      is the state before the step.
    - "input_and_output": like "input", and the readout joins the state, the context and the
      previous token (Cho et al. 2014 without attention, Bahdanau et al. 2014 with "additive").

    If its first cell has no inputs, no step sees the previous token, and only the number of targets
    matters. Without attention, these three decoders see increasingly more:

    - `h'_0 = c, h'_t = f(h'_(t-1))`: context="initial_state", bridge="copy" (or "dense", for a
      function of c), no inputs;
    - `h'_1 = f(c), h'_t = f(c, h'_(t-1))`: context="input", bridge="zeros", no inputs;
    - `h'_t = f(c, y_(t-1), h'_(t-1))`: context="input".

    Args:
        cells: the layers' cells, such as a `GRUCell`; the last one's state is the query and goes to
            the readout. If the first one has no inputs, no step sees the previous token. The
            decoder names them "cell_0" and so on.
        attention: attends from the state to the encoder's outputs; None for none. It is named
            "attention".
        readout: the dense layer of the readout; by default its parts are only joined.
        context: see above.
        bridge: "copy" starts each layer with the states of the same encoder layer; "dense" with
            `tanh(W state + b)` of it, or of the last one (Bahdanau et al. 2014, appendix A.2.2);
            "zeros" starts from zeros for any source.
        input_feeding: whether each step gets the previous readout (Luong et al. 2015, section 3.3).
        dropout: rate on the inputs of every layer but the first.

    Raises:
        ValueError: an unknown choice, choices that cannot be combined, or a part that already has
            weights.

    Example:
        >>> from keras_transformers.layers import GRUCell
        >>> decoder = RecurrentDecoder([GRUCell(4)], attention=RnnAttention("general"))
        >>> source = keras.ops.ones((1, 5, 3))
        >>> encoded = {"memory": source, "summary": source[:, 0], "states": ((source[:, 0],),)}
        >>> decoder(keras.ops.ones((1, 2, 6)), encoded).shape
        TensorShape([1, 2, 7])
    """

    def __init__(
        self,
        cells: Sequence[keras.layers.Layer],
        *,
        attention: RnnAttention | None = None,
        readout: Readout | None = None,
        context: Context = "initial_state",
        bridge: Bridge = "dense",
        input_feeding: bool = False,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_choices(cells, context, attention, input_feeding, bridge)
        for part in (*cells, attention):
            if part is not None and part.built:
                raise ValueError(
                    f"layer {part.name!r} already has weights: pass new layers, whose weights "
                    "then get names inside the decoder"
                )
        self._choices = {"context": context, "input_feeding": input_feeding, "dropout": dropout}
        self._readout = readout
        self.cells: list[keras.layers.Layer] = list(cells)
        self.units = self.cells[-1].units
        self.input_feeding = input_feeding
        self.feed_tokens = self.cells[0].has_inputs
        self.feeds_context = context != "initial_state"
        self.reads_context = context == "input_and_output" or bool(
            attention and not self.feeds_context
        )
        self.reads_token = self.feed_tokens and context == "input_and_output"
        for index, cell in enumerate(self.cells):
            cell.name = f"cell_{index}"
        self.attention: keras.layers.Layer = attention
        if attention is not None:
            attention.name = "attention"
        # Projects the context or the previous readout to the first cell's gates.
        self.context_projection: keras.layers.Layer = None
        if self.feeds_context or input_feeding:
            self.context_projection = self._dense(self._num_gates, "context_projection")
        self.readout: keras.layers.Layer = None
        self.maxout = readout is not None and readout.activation == "maxout"
        if readout is not None:
            self.readout = self._dense(readout.dim * (2 if self.maxout else 1), "readout")
        self.bridge = bridge
        self.bridges = make_bridges(self.cells) if bridge == "dense" else None
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    @property
    def _num_gates(self) -> int:
        """The width of the first cell's gates."""
        return self.cells[0].num_gates * self.units

    def _dense(self, units: int, name: str) -> RowDense:
        return RowDense(units, use_bias=False, dtype=self.dtype_policy, name=name)

    def build(self, inputs_shape: Shape, encoded_shape: Mapping[str, Shape]) -> None:
        """Builds the sub-layers.

        Raises:
            ValueError: the encoder's states cannot be copied, or its outputs do not fit the
                attention.
        """
        # Without tokens, the first cell only adds its bias to the gates.
        token_dim = inputs_shape[-1] if self.feed_tokens else self._num_gates
        for index, cell in enumerate(self.cells):
            cell.build((None, self.units if index else token_dim))
        context_dim = encoded_shape["memory" if self.attention else "summary"][-1]
        if self.attention:
            self.attention.build((None, None, self.units), (None, None, context_dim))
        parts = self.units + self.reads_context * context_dim + self.reads_token * token_dim
        self.output_dim = parts if self._readout is None else self._readout.dim
        if self.readout:
            self.readout.build((None, parts))
        if self.context_projection:
            fed = self.output_dim if self.input_feeding else context_dim
            self.context_projection.build((None, fed))
        if self.bridges is not None:
            build_bridges(self.bridges, encoded_shape["states"])
        elif self.bridge == "copy":
            check_copy(self.cells, encoded_shape["states"])

    def start(
        self, encoded: dict[str, Tensor], padding_mask: Tensor | None = None
    ) -> tuple[Source, State]:
        """Prepares the source for all steps, and the state before the first one.

        Args:
            encoded: output of `RecurrentEncoder`.
            padding_mask: bool (batch, source), True at real tokens.

        Returns:
            The source, as tensors whose first axis is batch, and the state, as (batch, dim).
        """
        source: Source = {"memory": encoded["memory"], "summary": encoded["summary"]}
        source["padding_mask"] = padding_mask
        if self.attention:
            source["keys"] = self.attention.keys(encoded["memory"])
        elif self.feeds_context:
            source["gates"] = self.context_projection(encoded["summary"])
        states = first_states(self.bridge, self.bridges, self.cells, encoded)
        state: State = {"cells": states}
        if self.input_feeding:
            batch = ops.shape(encoded["summary"])[0]
            state["feed"] = ops.zeros((batch, self.output_dim), dtype=self.compute_dtype)
        return source, state

    def step(
        self,
        inputs: Tensor,
        state: State,
        source: Source,
        *,
        noise: tuple[Tensor, ...] = (),
        num_queries: Tensor = 1,
    ) -> tuple[Tensor, State]:
        """Takes one step.

        Args:
            inputs: (rows, features), the embedded previous tokens; without `feed_tokens`, any
                tensor (rows,).
            state: tensors (rows, dim), from `start` or the previous step.
            source: from `start`.
            noise: this step's slices of `dropout_noise`.
            num_queries: rows per sentence, its beams, which are adjacent.

        Returns:
            The readout (rows, output_dim), and the new state.
        """
        gates = self._token_gates(inputs)
        state, context, probabilities = self._advance(gates, state, source, noise, num_queries)
        watch = WATCHERS.of(self)
        if probabilities is not None and watch is not None:
            watch(Attended(probabilities[:, None, None]))  # as those of one head and one query
        if self.input_feeding:
            return state["feed"], state
        if context is None:
            context = repeat_rows(source["summary"], num_queries)
        return self._read_out(state["cells"][-1][0], context, inputs), state

    def dropout_noise(
        self, length: Tensor, batch: Tensor, training: bool | None
    ) -> tuple[Tensor, ...]:
        """Draws dropout factors (length, batch, units) for every layer but the first.

        They are drawn before the loop: loops must be pure on JAX. Without dropout, ().
        """
        if not training or not self.dropout.rate:
            return ()
        ones = ops.ones((length, batch, self.units), dtype=self.compute_dtype)
        return tuple(self.dropout(ones, training=True) for _ in self.cells[1:])

    def call(
        self,
        inputs: Tensor,
        encoded: dict[str, Tensor],
        padding_mask: Tensor | None = None,
        *,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Tensor:
        """Takes all steps (teacher forcing).

        Args:
            inputs: (batch, target, features), the embedded targets, shifted right; without
                `feed_tokens`, any tensor (batch, target).
            encoded: output of `RecurrentEncoder`.
            padding_mask: bool (batch, source), True at real tokens.
            return_attention_scores: also return the attention probabilities.
            training: whether to apply dropout.

        Returns:
            Readouts (batch, target, output_dim); with `return_attention_scores`, also the
            probabilities (batch, target, source).
        """
        source, state = self.start(encoded, padding_mask)
        batch, length = ops.shape(inputs)[:2]
        noise = self.dropout_noise(length, batch, training)
        gates = self._token_gates(time_major(inputs))  # (target, batch, gates)
        if self.attention and self.context_projection:
            hidden, context, probabilities = self._loop(
                gates, state, source, noise, keep_probabilities=return_attention_scores
            )
        else:
            hidden, context, probabilities = self._at_once(gates, state, source, noise)
        outputs = hidden if self.input_feeding else self._read_out(hidden, context, inputs)
        watch = WATCHERS.of(self)
        if return_attention_scores and watch is not None:
            watch(Attended(probabilities[:, None]))  # as those of one head
        return (outputs, probabilities) if return_attention_scores else outputs

    def compute_output_spec(
        self,
        inputs: Tensor,
        encoded: dict[str, Tensor],
        padding_mask: Tensor | None = None,
        *,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Tensor:
        """Returns the shapes and dtypes of `call`'s results; tracing `call` for them is slow."""
        batch, length = inputs.shape[:2]
        outputs = keras.KerasTensor((batch, length, self.output_dim), dtype=self.compute_dtype)
        if not return_attention_scores:
            return outputs
        shape = (batch, length, encoded["memory"].shape[1])
        return outputs, keras.KerasTensor(shape, dtype=self.attention.scores_dtype)

    def _token_gates(self, inputs: Tensor) -> Tensor:
        """Returns what tokens (..., features), or steps (...), contribute to the first gates."""
        projection = self.cells[0].input_projection
        if self.feed_tokens:
            return projection(inputs)
        shape = (*ops.shape(inputs), self._num_gates)
        return projection(ops.zeros(shape, dtype=self.compute_dtype))

    def _at_once(
        self, gates: Tensor, state: State, source: Source, noise: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Runs layer by layer, for when no step needs the context or readout of another."""
        if "gates" in source:
            gates = gates + source["gates"]
        hidden = None
        for index, (cell, states) in enumerate(zip(self.cells, state["cells"], strict=True)):
            if index:
                hidden = hidden * noise[index - 1] if noise else hidden
                gates = cell.input_projection(hidden)
            hidden, _ = run_cell(cell, gates, states)  # (target, batch, units)
        hidden = time_major(hidden)
        if self.attention:
            return (hidden, *self._attend(hidden, source))
        context = ops.expand_dims(source["summary"], 1) + ops.zeros_like(hidden[:, :, :1])
        return hidden, context, None

    def _loop(
        self,
        gates: Tensor,
        state: State,
        source: Source,
        noise: tuple[Tensor, ...],
        *,
        keep_probabilities: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Runs step by step, for when each step needs its own context or the previous readout."""
        memory, batch = source["memory"], ops.shape(source["memory"])[0]
        blank = [ops.zeros((batch, memory.shape[-1]), dtype=memory.dtype)]
        if keep_probabilities:
            blank.append(ops.zeros_like(memory[:, :, 0], dtype=self.attention.scores_dtype))

        def step(carry: Tensor, index: Tensor, gates: Tensor, *noise: Tensor) -> Tensor:
            state, *looked = self._advance(gates, carry[0], source, noise, 1)
            return (state, *looked[: len(blank)])

        (states, *looked), _ = scan_steps(step, (state, *blank), [gates, *noise])
        hidden = states["feed"] if self.input_feeding else states["cells"][-1][0]
        context, *probabilities = (time_major(kept) for kept in looked)
        return time_major(hidden), context, probabilities[0] if probabilities else None

    def _advance(
        self,
        gates: Tensor,
        state: State,
        source: Source,
        noise: tuple[Tensor, ...],
        num_queries: Tensor,
    ) -> tuple[State, Tensor, Tensor]:
        """Takes a step from the token's gates; returns the new state, context and probabilities."""
        context = probabilities = hidden = None
        before = state["cells"]
        if self.attention and self.feeds_context:
            context, probabilities = self._attend(before[-1][0], source, num_queries)
            gates = gates + self.context_projection(context)
        elif self.input_feeding:
            gates = gates + self.context_projection(state["feed"])
        elif self.feeds_context:
            gates = gates + repeat_rows(source["gates"], num_queries)
        cells = []
        for index, (cell, states) in enumerate(zip(self.cells, before, strict=True)):
            if index:
                hidden = hidden * noise[index - 1] if noise else hidden
                gates = cell.input_projection(hidden)
            states = cell(gates, states)
            hidden = states[0]
            cells.append(states)
        if self.attention and not self.feeds_context:
            context, probabilities = self._attend(hidden, source, num_queries)
        after: State = {"cells": tuple(cells)}
        if self.input_feeding:
            after["feed"] = self._read_out(hidden, context)
        return after, context, probabilities

    def _attend(
        self, query: Tensor, source: Source, num_queries: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Attends from (batch, target, units), or from rows (batch * num_queries, units)."""
        arguments = source["memory"], source["keys"], source["padding_mask"]
        if num_queries is None:
            return self.attention(query, *arguments)
        return self.attention.of_rows(query, *arguments, num_queries=num_queries)

    def _read_out(self, hidden: Tensor, context: Tensor, inputs: Tensor | None = None) -> Tensor:
        """Joins state, context and token, as configured, into a readout (..., output_dim)."""
        parts = [hidden, *([context] if self.reads_context else [])]
        parts += [inputs] if self.reads_token else []
        joined = ops.concatenate(parts, axis=-1) if len(parts) > 1 else hidden
        if not self.readout:
            return joined
        outputs = self.readout(joined)
        if not self.maxout:
            return ops.tanh(outputs)
        return ops.maximum(*ops.split(outputs, 2, axis=-1))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {
            "cells": [part_config(cell) for cell in self.cells],
            "attention": part_config(self.attention),
            "readout": None if self._readout is None else asdict(self._readout),
            "bridge": self.bridge,
            **self._choices,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "RecurrentDecoder":
        """Makes a decoder from the result of `get_config`."""
        load = keras.saving.deserialize_keras_object
        parts = {
            "cells": [load(cell) for cell in config["cells"]],
            "attention": load(config["attention"]),
            "readout": None if config["readout"] is None else Readout(**config["readout"]),
        }
        return super().from_config({**config, **parts})
