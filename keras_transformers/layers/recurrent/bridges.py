"""Makes the first states of a recurrent decoder from the encoder's states."""

from collections.abc import Sequence

from keras import ops
from keras.layers import Layer

from keras_transformers.layers.dense import RowDense
from keras_transformers.layers.recurrent.choices import Bridge
from keras_transformers.layers.tensors import Shape, Tensor

Bridges = list[list[RowDense]]  # one per state of each layer


def make_bridges(cells: Sequence[Layer]) -> Bridges:
    """Makes the layers of bridge="dense", `tanh(W state + b)`, for every state of these cells."""
    return [
        [
            RowDense(
                cell.units,
                activation="tanh",
                dtype=cell.dtype_policy,
                name=f"bridge_{index}" if state == 0 else f"bridge_{index}_memory",
            )
            for state in range(len(cell.state_dims))
        ]
        for index, cell in enumerate(cells)
    ]


def build_bridges(bridges: Bridges, states_shape: Sequence[Shape]) -> None:
    """Builds the layers for an encoder's states, whose shapes are (batch, dim)."""
    for index, layers in enumerate(bridges):
        for layer, shape in zip(layers, _of_layer(states_shape, index), strict=True):
            layer.build(shape)


def check_copy(cells: Sequence[Layer], states_shape: Sequence[Shape]) -> None:
    """Raises ValueError unless the encoder's states fit these cells."""
    encoder = [[shape[-1] for shape in layer] for layer in states_shape]
    decoder = [list(cell.state_dims) for cell in cells]
    if encoder != decoder:
        raise ValueError(
            f"bridge='copy' needs the decoder's layers, of widths {decoder}, to match "
            f"the encoder's, {encoder}: use bridge='dense'"
        )


def first_states(
    bridge: Bridge, bridges: Bridges | None, cells: Sequence[Layer], encoded: dict[str, Tensor]
) -> tuple[Tensor, ...]:
    """Returns each layer's tuple of states before the first step, each (batch, dim)."""
    states = encoded["states"]
    if bridge == "zeros":
        batch = ops.shape(encoded["summary"])[0]
        return tuple(cell.zero_states(batch) for cell in cells)
    if bridges is None:
        return tuple(states)
    return tuple(
        tuple(layer(state) for layer, state in zip(layers, _of_layer(states, index), strict=True))
        for index, layers in enumerate(bridges)
    )


def _of_layer(states: Sequence[Tensor], index: int) -> Tensor:
    """Returns the states of the encoder's layer at this index, or of its last layer."""
    return states[min(index, len(states) - 1)]
