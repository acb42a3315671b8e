"""ViT weights from and to Hugging Face's safetensors."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers.convert.tensors import Entry, assign, read_safetensors, write_safetensors
from keras_transformers.layers.patches import Interpolation, resize_positions

__all__ = ["load_vit", "read_vit_config", "save_vit"]

_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_approximate",
    "gelu_pytorch_tanh": "gelu_approximate",
    "relu": "relu",
}
_POSITIONS = "vit.embeddings.position_embeddings"
# Our top-level layers that map to one foreign module.
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
_WEIGHTS = {"kernel": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}
# Modules of an encoder layer as transformers 5 calls them in memory -> as files call them.
_IN_MEMORY = {
    "attention.q_proj": "attention.attention.query",
    "attention.k_proj": "attention.attention.key",
    "attention.v_proj": "attention.attention.value",
    "attention.o_proj": "attention.output.dense",
    "mlp.fc1": "intermediate.dense",
    "mlp.fc2": "output.dense",
}


def read_vit_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads Hugging Face's `config.json` as arguments of `keras_transformers.models.vit.vit`.

    Args:
        path: the file, or the folder that holds it. In a folder `preprocessor_config.json`, if
            there, tells the scaling of the pixels; else it is that of the original ViT, 0.5 and
            0.5.

    Returns:
        Keyword arguments that build the encoder which the configuration describes, without the
        representation layer.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not JSON, describes no ViT, lacks a field, or asks for something that
            these layers do not do (attention without biases, another activation).

    Example:
        encoder = vit(**read_vit_config("vit-base-patch16-224"))
    """
    path = Path(path)
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise FileNotFoundError(f"{file} does not exist: a Hugging Face ViT folder has config.json")
    config = _read_object(file)
    wanted = {"model_type": "vit", "qkv_bias": True, "pooler_act": "tanh"}
    for field, value in wanted.items():
        if config.get(field, value) != value:
            raise ValueError(f"{file}: {field}={config[field]!r}; only {value!r} is known here")
    activation = config.get("hidden_act", "gelu")
    if activation not in _ACTIVATIONS:
        known = ", ".join(sorted(_ACTIVATIONS))
        raise ValueError(f"{file}: hidden_act={activation!r}; known are {known}")
    try:
        patch_size, image_size = config["patch_size"], config["image_size"]
        if not isinstance(patch_size, int):
            raise ValueError(f"{file}: patch_size={patch_size!r}; patches must be square here")
        return {
            "patch_size": patch_size,
            "num_layers": config["num_hidden_layers"],
            "num_heads": config["num_attention_heads"],
            "hidden_dim": config["hidden_size"],
            "intermediate_dim": config["intermediate_size"],
            "image_size": image_size if isinstance(image_size, int) else tuple(image_size),
            "num_channels": config.get("num_channels", 3),
            "dropout": config.get("hidden_dropout_prob", 0.0),
            "attention_dropout": config.get("attention_probs_dropout_prob", 0.0),
            "activation": _ACTIVATIONS[activation],
            "norm_epsilon": config.get("layer_norm_eps", 1e-12),
            **_pixel_scaling(file.with_name("preprocessor_config.json")),
        }
    except KeyError as error:
        raise ValueError(f"{file}: has no field {error}") from error


def load_vit(
    model: keras.Model,
    path: str | os.PathLike[str],
    *,
    ignore: Iterable[str] = (),
    interpolation: Interpolation | None = None,
) -> None:
    """Fills a ViT, with or without its head, with weights of Hugging Face's ViT.

    Reads what ViTModel and ViTForImageClassification save. Every tensor is used, or named in
    `ignore`, or the load fails and the model stays as it was.

    Args:
        model: from `keras_transformers.models.vit`, or `heads.classifier` on it.
        path: a `.safetensors` file or the folder that holds `model.safetensors`.
        ignore: wildcards of tensors to leave out, such as "classifier.*" when only the encoder is
            wanted, or "vit.pooler.*" for a model without representation layer. They are given with
            the prefix "vit.".
        interpolation: brings the file's position embeddings to the model's `image_size`, see
            `keras_transformers.layers.patches.resize_positions`; None: another size is an error.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not readable; or tensors are missing, of another shape or left
            over, all of them listed; or its positions, to be interpolated, are those of no square.
    """
    tensors = {_as_in_files(name): tensor for name, tensor in read_safetensors(path).items()}
    if interpolation is not None and _POSITIONS in tensors:
        tensors[_POSITIONS] = _resized(tensors[_POSITIONS], model, interpolation, str(path))
    assign(_entries(model), tensors, source=str(path), ignore=ignore)


def save_vit(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Writes a ViT's weights under Hugging Face's names, for `from_pretrained`.

    Args:
        model: from `keras_transformers.models.vit`, or `heads.classifier` on it.
        path: the `.safetensors` file to write.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: the model has a layer that has no place in Hugging Face's ViT.
    """
    write_safetensors(_entries(model), path)


class _Rearranged:
    """A variable as others store it: its axes in another order, or with axes of size 1 added."""

    def __init__(self, variable: Any, axes: tuple[int, ...], shape: tuple[int, ...]) -> None:
        self.variable, self.axes, self.shape = variable, axes, shape
        self.path = variable.path

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.variable, dtype).transpose(self.axes).reshape(self.shape)

    def assign(self, array: np.ndarray) -> None:
        ours = self.variable.shape
        moved = array.reshape([ours[axis] for axis in self.axes])
        self.variable.assign(moved.transpose(np.argsort(self.axes)))


def _entries(model: keras.Model) -> list[Entry]:
    """Every variable of the model with its foreign name."""
    return [entry for layer in model.layers if layer.weights for entry in _layer_entries(layer)]


def _layer_entries(layer: keras.layers.Layer) -> Iterator[Entry]:
    if layer.name == "patch_embedding":
        rows, columns, channels, hidden = layer.kernel.shape
        kernel = _Rearranged(layer.kernel, (3, 2, 0, 1), (hidden, channels, rows, columns))
        yield Entry(kernel, "vit.embeddings.patch_embeddings.projection.weight")
        yield Entry(layer.bias, "vit.embeddings.patch_embeddings.projection.bias")
    elif layer.name == "class_token":
        token = layer.class_token
        yield Entry(_Rearranged(token, (0,), (1, 1, *token.shape)), "vit.embeddings.cls_token")
    elif layer.name == "position_embedding":
        positions = layer.embeddings
        yield Entry(_Rearranged(positions, (0, 1), (1, *positions.shape)), _POSITIONS)
    elif layer.name in _MODULES:
        for variable in layer.weights:
            yield _entry(variable, _MODULES[layer.name])
    elif layer.name.startswith("encoder_layer_"):
        module = f"vit.encoder.layer.{layer.name.removeprefix('encoder_layer_')}"
        for variable in layer.weights:
            part = variable.path.split(f"{layer.name}/", 1)[1].rsplit("/", 1)[0]
            yield _entry(variable, f"{module}.{_ENCODER_PARTS[part]}")
    else:
        raise ValueError(
            f"layer {layer.name!r} has no place in Hugging Face's ViT; load or save the encoder "
            "alone, before its head is put on"
        )


def _entry(variable: Any, module: str) -> Entry:
    kind = variable.path.rsplit("/", 1)[1]
    return Entry(variable, f"{module}.{_WEIGHTS[kind]}", transpose=kind == "kernel")


def _as_in_files(name: str) -> str:
    """A tensor's name as files of ViTForImageClassification have it."""
    if name.startswith(("embeddings.", "encoder.", "layers.", "layernorm.", "pooler.")):
        name = f"vit.{name}"  # ViTModel saves without prefix
    match = re.fullmatch(r"vit\.layers\.(\d+)\.(.+)\.(weight|bias)", name)
    if match:
        layer, module, kind = match.groups()
        name = f"vit.encoder.layer.{layer}.{_IN_MEMORY.get(module, module)}.{kind}"
    return name


def _resized(
    positions: np.ndarray, model: keras.Model, interpolation: Interpolation, source: str
) -> np.ndarray:
    """Position embeddings (1, 1 + patches, hidden) of a square, for the model's patches."""
    side = round((max(positions.shape[-2:-1], default=1) - 1) ** 0.5)
    if positions.shape[:2] != (1, 1 + side * side):
        raise ValueError(
            f"{source}: {_POSITIONS} is {tuple(positions.shape)}: those of no square image; load "
            "them into a model of their size, then call keras_transformers.models.vit.copy_weights"
        )
    grid = model.get_layer("patch_embedding").grid
    return resize_positions(positions[0], (side, side), grid, interpolation=interpolation)[None]


def _pixel_scaling(file: Path) -> dict[str, Any]:
    """`pixel_mean` and `pixel_std` from a preprocessor's configuration; none without the file."""
    if not file.is_file():
        return {}
    config = _read_object(file)
    if not config.get("do_normalize", True):
        return {"pixel_mean": 0.0, "pixel_std": 1.0}
    fields = {"image_mean": "pixel_mean", "image_std": "pixel_std"}
    return {ours: config[theirs] for theirs, ours in fields.items() if theirs in config}


def _read_object(file: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{file}: not a JSON object ({error})") from error
    if not isinstance(value, dict):
        raise ValueError(f"{file}: not a JSON object but a {type(value).__name__}")
    return value
