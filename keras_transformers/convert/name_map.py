"""Maps a family's weights and `config.json` to Hugging Face's names."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert.tensors import NamedVariable
from keras_transformers.files import read_json

# Hugging Face's name of an activation -> ours. Of several names, the first one is written.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_approximate",
    "gelu_pytorch_tanh": "gelu_approximate",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
_WEIGHTS = {"kernel": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}


@dataclass(frozen=True)
class NameMap:
    """The names of a family's weights in Hugging Face's files.

    Attributes:
        family: the family's name for error messages, such as "BERT".
        embeddings: our embedding layer -> tensor.
        modules: our other layers -> module.
        biases: our layer that is only a bias -> tensor.
        layers: the module that contains the numbered encoder layers.
        parts: part of our `EncoderLayer` -> module in an encoder layer.
    """

    family: str
    embeddings: Mapping[str, str]
    modules: Mapping[str, str]
    biases: Mapping[str, str]
    layers: str
    parts: Mapping[str, str]

    def variables(self, model: keras.Model) -> list[NamedVariable]:
        """Returns every variable of the model with its name in the file; tied weights occur once.

        Raises:
            ValueError: the family has no counterpart of a layer.
        """
        return [named for layer in model.layers if layer.weights for named in self._of_layer(layer)]

    def _of_layer(self, layer: keras.layers.Layer) -> Iterator[NamedVariable]:
        if layer.name in self.embeddings:
            yield NamedVariable(layer.embeddings, self.embeddings[layer.name])
        elif layer.name in self.biases:
            yield NamedVariable(layer.bias, self.biases[layer.name])
        elif layer.name in self.modules:
            for variable in layer.weights:
                yield in_module(variable, self.modules[layer.name])
        elif layer.name.startswith("encoder_layer_"):
            module = f"{self.layers}.{layer.name.removeprefix('encoder_layer_')}"
            for variable in layer.weights:
                part = part_of(variable, layer)
                yield in_module(variable, f"{module}.{self.parts[part]}")
        else:
            raise ValueError(
                f"layer {layer.name!r} has no place in Hugging Face's {self.family}; load or save "
                "the encoder without its head"
            )


def read_config(path: str | os.PathLike[str], *model_types: str) -> tuple[Path, dict[str, Any]]:
    """Reads Hugging Face's `config.json`.

    Args:
        path: the file or its folder.
        *model_types: accepted values of `model_type`; all if none is given. If only one is given,
            a file without `model_type` is accepted too.

    Returns:
        The file's path, for error messages, and its contents.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not a JSON object, or describes another family.
    """
    path = Path(path)
    file = path / "config.json" if path.is_dir() else path
    config = read_json(file)
    found = config.get("model_type", model_types[0] if len(model_types) == 1 else None)
    if model_types and found not in model_types:
        known = " or ".join(map(repr, model_types))
        raise ValueError(f"{file}: model_type is {found!r}; only {known} can be read here")
    return file, config


def read_activation(
    file: Path,
    config: Mapping[str, Any],
    field: str,
    *,
    names: Mapping[str, str] = ACTIVATIONS,
    default: str = "gelu",
) -> str:
    """Returns our name of an activation in `config.json`; ValueError if we have none."""
    name = config.get(field, default)
    if name not in names:
        raise ValueError(f"{file}: {field}={name!r}; known are {', '.join(sorted(names))}")
    return names[name]


def foreign_activation(name: str, names: Mapping[str, str] = ACTIVATIONS) -> str:
    """Returns Hugging Face's name of one of our activations; ValueError if it has none."""
    foreign = {ours: theirs for theirs, ours in reversed(list(names.items()))}
    if name not in foreign:
        raise ValueError(
            f"activation={name!r} has no Hugging Face name; known are {', '.join(foreign)}"
        )
    return foreign[name]


def part_of(variable: Any, layer: keras.layers.Layer) -> str:
    """Returns the part of a layer that has a variable, such as "self_attention/query"."""
    return variable.path.split(f"{layer.name}/", 1)[1].rsplit("/", 1)[0]


def weight_name(variable: Any) -> str:
    """Returns Hugging Face's name of a variable in its module, "weight" or "bias"."""
    return _WEIGHTS[variable.path.rsplit("/", 1)[1]]


def in_module(variable: Any, module: str) -> NamedVariable:
    """Names a variable as in a PyTorch module, which stores kernels transposed."""
    is_kernel = variable.path.endswith("/kernel")
    return NamedVariable(variable, f"{module}.{weight_name(variable)}", transpose=is_kernel)
