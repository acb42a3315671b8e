"""The local server, which loads and swaps versions, batches requests and answers them."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__, extra="serving")
