"""Finds the blocks of a functional model, as in the figure of its paper."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras

from keras_transformers.dependencies.private_api import calls
from keras_transformers.inspection.parameters import activation_name, parameter_table
from keras_transformers.layers import (
    FeedForward,
    MultiHeadAttention,
    PatchEmbedding,
    PositionEmbedding,
    RelativePositionBias,
    SinusoidalPositionEmbedding,
    TransformerBlock,
)
from keras_transformers.layers.recurrent.attention import RnnAttention

__all__ = ["Block", "Part", "model_blocks"]

_LOOKS: dict[str, tuple[type, ...]] = {
    "attention": (MultiHeadAttention, RnnAttention, keras.layers.MultiHeadAttention),
    "feed_forward": (FeedForward,),
    "norm": (keras.layers.LayerNormalization, keras.layers.RMSNormalization),
    "plain": (RelativePositionBias,),  # also an Embedding, but it embeds nothing
    "embedding": (
        *(keras.layers.Embedding, PositionEmbedding, SinusoidalPositionEmbedding),
        PatchEmbedding,
    ),
}


@dataclass(frozen=True)
class Part:
    """Describes a layer inside a block.

    Attributes:
        name: its name without numbers, such as "self_attention".
        num_parameters: exact count.
        look: how to draw it: "attention", "feed_forward", "norm", "embedding" or "plain".
        sizes: the widths of the data in it, such as "768 → 3,072 → 768", and the activation.
        norm: where the sub-layer's norm is: "post" after the residual sum, "pre" before the
            sub-layer, "output" after it, "both" before and after it, "" for a part without a
            residual connection.
        norm_parameters: exact count of that norm, or of both.
    """

    name: str
    num_parameters: int
    look: str = "plain"
    sizes: str = ""
    norm: str = ""
    norm_parameters: int = 0


@dataclass(frozen=True)
class Block:
    """Describes a layer of a model, or several equal layers in a row.

    Attributes:
        name: the layer's name, without its number.
        kind: "input", "layer" or "output".
        num_parameters: exact count of one layer; 0 where another block's weights are used again.
        look: see `Part`.
        sizes: see `Part`; without weights, its operation, such as "add"; for inputs and outputs,
            the known sizes of the tensor.
        parts: what is in the layer, in the order of computation.
        count: how many equal layers follow each other.
        source: index of the block whose output it continues; None for inputs.
        joins: indices of the other blocks whose outputs it uses, and where they enter: the name of
            a part, or "" for the whole block.
        is_shared: whether its weights are those of an earlier block.
    """

    name: str
    kind: str
    num_parameters: int = 0
    look: str = "plain"
    sizes: str = ""
    parts: tuple[Part, ...] = ()
    count: int = 1
    source: int | None = None
    joins: tuple[tuple[int, str], ...] = ()
    is_shared: bool = False


def model_blocks(model: keras.Model) -> list[Block]:
    """Lists a functional model's blocks, each after those whose outputs it uses.

    Masks are left out, and so are Keras' own layers with one input and no weights, such as dropout.
    Equal layers in a row form one block.

    Args:
        model: a functional model.

    Returns:
        Blocks; `count * num_parameters` adds up to `model.count_params()`.

    Example:
        >>> from keras_transformers.families.bert.model import bert
        >>> model = bert(vocabulary_size=9, num_layers=3, num_heads=2, hidden_dim=8)
        >>> [(block.name, block.count) for block in model_blocks(model) if block.kind == "layer"]
        [('token_embedding', 1), ('segment_embedding', 1), ('token_and_segment', 1),
        ('position_embedding', 1), ('embeddings_norm', 1), ('encoder_layer', 3), ('pooler', 1)]
    """
    return _without_repetitions(_all_blocks(model))


def _all_blocks(model: keras.Model) -> list[Block]:
    """Returns the inputs, one block per layer's call, and the outputs."""
    counts = {row.name: row.num_parameters for row in parameter_table(model, {})}
    blocks: list[Block] = []
    made_by: dict[int, int] = {}  # tensor -> index of the block that computes it
    seen: set[int] = set()
    followed = {id(inputs[0]) for _, inputs, _ in calls(model) if inputs}
    beside: dict[int, str] = {}  # inputs that are only used together with something else
    for tensor in keras.tree.flatten(list(_named(model.input, "input").values())):
        if id(tensor) not in followed:
            beside[id(tensor)] = tensor.name
        elif not _is_mask(tensor):
            made_by[id(tensor)] = len(blocks)
            blocks.append(Block(tensor.name, "input", sizes=_shape(tensor)))
    for layer, inputs, outputs in calls(model):
        taken = [made_by[id(tensor)] for tensor in inputs if id(tensor) in made_by]
        if not taken or all(map(_is_mask, outputs)):
            continue
        index = len(blocks)
        if len(set(taken)) == 1 and _only_passes_on(layer):
            index = taken[0]
        else:
            parts = _parts(layer)
            extra = [
                beside[id(tensor)]
                for tensor in inputs
                if id(tensor) in beside and not _is_mask(tensor)
            ]
            is_shared = id(layer) in seen
            blocks.append(
                Block(
                    _base(layer.name),
                    "layer",
                    0 if is_shared else counts.get(layer.name, 0),
                    _look(layer),
                    "" if parts else ", with ".join([_details(layer, outputs[0]), *extra]),
                    parts,
                    source=taken[0],
                    joins=_joins(inputs, taken, made_by, parts),
                    is_shared=is_shared,
                )
            )
            seen.add(id(layer))
        made_by.update((id(tensor), index) for tensor in outputs)
    for name, tensors in _named(model.output, "output").items():
        for tensor in keras.tree.flatten(tensors):
            blocks.append(Block(name, "output", sizes=_shape(tensor), source=made_by[id(tensor)]))
    return blocks


def _details(layer: Any, output: Any) -> str:
    """Returns a layer's sizes, or its operation if it has no weights."""
    if getattr(layer, "weights", ()):
        return _sizes(layer, output.shape[-1])
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(layer).__name__).lower()


def _named(tensors: Any, name: str) -> dict[str, Any]:
    return tensors if isinstance(tensors, dict) else {name: tensors}


def _is_mask(tensor: Any) -> bool:
    return bool(tensor.dtype == "bool")


def _only_passes_on(layer: Any) -> bool:
    """Returns whether a layer is one of Keras' without weights, such as dropout or an index."""
    return not getattr(layer, "weights", ()) and type(layer).__module__.startswith("keras.")


def _joins(
    inputs: Sequence[Any], taken: Sequence[int], made_by: dict[int, int], parts: Sequence[Part]
) -> tuple[tuple[int, str], ...]:
    """Returns where the tensors beside the first one come from, and which part uses them."""
    names = [part.name for part in parts if part.look == "attention"]
    joins = {}
    for tensor in inputs:
        if (index := made_by.get(id(tensor), taken[0])) != taken[0]:
            # Vectors of another sequence go to the last attention, scores' biases to the first.
            is_sequence = len(tensor.shape) == len(inputs[0].shape)
            joins[index] = names[-1 if is_sequence else 0] if names else ""
    return tuple(joins.items())


def _without_repetitions(blocks: Sequence[Block]) -> list[Block]:
    """Returns the blocks with equal layers in a row as one."""
    taken = Counter(block.source for block in blocks)
    taken.update(join for block in blocks for join, _ in block.joins)
    result: list[Block] = []
    place: dict[int | None, int | None] = {None: None}  # index before -> index now
    for index, block in enumerate(blocks):
        moved = replace(
            block,
            source=place[block.source],
            joins=tuple((place[join], part) for join, part in block.joins),  # type: ignore[misc]
        )
        below = result[moved.source] if moved.source is not None else None
        if (
            below is not None
            and block.kind == "layer"
            and taken[block.source] == 1
            and replace(moved, count=below.count, source=below.source) == below
        ):
            result[moved.source] = replace(below, count=below.count + 1)  # type: ignore[index]
            place[index] = moved.source
        else:
            place[index] = len(result)
            result.append(moved)
    return result


def _parts(layer: Any) -> tuple[Part, ...]:
    """Returns the layers with weights inside a layer; in a block, each with its norms."""
    if isinstance(layer, TransformerBlock):
        return tuple(
            replace(
                _part(inner),
                norm=layer.norm_position,
                norm_parameters=sum(norm.count_params() for norm in norms),
            )
            for inner, norms in layer.sublayers()
        )
    parts = tuple(_part(inner) for inner in getattr(layer, "layers", ()) if inner.weights)
    return parts if len(parts) > 1 else ()


def _part(layer: Any) -> Part:
    return Part(_base(layer.name), layer.count_params(), _look(layer), _sizes(layer))


def _look(layer: Any) -> str:
    """Returns how to draw a layer, by its type."""
    return next((look for look, kinds in _LOOKS.items() if isinstance(layer, kinds)), "plain")


def _sizes(layer: Any, width: int | None = None) -> str:
    """Returns the widths of the data in a layer up to its output, and its activation."""
    if heads := getattr(layer, "num_heads", None):
        dims = getattr(layer, "head_dim", None)
        return f"{heads} heads of {dims}" if dims else f"{heads} heads"
    kernels = [w for w in getattr(layer, "weights", ()) if w.path.rpartition("/")[2] == "kernel"]
    widths: list[str] = []
    last = None
    for kernel in kernels:
        if last is None or kernel.shape[0] == last:
            widths += [_product(kernel.shape[:-1])] if last is None else []
            widths.append(f"{kernel.shape[-1]:,}")
            last = kernel.shape[-1]
    if kernels and width not in (None, last):
        widths.append(f"{width:,}")
    if not widths and (weights := getattr(layer, "weights", [])):
        largest = max(weights, key=lambda weight: math.prod(weight.shape))
        widths = [_product(largest.shape)]
    return ", ".join(filter(None, [" → ".join(widths), activation_name(layer)]))


def _product(shape: Iterable[int]) -> str:
    return " \u00d7 ".join(f"{size:,}" for size in shape)


def _shape(tensor: Any) -> str:
    """Returns the known sizes of a tensor, without the batch."""
    return _product(size for size in tensor.shape[1:] if size is not None)


def _base(name: str) -> str:
    """Returns a layer's name without its number: encoder_layer_3 is an encoder_layer."""
    return re.sub(r"_\d+$", "", name)
