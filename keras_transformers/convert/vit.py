"""Converts ViT weights from and to Hugging Face's safetensors."""

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers.convert.config_map import ConfigMap, check_number, label_fields
from keras_transformers.convert.families import Family, Writer, accepted_by
from keras_transformers.convert.name_map import in_module, part_of
from keras_transformers.convert.tensors import (
    NamedVariable,
    assign,
    read_safetensors,
    write_safetensors,
)
from keras_transformers.files import read_json, write_json
from keras_transformers.layers.patches import Interpolation, resize_positions
from keras_transformers.models.vit import MODELS, vit

__all__ = ["load_vit", "read_vit_config", "save_vit", "save_vit_config"]

_BILINEAR = 2  # Pillow's number
_TINY = 1e-9  # pixels are divided by numbers from here on
_PREPROCESSOR = "preprocessor_config.json"
_DIGITS = 12  # of a mean or standard deviation: the model has only their quotients
_POSITIONS = "vit.embeddings.position_embeddings"
_LAYERS = (
    *("pixel_scaling", "patch_embedding", "class_token", "position_embedding"),
    *("encoder_layer_0", "encoder_norm"),
)
# Our layer -> Hugging Face's module.
_MODULES = {"encoder_norm": "vit.layernorm", "pooler": "vit.pooler.dense", "logits": "classifier"}
_ENCODER_PARTS = {
    "self_attention/query": "attention.attention.query",
    "self_attention/key": "attention.attention.key",
    "self_attention/value": "attention.attention.value",
    "self_attention/output": "attention.output.dense",
    "self_attention_norm": "layernorm_before",
    "feed_forward/intermediate": "intermediate.dense",
    "feed_forward/output": "output.dense",
    "feed_forward_norm": "layernorm_after",
}
# An encoder layer's modules: transformers 5's names in memory -> names in files.
_IN_MEMORY = {
    "attention.q_proj": "attention.attention.query",
    "attention.k_proj": "attention.attention.key",
    "attention.v_proj": "attention.attention.value",
    "attention.o_proj": "attention.output.dense",
    "mlp.fc1": "intermediate.dense",
    "mlp.fc2": "output.dense",
}
_PARTS = ("vit.pooler.*", "classifier.*")
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
)


def read_vit_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads Hugging Face's `config.json` as arguments of `keras_transformers.models.vit.vit`.

    Args:
        path: the file or its folder. The `preprocessor_config.json` beside it says how to scale
            pixels, and must resize the whole image bilinearly; without one, mean and standard
            deviation are the original ViT's 0.5.

    Returns:
        Keyword arguments that build the encoder it describes, without the representation layer.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not JSON, does not describe a ViT, lacks a field, or needs something that
            these layers lack (attention without biases, another activation); or the preprocessor
            crops images or resizes them in another way.

    Example:
        encoder = vit(**read_vit_config("vit-base-patch16-224"))
    """
    arguments = _CONFIG.read(path)
    if not isinstance(arguments["patch_size"], int):
        sides = list(arguments["patch_size"])
        raise ValueError(f"{path}: patch_size={sides}; patches must be square")
    path = Path(path)
    folder = path if path.is_dir() else path.parent
    return {
        **arguments,
        **_pixel_scaling(folder / _PREPROCESSOR, arguments["image_size"]),
    }


def load_vit(
    model: keras.Model,
    path: str | os.PathLike[str],
    *,
    ignore: Iterable[str] = (),
    interpolation: Interpolation | None = None,
) -> list[str]:
    """Loads Hugging Face's ViT weights into a ViT, with or without its head.

    It reads the files of ViTModel and ViTForImageClassification. Unless every tensor is used or
    matches `ignore`, loading fails and the model is unchanged.

    Args:
        model: an encoder from `keras_transformers.models.vit`, or `heads.classifier` on one.
        path: a `.safetensors` file, or a folder with `model.safetensors`.
        ignore: wildcards of tensors to leave out, such as "classifier.*" for the encoder alone, or
            "vit.pooler.*" for a model without the representation layer. Names start with "vit."
            here, even if they do not in the file.
        interpolation: how to resize the file's position embeddings to the model's `image_size`, see
            `keras_transformers.layers.patches.resize_positions`. With None, another size is an
            error.

    Returns:
        The names of the tensors that `ignore` left out.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is unreadable; tensors are missing, left over or of another shape (the
            message lists them all); or the positions to resize are not those of a square image.
    """
    tensors = {_as_in_files(name): tensor for name, tensor in read_safetensors(path).items()}
    if interpolation is not None and _POSITIONS in tensors:
        tensors[_POSITIONS] = _resized(tensors[_POSITIONS], model, interpolation, str(path))
    return assign(_variables(model), tensors, source=str(path), ignore=ignore)


def save_vit(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Writes a ViT's weights under Hugging Face's names, for `from_pretrained`.

    Args:
        model: an encoder from `keras_transformers.models.vit`, or `heads.classifier` on one.
        path: the `.safetensors` file to write.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: Hugging Face's ViT has no counterpart of a layer.
    """
    write_safetensors(_variables(model), path)


def save_vit_config(
    model: keras.Model, path: str | os.PathLike[str], *, labels: Sequence[str] | None = None
) -> None:
    """Writes a ViT's shape as Hugging Face's `config.json`, to go with `save_vit`.

    `preprocessor_config.json` beside it says how to scale pixels.

    Args:
        model: an encoder from `keras_transformers.models.vit`, or `heads.classifier` on one.
        path: the file to write.
        labels: the name of each class of a classifier's head, in the order of its logits; "LABEL_0"
            and so on by default.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: the model is not a ViT or has another number of classes, or Hugging Face has no
            name for its activation.
    """
    layers = _layers(model)
    height, width, channels = model.input["images"].shape[1:]
    arguments = {
        **layers["encoder_layer_0"].get_config(),
        "patch_size": layers["patch_embedding"].patch_size,
        "num_layers": sum(name.startswith("encoder_layer_") for name in layers),
        "image_size": height if height == width else [height, width],
        "num_channels": channels,
    }
    path = Path(path)
    _CONFIG.write(arguments, path, **label_fields(model, labels))
    scaling = layers["pixel_scaling"]
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
    write_json(path.parent / _PREPROCESSOR, preprocessor)


class _Rearranged:
    """A variable as stored in files: with reordered axes, or with extra axes of size 1."""

    def __init__(self, variable: Any, axes: tuple[int, ...], shape: tuple[int, ...]) -> None:
        self.variable, self.axes, self.shape = variable, axes, shape
        self.path = variable.path

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.variable, dtype).transpose(self.axes).reshape(self.shape)

    def assign(self, array: np.ndarray) -> None:
        ours = self.variable.shape
        moved = array.reshape([ours[axis] for axis in self.axes])
        self.variable.assign(moved.transpose(np.argsort(self.axes)))


def _layers(model: keras.Model) -> dict[str, Any]:
    """Returns the model's layers by name; ValueError unless it is a ViT."""
    by_name = {layer.name: layer for layer in model.layers}
    missing = [name for name in _LAYERS if name not in by_name]
    if missing:
        raise ValueError(f"model {model.name!r} is not a ViT: it has no layer {', '.join(missing)}")
    if "stem_0" in by_name:
        raise ValueError(
            f"model {model.name!r} has convolutions before the patches (stem_filters): the ViTs of "
            "other packages have none, so its weights only fit keras_transformers' own format"
        )
    return by_name


def _variables(model: keras.Model) -> list[NamedVariable]:
    """Returns every variable of the model with its name in the file."""
    layers = _layers(model).values()
    return [named for layer in layers if layer.weights for named in _of_layer(layer)]


def _of_layer(layer: keras.layers.Layer) -> Iterator[NamedVariable]:
    if layer.name == "patch_embedding":
        module = "vit.embeddings.patch_embeddings.projection"
        rows, columns, channels, hidden = layer.kernel.shape
        kernel = _Rearranged(layer.kernel, (3, 2, 0, 1), (hidden, channels, rows, columns))
        yield NamedVariable(kernel, f"{module}.weight")
        yield NamedVariable(layer.bias, f"{module}.bias")
    elif layer.name == "class_token":
        token = _Rearranged(layer.class_token, (0,), (1, 1, *layer.class_token.shape))
        yield NamedVariable(token, "vit.embeddings.cls_token")
    elif layer.name == "position_embedding":
        positions = _Rearranged(layer.embeddings, (0, 1), (1, *layer.embeddings.shape))
        yield NamedVariable(positions, _POSITIONS)
    elif layer.name in _MODULES:
        for variable in layer.weights:
            yield in_module(variable, _MODULES[layer.name])
    elif layer.name.startswith("encoder_layer_"):
        module = f"vit.encoder.layer.{layer.name.removeprefix('encoder_layer_')}"
        for variable in layer.weights:
            part = part_of(variable, layer)
            yield in_module(variable, f"{module}.{_ENCODER_PARTS[part]}")
    else:
        raise ValueError(
            f"layer {layer.name!r} has no place in Hugging Face's ViT; load or save the encoder "
            "without its head"
        )


def _as_in_files(name: str) -> str:
    """Returns a tensor's name as ViTForImageClassification writes it to files."""
    if name.startswith(("embeddings.", "encoder.", "layers.", "layernorm.", "pooler.")):
        name = f"vit.{name}"  # ViTModel saves no prefix
    match = re.fullmatch(r"vit\.layers\.(\d+)\.(.+)\.(weight|bias)", name)
    if match:
        layer, module, kind = match.groups()
        name = f"vit.encoder.layer.{layer}.{_IN_MEMORY.get(module, module)}.{kind}"
    return name


def _resized(
    positions: np.ndarray, model: keras.Model, interpolation: Interpolation, source: str
) -> np.ndarray:
    """Resizes position embeddings of a square image (1, 1 + patches, hidden) to fit the model."""
    side = round((max(positions.shape[-2:-1], default=1) - 1) ** 0.5)
    if positions.shape[:2] != (1, 1 + side * side):
        raise ValueError(
            f"{source}: {_POSITIONS} is {tuple(positions.shape)}, not from a square image: load it "
            "into a model of its own size, then call keras_transformers.models.vit.copy_weights"
        )
    grid = model.get_layer("patch_embedding").grid
    return resize_positions(positions[0], (side, side), grid, interpolation=interpolation)[None]


def _pixel_scaling(file: Path, image_size: Any) -> dict[str, Any]:
    """Reads `pixel_mean` and `pixel_std` from `preprocessor_config.json`, if it exists.

    Raises:
        ValueError: it prepares images differently than `pipelines.ImageDecoder` does.
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
            for each in value if several else [value]:
                check_number(file, theirs, each, least=_TINY if theirs == "image_std" else 0.0)
            scaling[ours] = [unit * each for each in value] if several else unit * value
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
                f"{file}: size={config['size']!r}, but the model takes {sides[0]} x {sides[1]} "
                "pixels, to which the whole image is resized; nothing else is supported"
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


def _load(folder: Path, dropout: float) -> keras.Model:
    encoder = vit(**(read_vit_config(folder) | {"dropout": dropout, "attention_dropout": dropout}))
    load_vit(encoder, folder, ignore=_PARTS)
    return encoder


def _no_tokenizer(path: Path, lowercase: bool) -> None:
    raise ValueError(f"{path}: a ViT reads images, not texts: it has no tokenizer")


def _check_classifier(model: keras.Model) -> None:
    """Raises ValueError unless ViTForImageClassification, which has no pooler, is the same."""
    if "pooler" in _layers(model):
        raise ValueError(f"model {model.name!r} has a representation layer")
    _variables(model)


FAMILY = Family(
    "vit",
    MODELS,
    _load,
    _no_tokenizer,
    read=read_vit_config,
    build=vit,
    fill=load_vit,
    parts=_PARTS,
    task="image_classification",
    writers=(
        Writer(
            accepted_by(_check_classifier),
            {"image_classification": "ViTForImageClassification"},
            save_vit,
            save_vit_config,
        ),
    ),
)
