"""The choices of a recurrent decoder, and which of them exclude each other."""

from typing import Literal

Context = Literal["initial_state", "input", "input_and_output"]
ReadoutActivation = Literal["tanh", "maxout"]
Bridge = Literal["copy", "dense", "zeros"]


def check_choices(
    num_layers: int,
    context: str,
    attention: str | None,
    input_feeding: bool,
    readout_activation: str,
    bridge: str,
) -> None:
    """Raises ValueError for an unknown choice of `RecurrentDecoder`, or for a wrong combination."""
    if num_layers < 1:
        raise ValueError(f"num_layers={num_layers}: a decoder needs at least one layer")
    for name, value, known in (
        ("context", context, ("initial_state", "input", "input_and_output")),
        ("readout_activation", readout_activation, ("tanh", "maxout")),
        ("bridge", bridge, ("copy", "dense", "zeros")),
    ):
        if value not in known:
            raise ValueError(f"{name}={value!r} is unknown: use {', '.join(known)}")
    if bridge == "zeros" and context == "initial_state" and attention is None:
        raise ValueError(
            "bridge='zeros' without attention and with context='initial_state' leaves the source "
            "unread: use context='input', attention, or bridge='dense'"
        )
    if input_feeding and (attention is None or context != "initial_state"):
        raise ValueError(
            "input_feeding needs attention and context='initial_state', not "
            f"attention={attention!r} and context={context!r}"
        )
