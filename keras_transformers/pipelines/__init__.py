"""Combines models with their text processing: strings in, answers out, all in the graph."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
