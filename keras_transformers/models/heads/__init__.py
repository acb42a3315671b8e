"""Heads: each builds a task's model on top of an encoder.

A head extends the encoder's graph with the task's layers. The new functional model shares the
encoder's layers and weights and is flat: every layer of the encoder keeps its name, so weights load
and parameters count the same with and without a head.
"""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__)
