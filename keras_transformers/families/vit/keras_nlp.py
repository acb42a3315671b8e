"""Reads ViT in presets of keras-nlp."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_transformers.convert.folder import Folder
from keras_transformers.convert.keras_backbones import (
    CONVERTER,
    Arguments,
    Backbone,
    checked,
    read_described,
)

__all__: list[str] = []

_FLAGS = ("use_mha_bias", "use_mlp_bias", "use_class_token", "use_patch_bias")


def _arguments(folder: Folder, sizes: Arguments, config: Mapping[str, Any]) -> Arguments:
    file = folder / "config.json"
    height, width, channels = checked(file, config, "image_shape", sides=3)
    square = isinstance(config.get("patch_size"), int)
    size = checked(file, config, "patch_size", sides=0 if square else 2)
    sides = [size, size] if square else size
    if sides[0] != sides[1]:
        raise ValueError(f"{file}: patch_size={sides}; patches must be square")
    return {
        **sizes,
        "patch_size": sides[0],
        "image_size": (height, width),
        "num_channels": channels,
        "intermediate_dim": checked(file, config, "mlp_dim"),
        "dropout": config.get("dropout_rate", 0.0),
        "attention_dropout": config.get("attention_dropout", 0.0),
        "norm_epsilon": config.get("layer_norm_epsilon", 1e-6),
        **_pixels(folder),
    }


def _pixels(folder: Folder) -> dict[str, Any]:
    """Reads how the preset scales pixels: scale * pixel + offset is (pixel / 255 - mean) / std."""
    name, config = read_described(folder, CONVERTER, missing_ok=True)
    if not name:
        return {}
    file = folder / CONVERTER
    if config.get("interpolation", "bilinear") != "bilinear":
        raise ValueError(
            f"{file}: interpolation={config['interpolation']!r}; only 'bilinear' is supported"
        )
    if config.get("pad_to_aspect_ratio"):
        raise ValueError(
            f"{file}: pads images to their aspect ratio; here they are cropped, or resized as a "
            "whole: save the preset with pad_to_aspect_ratio=False if that is right"
        )
    try:
        scale = np.asarray(1.0 if config.get("scale") is None else config["scale"], "float64")
        offset = np.asarray(0.0 if config.get("offset") is None else config["offset"], "float64")
        std = 1 / (255 * scale)
        if not np.isfinite(std).all() or not np.isfinite(offset * std).all():
            raise ValueError("not finite, or 0")
        if {scale.shape, offset.shape} - {(), (1,), (3,)}:
            raise ValueError("neither one number nor one per colour")
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(
            f"{file}: scale={config.get('scale')!r}, offset={config.get('offset')!r}: {error}"
        ) from error
    return {"pixel_std": std.tolist(), "pixel_mean": (-offset * std).tolist()}


BACKBONE = Backbone(
    name="ViTBackbone",
    fields=("num_layers", "num_heads", "hidden_dim"),
    only=dict.fromkeys(_FLAGS, True),
    arguments=_arguments,
    blocks=r"vit_encoder/transformer_block_(\d+)/(.+)",
    first_block=1,
    modules=(
        (r"vit_patching_and_embedding/class_token", "class_token/class_token"),
        (r"vit_patching_and_embedding/", ""),
        (r"vit_encoder/ln/", "encoder_norm/"),
    ),
    tokenizers=lambda assets, config: (),
)
