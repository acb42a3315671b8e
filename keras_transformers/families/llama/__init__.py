"""Llama (Touvron et al. 2023) and the sizes built like it."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
