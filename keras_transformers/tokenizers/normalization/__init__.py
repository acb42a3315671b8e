"""Builds BERT's text normalization as a table for tensorflow_text."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
