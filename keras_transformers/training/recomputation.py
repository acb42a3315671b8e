"""Gradient checkpointing: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"."""

import keras

from keras_transformers.dependencies.private_api import inner_layers

__all__ = ["recompute_layers"]


def recompute_layers(model: keras.Model, recompute: bool = True) -> None:
    """Trains a model in less memory: its layers keep their inputs and recompute the rest.

    The gradients are those of plain training, with the same dropout. A step takes one more forward
    pass through the layers. docs/training.md has figures. Hugging Face:
    `gradient_checkpointing_enable`. Call it before `fit`, or again after `compile`.

    Args:
        model: any model with encoder or decoder layers.
        recompute: False returns to keeping all activations.

    Raises:
        ValueError: the model has no such layers.

    Example:
        >>> from keras_transformers.families.bert.model import bert
        >>> model = bert(vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=8)
        >>> recompute_layers(model)
        >>> model.get_layer("encoder_layer_0").recomputes
        True
    """
    layers = [layer for layer in inner_layers(model) if hasattr(layer, "recomputes")]
    if not layers:
        raise ValueError(
            f"model {model.name!r} has no encoder or decoder layers whose activations could be "
            "recomputed: train it without `recompute`"
        )
    for layer in layers:
        layer.recomputes = recompute
    model.train_function = None  # made by an earlier `fit`
