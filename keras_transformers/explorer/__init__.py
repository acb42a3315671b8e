"""A local page in the browser that shows what a model reads, attends to, weighs and answers."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__, extra="serving")
