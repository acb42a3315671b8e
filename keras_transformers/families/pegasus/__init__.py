"""PEGASUS (Zhang et al. 2019)."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
