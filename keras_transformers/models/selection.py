"""Finds which positions of an encoder's last block its head reads.

A classifier reads the first token's vector, and a masked-LM head those of the masked words. The
last block then attends from these positions alone, and its feed-forward network computes only
them: with six blocks and one position, this saves about a seventh of the blocks' products.
"""

from collections.abc import Mapping
from typing import Any

import keras

from keras_transformers.dependencies.private_api import call_arguments, calls, reads_first_item
from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.layers import (
    FirstTokenPooler,
    GatherPositions,
    TokenPooling,
    TransformerBlock,
)
from keras_transformers.layers.masks import EVERYWHERE
from keras_transformers.layers.scopes import Selection

__all__: list[str] = []

# Layers that compute each position from the same position alone.
_BY_POSITION = (
    keras.layers.Dropout,
    keras.layers.Identity,
    keras.layers.LayerNormalization,
    keras.layers.RMSNormalization,
)


class HeadSelection:
    """Says what a model's head reads of its last block, if it does not read everything.

    Args:
        model: functional, with named inputs.

    Attributes:
        block: the last block; None if all that it computes is read.

    Example:
        >>> import keras_transformers as kt
        >>> encoder = kt.bert_tiny(vocabulary_size=9)
        >>> HeadSelection(encoder).block is None
        True
        >>> HeadSelection(kt.heads.classifier(encoder, 2)).block.name
        'encoder_layer_1'
    """

    def __init__(self, model: keras.Model) -> None:
        self.block: TransformerBlock | None = None
        self._reads_first = False
        self._gather: GatherPositions | None = None
        self._positions = ""  # the input that says which
        blocks = [call for call in calls(model) if isinstance(call[0], TransformerBlock)]
        if not blocks or not isinstance(model.input, dict):
            return
        block, _, outputs = blocks[-1]
        options = [kwargs for layer, _, kwargs in call_arguments(model) if layer is block]
        if len(options) == 1 and self._follow(model, outputs[0]) and self._fits(block, options[0]):
            self.block = block

    def of(self, inputs: Mapping[str, Tensor]) -> dict[keras.layers.Layer, Selection]:
        """Returns the `scopes.SELECTIONS` for the model's inputs by name."""
        if self.block is None:
            return {}
        positions = inputs[self._positions] if self._positions else None
        selection = Selection(self._reads_first, positions)
        layers = (self.block, self._gather)
        return {layer: selection for layer in layers if layer is not None}

    def _follow(self, model: keras.Model, vectors: Tensor) -> bool:
        """Notes what reads the last block's vectors; returns whether that is a selection."""
        all_positions = {id(vectors)}
        for layer, arguments, results in calls(model):
            if all_positions.isdisjoint(map(id, arguments)):
                continue
            if isinstance(layer, _BY_POSITION):
                all_positions.update(map(id, results))
            elif _reads_first(layer, arguments):
                self._reads_first = True
            elif isinstance(layer, GatherPositions) and self._gather is None:
                names = [name for name, x in model.input.items() if x is arguments[1]]
                self._gather, self._positions = layer, "".join(names)
                if not names:
                    return False
            else:
                return False
        return all_positions.isdisjoint(map(id, keras.tree.flatten(model.output)))

    def _fits(self, block: TransformerBlock, options: Mapping[str, Any]) -> bool:
        """Returns whether a block can compute the selection alone."""
        used = {name: x for name, x in options.items() if x is not None and x is not False}
        mask = used.get("attention_mask")
        by_position = {"attention_bias", "distance_vectors"}  # vary by the query's position
        return (
            block.cross_attention is None
            and block.self_attention.reach == EVERYWHERE
            and used.keys() <= {"attention_mask", *by_position}
            and (mask is None or len(mask.shape) == 2)
            and (by_position.isdisjoint(used) or self._gather is None)
        )


def _reads_first(layer: Any, arguments: Any) -> bool:
    """Returns whether a call reads the first position alone."""
    if isinstance(layer, FirstTokenPooler):
        return len(arguments) == 1
    if isinstance(layer, TokenPooling):
        return layer.modes == ("cls",)
    return reads_first_item(layer)
