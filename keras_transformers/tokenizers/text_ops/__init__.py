"""Holds the ops that read words and sentences, tensorflow-text's or TensorFlow's own."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
