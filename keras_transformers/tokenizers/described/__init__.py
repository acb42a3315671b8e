"""Tokenization as a tokenizer.json describes it: normalizers, splitters and added tokens."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
