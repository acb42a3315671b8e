"""Runs jobs of independent tasks on files: on this machine, or on Apache Beam."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
