"""Describes ViT in Hugging Face's files."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers.convert.config_map import ConfigMap, check_number
from keras_transformers.convert.family import Family, Writer
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.name_map import Blocks, NameMap, prefixed
from keras_transformers.convert.tensors import Form
from keras_transformers.families.vit.keras_nlp import BACKBONE
from keras_transformers.families.vit.model import MODELS, vit
from keras_transformers.files import read_json, write_json
from keras_transformers.layers import PatchEmbedding
from keras_transformers.models.anatomy import anatomy, only

__all__ = ["FAMILY"]

_BILINEAR = 2  # in Pillow's numbering
_TINY = 1e-9  # the smallest number to divide pixels by
_PREPROCESSOR = "preprocessor_config.json"
_DIGITS = 12  # decimals of a mean or standard deviation: the model has only their quotients
_NAMES = NameMap(
    "ViT",
    layers={
        "patch_embedding": "vit.embeddings.patch_embeddings.projection",
        "encoder_norm": "vit.layernorm",
        "pooler": "vit.pooler.dense",
        "logits": "classifier",
    },
    blocks=Blocks(
        "vit.encoder.layer.{}",
        {
            "self_attention/query": "attention.attention.query",
            "self_attention/key": "attention.attention.key",
            "self_attention/value": "attention.attention.value",
            "self_attention/output": "attention.output.dense",
            "self_attention_norm": "layernorm_before",
            "feed_forward/intermediate": "intermediate.dense",
            "feed_forward/output": "output.dense",
            "feed_forward_norm": "layernorm_after",
        },
    ),
    stored={
        "patch_embedding/kernel": (
            "vit.embeddings.patch_embeddings.projection.weight",
            Form(order=(3, 2, 0, 1)),
        ),
        "class_token/class_token": ("vit.embeddings.cls_token", Form(ones=2)),
        "position_embedding/embeddings": ("vit.embeddings.position_embeddings", Form(ones=1)),
    },
    rewritten=(
        prefixed("vit", "embeddings", "encoder", "layers", "layernorm", "pooler"),
        # Names that transformers 5 uses in memory, and sometimes writes.
        (r"^vit\.layers\.", "vit.encoder.layer."),
        (r"\.attention\.([qkv])_proj\.", r".attention.attention.\1."),
        (r"\.attention\.q\.", ".attention.query."),
        (r"\.attention\.k\.", ".attention.key."),
        (r"\.attention\.v\.", ".attention.value."),
        (r"\.attention\.o_proj\.", ".attention.output.dense."),
        (r"\.mlp\.fc1\.", ".intermediate.dense."),
        (r"\.mlp\.fc2\.", ".output.dense."),
    ),
    required=("patch_embedding", "class_token", "position_embedding", "encoder_norm"),
    traits={"block.norm_position": "pre"},
    foreign={
        "stem_*": "a convolution before the patches (stem_filters), which the ViTs of other "
        "packages lack: its model's weights only fit keras_transformers' own format"
    },
)


def _after_read(file: Path, config: Mapping[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Adds the scale of pixels, from the file beside config.json."""
    if not isinstance(arguments["patch_size"], int):
        sides = list(arguments["patch_size"])
        raise ValueError(f"{file}: patch_size={sides}; patches must be square")
    scaling = _pixel_scaling(file.with_name(_PREPROCESSOR), arguments["image_size"])
    return {**arguments, **scaling}


def _before_write(
    model: keras.Model, arguments: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    height, width, channels = model.input["images"].shape[1:]
    more = {
        "patch_size": only(model, PatchEmbedding).patch_size,
        "image_size": height if height == width else [height, width],
        "num_channels": channels,
    }
    return {**arguments, **more}, {}


_CONFIG = ConfigMap(
    "vit",
    required={
        "patch_size": "patch_size",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "hidden_dim": "hidden_size",
        "intermediate_dim": "intermediate_size",
        "image_size": "image_size",
    },
    optional={
        "num_channels": ("num_channels", 3),
        "dropout": ("hidden_dropout_prob", 0.0),
        "attention_dropout": ("attention_probs_dropout_prob", 0.0),
        "norm_epsilon": ("layer_norm_eps", 1e-12),
    },
    fixed={"qkv_bias": True, "pooler_act": "tanh"},
    pairs=("patch_size", "image_size"),
    after_read=_after_read,
    before_write=_before_write,
)


def _write_preprocessor(model: keras.Model, folder: Path) -> None:
    """Writes the scale of pixels to preprocessor_config.json."""
    height, width, channels = model.input["images"].shape[1:]
    scaling = only(model, keras.layers.Rescaling)
    scale, offset = (np.broadcast_to(value, channels) for value in (scaling.scale, scaling.offset))
    std = 1 / (255 * scale)
    preprocessor = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": height, "width": width},
        "resample": _BILINEAR,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": np.round(-offset * std, _DIGITS).tolist(),
        "image_std": np.round(std, _DIGITS).tolist(),
    }
    write_json(folder / _PREPROCESSOR, preprocessor)


def _pixel_scaling(file: Path, image_size: Any) -> dict[str, Any]:
    """Reads `pixel_mean` and `pixel_std` from `preprocessor_config.json`, if it exists.

    Raises:
        ValueError: it prepares images differently from `pipelines.ImageDecoder`.
    """
    if not file.is_file():
        return {}
    config = read_json(file)
    _check_resizing(file, config, image_size)
    # (factor * pixel - mean) / std equals (pixel / 255 - unit * mean) / (unit * std).
    factor = config.get("rescale_factor", 1 / 255) if config.get("do_rescale", True) else 1.0
    check_number(file, "rescale_factor", factor, least=_TINY)
    unit = 1.0 if math.isclose(255 * factor, 1.0) else 1 / (255 * factor)
    if not config.get("do_normalize", True):
        return {"pixel_mean": 0.0, "pixel_std": unit}
    scaling = {}
    for theirs, ours in (("image_mean", "pixel_mean"), ("image_std", "pixel_std")):
        if theirs in config or unit != 1.0:
            value = config.get(theirs, 0.5)
            several = isinstance(value, list | tuple)
            for number in value if several else [value]:
                check_number(file, theirs, number, least=_TINY if theirs == "image_std" else 0.0)
            scaling[ours] = [unit * number for number in value] if several else unit * value
    return scaling


def _check_resizing(file: Path, config: Mapping[str, Any], image_size: Any) -> None:
    """Raises ValueError unless the whole image is resized to `image_size`, bilinearly."""
    sides = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
    if config.get("do_resize", True):
        if config.get("resample", _BILINEAR) != _BILINEAR:
            raise ValueError(
                f"{file}: resample={config['resample']!r}; only {_BILINEAR} (bilinear) is supported"
            )
        if "size" in config and _sides(config["size"]) != sides:
            raise ValueError(
                f"{file}: size={config['size']!r}, but the whole image is resized to the model's "
                f"{sides[0]} x {sides[1]} pixels; nothing else is supported"
            )
    if config.get("do_center_crop") and _sides(config.get("crop_size")) != sides:
        raise ValueError(
            f"{file}: do_center_crop with crop_size={config.get('crop_size')!r}; images are not "
            f"cropped, so only the model's size, {sides[0]} x {sides[1]}, is supported"
        )


def _sides(size: Any) -> tuple[Any, Any] | None:
    """Returns (height, width) of a size in a preprocessor's configuration; None if it has none."""
    if isinstance(size, int):
        return size, size
    if isinstance(size, list | tuple) and len(size) == 2:
        return size[0], size[1]
    if isinstance(size, dict) and {"height", "width"} <= size.keys():
        return size["height"], size["width"]
    return None


def _no_tokenizer(folder: Folder, lowercase: bool) -> None:
    raise ValueError(f"{folder}: a ViT reads images, not texts: it has no tokenizer")


def _accepts(model: keras.Model) -> bool:
    """Returns whether ViTForImageClassification, which has no pooler, computes the same."""
    return anatomy(model).pooler is None


FAMILY: Family = Family(
    "vit",
    MODELS,
    _NAMES,
    _CONFIG,
    vit,
    _no_tokenizer,
    Writer("ViT", more_files=_write_preprocessor),
    parts=("vit.pooler.*", "classifier.*"),
    task="image_classification",
    reads_texts=False,
    accepts=_accepts,
    keras_nlp=BACKBONE,
)
