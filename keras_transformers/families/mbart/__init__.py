"""mBART and mBART-50, BART for many languages (Liu et al. 2020, Tang et al. 2020)."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
