"""DeBERTa v2 and v3 (He et al. 2021)."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
