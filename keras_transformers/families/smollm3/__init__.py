"""SmolLM3 (Bakouch et al. 2025)."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
