"""Names the types of what layers take and return."""

from typing import Any

__all__: list[str] = []

# A tensor of Keras' backend, or a keras.KerasTensor while a model is built: each backend has its
# own class, and TensorFlow has no types, so this says what a value is to readers alone.
Tensor = Any

# The length of each axis, None where it is unknown.
Shape = tuple[int | None, ...]
