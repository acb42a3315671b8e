"""Turns decoders into encoders of texts, for embeddings and scores."""

from collections.abc import Callable
from typing import Any

import keras

from keras_transformers.dependencies.private_api import run_through_graph
from keras_transformers.layers import TransformerBlock
from keras_transformers.models.anatomy import anatomy

__all__ = ["as_encoder"]


def as_encoder(model: keras.Model) -> keras.Model:
    """Returns a decoder without its projection, with a mask of its padding, sharing its layers.

    The vector of a position has seen the real tokens up to it, so the last real token's has seen
    the whole text. With rotary positions, padding on the left changes as little as on the right.

    Args:
        model: a causal language model without cross-attention, such as one from `models.llama`.

    Returns:
        A functional model with the inputs `token_ids` int32 and `padding_mask` bool
        (batch, length), True at real tokens, and the output `sequence_output`
        (batch, length, hidden), the vectors that the projection reads.

    Raises:
        ValueError: the model does not predict tokens.

    Example:
        >>> from keras_transformers.families.llama.model import llama
        >>> encoder = as_encoder(llama(vocabulary_size=9, num_layers=1, num_heads=2, hidden_dim=8,
        ...                            intermediate_dim=8))
        >>> sorted(encoder.input), encoder.output["sequence_output"].shape
        (['padding_mask', 'token_ids'], (None, None, 8))
    """
    parts = anatomy(model, "blocks", "projection")
    headless = keras.Model(model.input, {"sequence_output": parts.projected})
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in model.input}
    mask = keras.Input((None,), dtype="bool", name="padding_mask")

    def with_mask(layer: Any) -> Callable[..., Any]:
        if isinstance(layer, TransformerBlock):
            return lambda hidden, **others: layer(hidden, **{**others, "attention_mask": mask})
        return layer

    outputs = run_through_graph(headless, inputs, with_mask)
    return keras.Model({**inputs, "padding_mask": mask}, outputs, name=model.name)
