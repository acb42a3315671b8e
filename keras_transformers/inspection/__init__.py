"""What a model is made of, parameters and FLOPs by layer, and what it attends to."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__)
