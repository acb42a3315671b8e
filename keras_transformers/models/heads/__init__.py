"""Builds models for tasks, by adding a head to an encoder.

A head extends the encoder's graph with the task's layers. The new functional model shares the
encoder's layers and weights and is flat: the encoder's layers keep their names, so loading weights
and counting parameters work the same with and without a head.
"""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
