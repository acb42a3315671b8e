"""Implements the parts of a tokenizer.json: normalizers, splitters and added tokens."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
