"""Byte-level byte pairs: vocabulary files, how they cut words, and the tokenizers on them."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__)
