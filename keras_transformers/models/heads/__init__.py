"""What goes on top of an encoder: each head extends the encoder's own graph with a task's layers.

A head makes a new functional model that shares the encoder's layers and weights, flat: every layer
of the encoder keeps its name, so that weights load and parameters count the same way with and
without a head. Where an encoder came with trained weights they are used as they are.
"""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__)
