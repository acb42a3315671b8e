"""Where the weights of our encoders are in Hugging Face's files: one table per family."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert.tensors import Entry

# Our activations by Hugging Face's names.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_approximate",
    "gelu_pytorch_tanh": "gelu_approximate",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
_FOREIGN_ACTIVATIONS = {ours: foreign for foreign, ours in reversed(ACTIVATIONS.items())}
_WEIGHTS = {"kernel": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}


@dataclass(frozen=True)
class NameMap:
    """The names of a family's weights in Hugging Face's files.

    Attributes:
        family: as Hugging Face calls it, for messages: "BERT".
        embeddings: our embedding layers -> their tensors.
        modules: our other layers -> the foreign module with their weights.
        biases: our layers that are a bias alone -> its tensor.
        layers: the foreign module that holds the encoder layers by number.
        parts: parts of our `EncoderLayer` -> the foreign parts of a layer.
    """

    family: str
    embeddings: Mapping[str, str]
    modules: Mapping[str, str]
    biases: Mapping[str, str]
    layers: str
    parts: Mapping[str, str]

    def entries(self, model: keras.Model) -> list[Entry]:
        """Every variable of the model with its foreign name; tied weights once.

        Raises:
            ValueError: a layer has no place in the family.
        """
        return [
            entry for layer in model.layers if layer.weights for entry in self._layer_entries(layer)
        ]

    def _layer_entries(self, layer: keras.layers.Layer) -> Iterator[Entry]:
        if layer.name in self.embeddings:
            yield Entry(layer.embeddings, self.embeddings[layer.name])
        elif layer.name in self.biases:
            yield Entry(layer.bias, self.biases[layer.name])
        elif layer.name in self.modules:
            for variable in layer.weights:
                yield _entry(variable, self.modules[layer.name])
        elif layer.name.startswith("encoder_layer_"):
            module = f"{self.layers}.{layer.name.removeprefix('encoder_layer_')}"
            for variable in layer.weights:
                part = variable.path.split(f"{layer.name}/", 1)[1].rsplit("/", 1)[0]
                yield _entry(variable, f"{module}.{self.parts[part]}")
        else:
            raise ValueError(
                f"layer {layer.name!r} has no place in Hugging Face's {self.family}; load or save "
                "the encoder alone, before its head is put on"
            )


def read_config(path: str | os.PathLike[str], model_type: str) -> tuple[Path, dict[str, Any]]:
    """Hugging Face's `config.json` of a family.

    Args:
        path: the file, or the folder that holds it.
        model_type: of the family; a file without one is accepted.

    Returns:
        The file, for messages, and what it says.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a JSON object, or describes another family.
    """
    path = Path(path)
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise FileNotFoundError(f"{file} does not exist: a folder of Hugging Face has config.json")
    try:
        config = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{file}: not a JSON object ({error})") from error
    if not isinstance(config, dict) or config.get("model_type", model_type) != model_type:
        raise ValueError(f"{file}: describes no {model_type} model: see its model_type")
    return file, config


def read_activation(file: Path, config: Mapping[str, Any], field: str) -> str:
    """Our name of an activation in `config.json`, "gelu" by default; ValueError without one."""
    name = config.get(field, "gelu")
    if name not in ACTIVATIONS:
        raise ValueError(f"{file}: {field}={name!r}; known are {', '.join(sorted(ACTIVATIONS))}")
    return ACTIVATIONS[name]


def foreign_activation(name: str) -> str:
    """Hugging Face's name of our activation; ValueError where there is none."""
    if name not in _FOREIGN_ACTIVATIONS:
        known = ", ".join(_FOREIGN_ACTIVATIONS)
        raise ValueError(f"activation={name!r} has no name there; known are {known}")
    return _FOREIGN_ACTIVATIONS[name]


def _entry(variable: Any, module: str) -> Entry:
    kind = variable.path.rsplit("/", 1)[1]
    return Entry(variable, f"{module}.{_WEIGHTS[kind]}", transpose=kind == "kernel")
