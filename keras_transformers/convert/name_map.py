"""Maps a family's weights to Hugging Face's names."""

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import keras

from keras_transformers.convert.config_map import num_labels
from keras_transformers.convert.containers.arrays import Arrays
from keras_transformers.convert.tensors import (
    PLAIN,
    TRANSPOSED,
    Form,
    NamedTensor,
    assign,
    without_copies,
)
from keras_transformers.layers import TransformerBlock
from keras_transformers.models.anatomy import anatomy

__all__ = ["Blocks", "NameMap", "prefixed"]

# Our name of a variable -> PyTorch's name within its module.
_WEIGHTS = {
    "kernel": "weight",
    "bias": "bias",
    "gamma": "weight",
    "beta": "bias",
    "scale": "weight",
    "embeddings": "weight",
}
_OLD_NORMS = (
    (r"\bLayerNorm\.gamma$", "LayerNorm.weight"),
    (r"\bLayerNorm\.beta$", "LayerNorm.bias"),
)


@dataclass(frozen=True)
class Blocks:
    """Names a family's blocks as in Hugging Face's files.

    Attributes:
        module: the module of block number {}, counted from 0.
        parts: part of a block -> module in it. Parts with the same module are stored side by side
            in one matrix.
        gated: the parts that have other names in a block with a gate.
    """

    module: str
    parts: Mapping[str, str]
    gated: Mapping[str, str] = field(default_factory=dict)

    def tensors(
        self, block: TransformerBlock, number: int, kernel: Form, norm: Form = PLAIN
    ) -> Iterator[NamedTensor]:
        """Yields the tensors of one block."""
        parts = {**self.parts, **(self.gated if block.feed_forward.gated else {})}
        by_name: dict[str, list[Any]] = {}
        for variable in block.weights:
            part, last = variable.path.split(f"{block.name}/", 1)[1].rsplit("/", 1)
            name = f"{self.module.format(number)}.{parts[part]}.{_WEIGHTS[last]}"
            by_name.setdefault(name, []).append(variable)
        for name, variables in by_name.items():
            form = _form(variables[0], kernel, norm)
            yield NamedTensor(name, tuple(variables), form)


@dataclass(frozen=True)
class NameMap:
    """Names a family's weights as in Hugging Face's files.

    A model's blocks are found by their type. All other layers are found by the names that the
    family's builder and the heads give them.

    Attributes:
        family: the family's name for error messages, such as "BERT".
        layers: our layer outside the blocks -> module.
        blocks: the names of the blocks; of an encoder-decoder, those of the encoder.
        decoder_blocks: the names of an encoder-decoder's decoder blocks.
        sequence_head: entries of `layers` that differ in a model whose head reads the pooler, where
            `stored` does not apply to them.
        stored: "layer/variable" -> the tensor's name and form, where they do not follow the rule.
        kernel: how files store the matrices of dense layers.
        norm: how files store the factors of RMS norms.
        rewritten: patterns of names in some files -> today's names, applied before the common ones.
        tied: copy of tied weights that some files also have -> the original.
        buffers: wildcards of tensors that are not weights.
        required: the layers that every model of the family has.
        traits: "layer.attribute", or "block.attribute" for all blocks -> the value that it must
            have if the model has the layer.
        foreign: wildcard of layers that no model there has -> what they are, and the remedy.
    """

    family: str
    layers: Mapping[str, str]
    blocks: Blocks
    decoder_blocks: Blocks | None = None
    sequence_head: Mapping[str, str] = field(default_factory=dict)
    stored: Mapping[str, tuple[str, Form]] = field(default_factory=dict)
    kernel: Form = TRANSPOSED
    norm: Form = PLAIN
    rewritten: tuple[tuple[str, str], ...] = ()
    tied: Mapping[str, str] = field(default_factory=dict)
    buffers: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    traits: Mapping[str, Any] = field(default_factory=dict)
    foreign: Mapping[str, str] = field(default_factory=dict)

    def tensors(self, model: keras.Model) -> list[NamedTensor]:
        """Returns every tensor of the model with its name in the file; tied weights occur once.

        Raises:
            ValueError: the family has no counterpart of a layer.
        """
        layers, stored = self._names(model)
        numbers = dict(self._numbered(model))
        return [
            tensor
            for layer in model.layers
            if layer.weights
            for tensor in self._of_layer(layer, layers, stored, numbers)
        ]

    def problems(self, model: keras.Model) -> list[str]:
        """Returns the reasons why a model is not one of the family; none if it is."""
        by_name = {layer.name: layer for layer in model.layers}
        blocks = [layer for layer in model.layers if isinstance(layer, TransformerBlock)]
        problems = [f"it has no layer {name}" for name in self.required if name not in by_name]
        if not blocks:
            problems.append("it has no layers.TransformerBlock")
        for trait, wanted in self.traits.items():
            name, attribute = trait.split(".")
            for layer in blocks if name == "block" else [by_name[name]] if name in by_name else []:
                value = getattr(layer, attribute, wanted)
                value = getattr(value, "__name__", value)  # an activation
                if value != wanted:
                    problems.append(f"{trait} is {value!r}, not {wanted!r}")
                    break
        layers, _ = self._names(model)
        weighted = [layer for layer in model.layers if layer.weights]
        return problems + [
            self._without_place(layer) for layer in weighted if not self._has_place(layer, layers)
        ]

    def check(self, model: keras.Model) -> None:
        """Raises ValueError unless a model belongs to the family, with any of its heads."""
        if problems := self.problems(model):
            raise ValueError(f"model {model.name!r} is not a {self.family}: {'; '.join(problems)}")

    def fill(
        self,
        model: keras.Model,
        arrays: Arrays,
        *,
        ignore: Iterable[str] = (),
        adapt: Callable[[keras.Model, Arrays], Arrays] | None = None,
    ) -> list[str]:
        """Fills a model with a file's tensors; see `assign`.

        Args:
            model: a model of the family, with any head.
            arrays: the file's tensors.
            ignore: wildcards of tensors that may stay unused, by today's names.
            adapt: takes the model and the tensors under today's names; returns those that the model
                needs.
        """
        tensors = self.tensors(model)
        names = {tensor.name for tensor in tensors}
        tied = {copy: original for copy, original in self.tied.items() if copy not in names}
        arrays = without_copies(self.today(arrays), tied)
        if adapt is not None:
            arrays = adapt(model, arrays)
        return assign(tensors, arrays, ignore=ignore, buffers=self.buffers)

    def today(self, arrays: Arrays) -> Arrays:
        """Returns a file's tensors under the names that today's classes with a head use."""

        def name_today(name: str) -> str:
            for pattern, replacement in (*self.rewritten, *_OLD_NORMS):
                name = re.sub(pattern, replacement, name)
            return name

        return arrays.renamed(name_today)

    def _names(
        self, model: keras.Model
    ) -> tuple[Mapping[str, str], Mapping[str, tuple[str, Form]]]:
        """Returns `layers` and `stored` for the model's head."""
        has_pooler = "pooler" in {layer.name for layer in model.layers}
        if not has_pooler or num_labels(model) is None:
            return self.layers, self.stored
        stored = {
            key: value
            for key, value in self.stored.items()
            if key.split("/")[0] not in self.sequence_head
        }
        return {**self.layers, **self.sequence_head}, stored

    def _numbered(self, model: keras.Model) -> Iterator[tuple[str, tuple[Blocks, int]]]:
        """Yields the name of each block, the map for its tensors, and its number."""
        parts = anatomy(model)
        decoder = self.decoder_blocks
        sides = [(self.blocks, parts)]
        if decoder is not None and parts.encoder is not None:
            sides = [(self.blocks, parts.encoder), (decoder, parts)]
        for names, side in sides:
            for number, name in enumerate(dict.fromkeys(block.name for block in side.blocks)):
                yield name, (names, number)

    def _of_layer(
        self,
        layer: Any,
        layers: Mapping[str, str],
        stored: Mapping[str, tuple[str, Form]],
        numbers: Mapping[str, tuple[Blocks, int]],
    ) -> Iterator[NamedTensor]:
        if isinstance(layer, TransformerBlock):
            names, number = numbers[layer.name]
            yield from names.tensors(layer, number, self.kernel, self.norm)
            return
        if not self._has_place(layer, layers):
            raise ValueError(self._without_place(layer))
        for variable in layer.weights:
            last = variable.path.rsplit("/", 1)[1]
            plain = (
                f"{layers.get(layer.name)}.{_WEIGHTS.get(last)}",
                _form(variable, self.kernel, self.norm),
            )
            name, form = stored.get(f"{layer.name}/{last}", plain)
            yield NamedTensor(name, (variable,), form)

    def _has_place(self, layer: Any, layers: Mapping[str, str]) -> bool:
        """Returns whether a layer has a counterpart there."""
        return (
            isinstance(layer, TransformerBlock)
            or layer.name in layers
            or any(key.startswith(f"{layer.name}/") for key in self.stored)
        )

    def _without_place(self, layer: Any) -> str:
        """Returns the message for a layer without a counterpart there."""
        for wildcard, what in self.foreign.items():
            if fnmatch.fnmatchcase(layer.name, wildcard):
                return f"layer {layer.name!r} is {what}"
        return (
            f"layer {layer.name!r} has no counterpart in Hugging Face's {self.family}; load or "
            "save the model without its head"
        )


def _form(variable: Any, kernel: Form, norm: Form) -> Form:
    """Returns how files store a variable, of which RMS norms call theirs "scale"."""
    last = variable.path.rsplit("/", 1)[1]
    return {"kernel": kernel, "scale": norm}.get(last, PLAIN)


def prefixed(prefix: str, *starts: str) -> tuple[str, str]:
    """Returns a rule that adds the prefix to names of a class without a head."""
    return rf"^(?=({'|'.join(map(re.escape, starts))})\.)", f"{prefix}."
