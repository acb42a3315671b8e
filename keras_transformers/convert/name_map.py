"""Maps a family's weights to Hugging Face's names."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import keras

from keras_transformers.convert.tensors import NamedVariable

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

    def fits(
        self, model: keras.Model, *, first_position: int = 0, pooler_activation: str | None = None
    ) -> bool:
        """Returns whether a model has the family's embeddings, and a place for every layer.

        Args:
            model: a model with any head.
            first_position: the row of the matrix for the first position of a text.
            pooler_activation: the activation that the pooler must have, if there is one; None for
                any.
        """
        layers = {layer.name: layer for layer in model.layers if layer.weights}
        places = {*self.embeddings, *self.modules, *self.biases}
        return (
            self.embeddings.keys() <= layers.keys()
            and all(name in places or name.startswith("encoder_layer_") for name in layers)
            and getattr(layers["position_embedding"], "first_position", None) == first_position
            and (
                None in (pooler_activation, layers.get("pooler"))
                or layers["pooler"].activation.__name__ == pooler_activation
            )
        )

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


def with_sequence_head(names: NameMap, model: keras.Model) -> NameMap:
    """Returns the names for a model whose head may be one of a whole sequence.

    Hugging Face's RobertaForSequenceClassification, and others that follow it, have no pooler: its
    layer is the first one of the head, `classifier.dense`.
    """
    layers = {layer.name for layer in model.layers}
    is_sequence_head = "pooler" in layers and layers & {"logits", "score_dense"}
    if not is_sequence_head or "choices_to_rows" in layers:
        return names
    output = "classifier.out_proj"
    head = {"pooler": "classifier.dense", "logits": output, "score_dense": output}
    return replace(names, modules={**names.modules, **head})


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
