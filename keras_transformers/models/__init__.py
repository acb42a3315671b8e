"""Builds the model families, one per file, and the heads that go on top of any encoder."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
