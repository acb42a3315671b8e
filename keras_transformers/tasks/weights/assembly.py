"""Makes a model from weights, with any head: for `load`, recipes and pretraining."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import keras

from keras_transformers.convert.families import without_pooler
from keras_transformers.convert.formats.weights import FoundWeights
from keras_transformers.dependencies.private_api import give_values, without_values

Head = Callable[[keras.Model], keras.Model]


class Assembled(NamedTuple):
    """A model made from weights."""

    model: keras.Model
    new: list[keras.layers.Layer]  # its layers with random weights
    unused: list[str]  # the tensors that it has no place for


def assemble(
    weights: FoundWeights,
    head: Head = lambda encoder: encoder,
    *,
    fills_head: bool = False,
    ignore: Iterable[str] | None = None,
    **changes: Any,
) -> Assembled:
    """Makes a model from weights, with any head.

    An encoder's pooler is filled if the weights have one and the model reads it; if it reads one
    that they lack, the pooler is new.

    Args:
        weights: from `find_weights`.
        head: adds the head to a model without one.
        fills_head: whether the weights have the head's; otherwise, they stay random.
        ignore: wildcards of tensors that may stay unused; by default those of heads and the pooler.
        **changes: arguments of the builder that differ from those in the files, such as `dropout`.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or weights are missing, left over or of another shape.
    """
    with without_values():
        encoder = weights.build(**changes)
        model = head(encoder) if fills_head else encoder
    if not fills_head:
        model = head(encoder)
    filled = model if fills_head else _with_weights(weights, encoder, model)
    unused = weights.fill(filled, weights.parts if ignore is None else ignore)
    give_values(model)
    with_values = set(map(id, filled.layers))
    new = [layer for layer in model.layers if layer.weights and id(layer) not in with_values]
    return Assembled(model, new, unused)


def _with_weights(weights: FoundWeights, encoder: keras.Model, model: keras.Model) -> keras.Model:
    """Returns the part of an encoder that the weights fill."""
    if not {"sequence_output", "pooled_output"} <= set(encoder.output):
        return encoder
    bare = without_pooler(encoder)
    pooler = {id(layer) for layer in encoder.layers} - {id(layer) for layer in bare.layers}
    is_read = not pooler.isdisjoint(map(id, model.layers))
    return encoder if weights.has_pooler and is_read else bare
