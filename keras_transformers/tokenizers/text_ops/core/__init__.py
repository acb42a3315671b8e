"""Implements WordPiece and SentencePiece with TensorFlow's own ops, on constants."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
