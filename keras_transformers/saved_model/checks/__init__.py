"""Checks that an export does what it says: its own examples, other requests, its operations."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
