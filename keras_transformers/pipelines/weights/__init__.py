"""Loads and saves pipelines: this library's own format and those of others."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
