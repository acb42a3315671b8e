"""Phi-3 (Abdin et al. 2024)."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
