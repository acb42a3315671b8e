"""Names values that have no type for a checker, so that a signature still says what they are."""

from typing import Any

# Of Keras' backend, or a keras.KerasTensor while a model is built: neither has complete types.
Tensor = Any
Json = Any  # None, a bool, a number, a string, or a list or a dict of these
Message = Any  # a message of protobuf, whose classes are made at run time
