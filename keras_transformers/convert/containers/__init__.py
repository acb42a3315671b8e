"""Reads named arrays from files, one module per kind of file."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
