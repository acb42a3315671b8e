"""Sends requests to a model server over REST or gRPC; REST needs no TensorFlow."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__, extra="serving")
