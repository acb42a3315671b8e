"""Logs runs to other software, besides the files in their folders."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
