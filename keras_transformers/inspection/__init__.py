"""Counts a model's parameters and FLOPs layer by layer, and draws its attention."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
