"""Reads tables of texts and labels: TSV, CSV, JSON Lines and Parquet."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)
