"""Implements TF Serving's protocol: its JSON, messages, rules for requests, and errors."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__, extra="serving")
