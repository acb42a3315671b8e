"""The residual connection around every sub-layer, with its norm and dropout."""

from collections.abc import Callable
from typing import Any, Literal

import keras

Norm = Literal["layer", "rms"]
NormPosition = Literal["pre", "post"]


def check_norm_position(norm_position: str) -> None:
    """Raises ValueError unless `norm_position` is "pre" or "post"."""
    if norm_position not in ("pre", "post"):
        raise ValueError(
            f"norm_position={norm_position!r} is unknown: use 'post' (the paper, BERT) or 'pre' "
            "(GPT-2, ViT)"
        )


def norm_layer(norm: Norm, epsilon: float, **options: Any) -> keras.layers.Layer:
    """Makes a norm over the last axis.

    Args:
        norm: "layer" subtracts the mean and has a bias; "rms" does neither (T5; Zhang and Sennrich
            2019, "Root Mean Square Layer Normalization").
        epsilon: added to the variance, or to the mean square.
        **options: the layer's name and dtype.

    Raises:
        ValueError: `norm` is unknown.
    """
    if norm == "layer":
        return keras.layers.LayerNormalization(epsilon=epsilon, **options)
    if norm == "rms":
        return keras.layers.RMSNormalization(epsilon=epsilon, **options)
    raise ValueError(f"norm={norm!r} is unknown: use 'layer' or 'rms' (T5)")


def residual(
    inputs: Any,
    sublayer: Callable[[Any], tuple[Any, Any]],
    *,
    norm: Callable[[Any], Any],
    dropout: Callable[..., Any],
    norm_position: NormPosition,
    training: bool | None,
) -> tuple[Any, Any]:
    """Computes `norm(x + dropout(sublayer(x)))` or `x + dropout(sublayer(norm(x)))`.

    Args:
        inputs: (batch, length, hidden).
        sublayer: maps (batch, length, hidden) to the same shape and an extra result, such as
            attention scores.
        norm: the norm.
        dropout: the dropout on the sub-layer's output.
        norm_position: "post" for the first form (the paper), "pre" for the second.
        training: whether to apply dropout.

    Returns:
        (batch, length, hidden), and the sub-layer's extra result.
    """
    if norm_position == "pre":
        outputs, extra = sublayer(norm(inputs))
        return inputs + dropout(outputs, training=training), extra
    outputs, extra = sublayer(inputs)
    return norm(inputs + dropout(outputs, training=training)), extra
