"""Prints Keras' summary of a model for texts of one length."""

import keras

from keras_transformers.inspection.flops import input_shapes
from keras_transformers.models.anatomy import anatomy
from keras_transformers.ranges import PositiveInt, check_ranges

__all__ = ["at_length", "summary"]


def summary(model: keras.Model, *, length: PositiveInt | None = None, **options: object) -> None:
    """Prints Keras' summary of a model, with its shapes for texts of one length.

    Models here take texts of any length, so `model.summary()` shows (None, None, 768). With
    `length=512` the same line is (None, 512, 768), as in the summaries of models that are built for
    one length, such as keras-bert's.

    Args:
        model: a functional model with named inputs.
        length: tokens per text; None leaves the lengths open.
        **options: arguments of `keras.Model.summary`, such as `expand_nested=True`.

    Raises:
        ValueError: see `at_length`.

    Example:
        >>> import keras_transformers as kt
        >>> lines = []
        >>> model = kt.bert_tiny(vocabulary_size=100)
        >>> kt.inspection.summary(model, length=512, print_fn=lines.append)
        >>> "(None, 512, 128)" in lines[0]
        True
    """
    (model if length is None else at_length(model, length)).summary(**options)


def at_length(model: keras.Model, length: PositiveInt) -> keras.Model:
    """Returns a model of the same layers, newly initialized, for texts of one length.

    Args:
        model: a functional model with named inputs.
        length: tokens per text, at most the model's positions; `mask_positions`, the masked words
            of pretraining, has 15 % of it.

    Raises:
        ValueError: the length is not positive, or exceeds the model's positions.
    """
    check_ranges(at_length, {"length": length})
    positions = anatomy(model).max_sequence_length
    if positions is not None and length > positions:
        raise ValueError(
            f"length={length}: model {model.name!r} has {positions} positions: pass at most that"
        )
    shapes = input_shapes(model, batch_size=1, length=length)
    config = model.get_config()
    for layer in config["layers"]:
        if layer["name"] in shapes:
            layer["config"]["batch_shape"] = (None, *shapes[layer["name"]][1:])
    return type(model).from_config(config)
