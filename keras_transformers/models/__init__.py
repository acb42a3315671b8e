"""Builds the model families, one per file, and the heads that go on top of any encoder.

Importing this package imports the models' classes and layers, so that Keras knows those of a saved
model.
"""

import keras_transformers.models.classes  # noqa: F401
from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
