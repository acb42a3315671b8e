"""Implements the local server: loads and swaps versions, batches and answers requests."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__, extra="serving")
