"""Pipelines from and to folders: this library's own format and other people's."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
