"""A pipeline as a SavedModel, and everything done with such a folder."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__)
