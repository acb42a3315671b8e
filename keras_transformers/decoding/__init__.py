"""Generates text from a model, one token at a time: greedy search, beam search, sampling.

A search knows nothing about the model. It calls a step function, which feeds one token per row and
returns the logits of the next, and passes the step's cache along; see `decoding.step`.
"""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
