"""Static vectors (Model2Vec): one vector per token, looked up in a table."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
