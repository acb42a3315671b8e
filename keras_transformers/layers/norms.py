"""Makes the norms of Transformers, and checks their position."""

from typing import Any, Literal, get_args

import keras

Norm = Literal["layer", "layer_without_bias", "rms"]
NormPosition = Literal["pre", "post"]
BlockNormPosition = Literal["pre", "post", "output", "both"]


def check_norm_position(norm_position: str) -> None:
    """Raises ValueError unless `norm_position` is "pre" or "post"."""
    if norm_position not in ("pre", "post"):
        raise ValueError(
            f"norm_position={norm_position!r} is unknown: use 'post' (the paper, BERT) or 'pre' "
            "(GPT-2, ViT)"
        )


def check_block_norm_position(norm_position: str) -> None:
    """Raises ValueError unless a block can have its norms there."""
    if norm_position not in get_args(BlockNormPosition):
        raise ValueError(
            f"norm_position={norm_position!r} is unknown: use 'post' (the paper, BERT), 'pre' "
            "(GPT-2, Llama), 'output' (OLMo 2) or 'both' (Gemma 3)"
        )


def norm_layer(norm: Norm, epsilon: float, **options: Any) -> keras.layers.Layer:
    """Makes a norm over the last axis.

    Args:
        norm: "layer" subtracts the mean and has a bias; "layer_without_bias" only subtracts the
            mean (ModernBERT); "rms" does neither (T5; Zhang and Sennrich 2019, "Root Mean Square
            Layer Normalization").
        epsilon: added to the variance, or to the mean square.
        **options: the layer's name and dtype.

    Raises:
        ValueError: `norm` is unknown.
    """
    if norm == "layer":
        return keras.layers.LayerNormalization(epsilon=epsilon, **options)
    if norm == "layer_without_bias":
        return keras.layers.LayerNormalization(epsilon=epsilon, center=False, **options)
    if norm == "rms":
        return keras.layers.RMSNormalization(epsilon=epsilon, **options)
    raise ValueError(
        f"norm={norm!r} is unknown: use 'layer', 'layer_without_bias' (ModernBERT) or 'rms' (T5)"
    )
