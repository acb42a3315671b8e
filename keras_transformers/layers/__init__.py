"""The layers that the models are made of. They use `keras.ops` only and run on every backend."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__)
