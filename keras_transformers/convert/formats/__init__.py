"""Detects and opens weights in other libraries' formats, one module per format."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
