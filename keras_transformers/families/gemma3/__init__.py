"""Gemma 3 (Gemma team 2025), the models of texts."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
