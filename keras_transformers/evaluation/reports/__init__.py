"""Reports on how a model answers a data set, one subject per file."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
