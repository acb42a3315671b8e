"""Names the types of what layers take and return."""

from typing import Any

from keras_transformers.dependencies.untyped import Tensor as Tensor

__all__: list[str] = []

Shape = tuple[Any, ...]  # the length of each axis; None where it is unknown

# An object, a name such as "glorot_uniform", or a configuration: see `keras.initializers.get`.
Initializer = Any
