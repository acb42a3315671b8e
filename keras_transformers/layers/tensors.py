"""Names the types of what layers take and return."""

from typing import Any

__all__: list[str] = []

# A tensor of Keras' backend, or a keras.KerasTensor while a model is built. TensorFlow and Keras
# have no complete types, so this tells the reader what a value is, and a checker nothing.
Tensor = Any

Shape = tuple[Any, ...]  # the length of each axis; None where it is unknown

# An object, a name such as "glorot_uniform", or a configuration: see `keras.initializers.get`.
Initializer = Any
