"""Trains low-rank updates: two thin matrices beside each large one, which stays frozen.

Hu et al. 2021, arXiv:2106.09685: a matrix W becomes W + alpha / rank * A B, with A (rows, rank) and
B (rank, columns), which starts at zero.
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal, get_args

import keras
import numpy as np

from keras_transformers.dependencies.private_api import stored_kernel
from keras_transformers.models.anatomy import anatomy

__all__ = ["Adapter"]

Target = Literal["attention", "feed_forward"]


@dataclasses.dataclass(frozen=True)
class Adapter:
    """The updates that training with `lora` learned: a pipeline's `adapter`, merged into its model.

    Attributes:
        rank: the number of columns of A.
        alpha: divided by the rank, it scales the updates.
        updates: path of a matrix in the model -> A float32 (rows, rank), B float32 (rank, columns).
        head: path of a weight of the task's head, which is trained in full -> its values.
    """

    rank: int
    alpha: float
    updates: Mapping[str, tuple[np.ndarray, np.ndarray]]
    head: Mapping[str, np.ndarray]

    def update(self, path: str) -> np.ndarray:
        """Returns the update to add to a matrix: float32 (rows, columns)."""
        first, second = self.updates[path]
        return self.alpha / self.rank * (first @ second)


def enable(model: keras.Model, *, rank: int, alpha: float | None, targets: Collection[str]) -> None:
    """Adds low-rank updates to the matrices of a model's blocks; only they and the head then train.

    Args:
        model: a built Transformer; its weights stay as they are.
        rank: the rank of the updates, above 0.
        alpha: see the module; the rank by default.
        targets: "attention", "feed_forward" or both.

    Raises:
        ValueError: the model has no Transformer blocks, or a target is unknown.
    """
    if not targets or not set(targets) <= set(get_args(Target)):
        raise ValueError(f"lora_targets={tuple(targets)!r}: pass {' or '.join(get_args(Target))}")
    matrices = list(dict.fromkeys(_matrices(model, targets)))
    head = {id(variable) for layer in _head(model) for variable in layer.weights}
    for variable in model.weights:
        if id(variable) not in head:
            variable.trainable = False
    for layer in matrices:
        layer.enable_lora(rank, lora_alpha=alpha)
        layer.stores_update = True


def taken(model: keras.Model, rank: int, alpha: float | None) -> Adapter:
    """Returns the updates that a model has learned."""
    updates: dict[str, Any] = {}
    head: dict[str, np.ndarray] = {}
    for layer in dict.fromkeys(_matrices(model, get_args(Target))):
        if layer.lora_enabled:
            pair = (layer.lora_kernel_a, layer.lora_kernel_b)
            updates[stored_kernel(layer).path] = tuple(keras.ops.convert_to_numpy(x) for x in pair)
    for layer in _head(model):
        head |= {x.path: keras.ops.convert_to_numpy(x) for x in layer.weights}
    return Adapter(rank, float(rank if alpha is None else alpha), updates, head)


def copy_base(trained: keras.Model, model: keras.Model) -> None:
    """Gives a model the base weights of its copy that was trained with updates.

    They differ if a run was resumed with a model whose new weights, such as a pooler's, were drawn
    again.
    """
    base = {variable.path: variable for variable in trained.weights}
    for variable in model.weights:
        variable.assign(base[variable.path])


def merge(adapter: Adapter, model: keras.Model) -> None:
    """Adds an adapter's updates to the model that it was trained on, and sets its head."""
    variables = {variable.path: variable for variable in model.weights}
    for path in adapter.updates:
        variables[path].assign_add(adapter.update(path))
    for path, values in adapter.head.items():
        variables[path].assign(values)


def _matrices(model: keras.Model, targets: Collection[str]) -> Iterator[Any]:
    parts = anatomy(model)
    sides = [parts, *([parts.encoder] if parts.encoder is not None else [])]
    blocks = [block for side in sides for block in side.blocks]
    if not blocks:
        raise ValueError(
            f"lora: model {model.name!r} has no Transformer blocks to update; leave it out"
        )
    for block in blocks:
        if "attention" in targets:
            for attention in (block.self_attention, block.cross_attention):
                if attention is not None:
                    yield from (attention.query, attention.key, attention.value)
                    yield attention.output_projection
        if "feed_forward" in targets:
            inner = block.feed_forward
            yield from (layer for layer in (inner.intermediate, inner.gate) if layer is not None)
            yield inner.output_projection


def _head(model: keras.Model) -> list[keras.layers.Layer]:
    """Returns the layers above the last block, without its final norm, pooler and projection."""
    parts = anatomy(model)
    below = {id(layer) for layer in keras.Model(model.input, parts.hidden[-1]).layers}
    ends = {id(layer) for layer in (parts.final_norm, parts.pooler, parts.projection)}
    return [layer for layer in model.layers if layer.weights and id(layer) not in below | ends]
