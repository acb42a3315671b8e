"""Checks the choices of a recurrent decoder, some of which exclude each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from keras.layers import Layer

__all__ = ["Readout"]

Context = Literal["initial_state", "input", "input_and_output"]
ReadoutActivation = Literal["tanh", "maxout"]
Bridge = Literal["copy", "dense", "zeros"]


@dataclass(frozen=True)
class Readout:
    """A dense layer without bias on the parts of a decoder step's readout.

    Attributes:
        dim: the layer's width.
        activation: "tanh" (Luong), or "maxout" (Bahdanau), the larger of two values.

    Raises:
        ValueError: the activation is unknown.
    """

    dim: int
    activation: ReadoutActivation = "tanh"

    def __post_init__(self) -> None:
        _check("readout_activation", self.activation, ("tanh", "maxout"))


def check_choices(
    cells: Sequence[Layer], context: str, attention: Layer | None, input_feeding: bool, bridge: str
) -> None:
    """Raises ValueError for an unknown choice of `RecurrentDecoder`, or for a wrong combination."""
    if not cells:
        raise ValueError("cells=[]: a decoder needs at least one layer")
    _check("context", context, ("initial_state", "input", "input_and_output"))
    _check("bridge", bridge, ("copy", "dense", "zeros"))
    if bridge == "zeros" and context == "initial_state" and attention is None:
        raise ValueError(
            "bridge='zeros' without attention and with context='initial_state' leaves the source "
            "unread: use context='input', attention, or bridge='dense'"
        )
    if input_feeding and (attention is None or context != "initial_state"):
        raise ValueError(
            "input_feeding needs attention and context='initial_state', not "
            f"attention={attention and attention.kind!r} and context={context!r}"
        )


def _check(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name}={value!r} is unknown: use {', '.join(choices)}")
