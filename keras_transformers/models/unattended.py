"""Models with tokens that attend to others, but that no token attends to."""

from collections.abc import Callable
from typing import Any

import keras

from keras_transformers.dependencies.private_api import run_through_graph
from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.layers import TransformerBlock, UnattendedBias

__all__: list[str] = []

UNATTENDED = "unattended_mask"


def with_unattended(model: keras.Model) -> keras.Model:
    """Returns a model with the input `unattended_mask`, sharing its layers.

    Args:
        model: an encoder with any head, without that input.

    Returns:
        A functional model with the same outputs. `unattended_mask` is bool (batch, length), True
        at tokens that no token attends to, themselves included.

    Example:
        >>> import keras_transformers as kt
        >>> sorted(with_unattended(kt.bert_tiny(vocabulary_size=9)).input)
        ['padding_mask', 'segment_ids', 'token_ids', 'unattended_mask']
    """
    mask = keras.Input((None,), dtype="bool", name=UNATTENDED)
    layer = UnattendedBias(name="unattended_bias")
    # Blocks mostly share a bias, which exports then add to their mask once.
    biases: list[tuple[Tensor, Tensor]] = []

    def bias_with(attention_bias: Tensor) -> Tensor:
        for before, bias in biases:
            if before is attention_bias:
                return bias
        biases.append((attention_bias, layer(mask, attention_bias=attention_bias)))
        return biases[-1][1]

    def operation(block: keras.layers.Layer) -> Callable[..., Any]:
        if not isinstance(block, TransformerBlock):
            return block

        def call(*inputs: Tensor, attention_bias: Tensor = None, **options: Any) -> Any:
            return block(*inputs, attention_bias=bias_with(attention_bias), **options)

        return call

    outputs = run_through_graph(model, model.input, operation)
    return type(model)({**model.input, UNATTENDED: mask}, outputs, name=model.name)


def without_unattended(model: keras.Model) -> keras.Model:
    """Undoes `with_unattended`; returns other models unchanged."""
    if not isinstance(model.input, dict) or UNATTENDED not in model.input:
        return model

    def operation(layer: keras.layers.Layer) -> Callable[..., Any]:
        if isinstance(layer, UnattendedBias):
            return lambda mask, attention_bias=None: attention_bias
        return layer

    outputs = run_through_graph(model, model.input, operation)
    inputs = {name: tensor for name, tensor in model.input.items() if name != UNATTENDED}
    return type(model)(inputs, outputs, name=model.name)
