"""Defines the types of the answers that pipelines, exports run here and a server's client return.

A task's file has the type of its answer and `ANSWER`, which says how to make one from a graph's
outputs. `texts` makes a graph's inputs. Nothing here needs TensorFlow.
"""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
