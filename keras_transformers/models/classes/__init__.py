"""Defines the model classes that some families' builders make, with step-by-step decoding."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
