"""Reads files with errors that name the line, and writes them completely or not at all."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
