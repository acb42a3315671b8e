"""Trains and measures a pipeline in one call: `fit` and `evaluate`."""

from keras_transformers.rooms import open_room

SHOWS = (
    "tasks.training",
    "tasks.few_shot",
    "tasks.lora",
    "tasks.embedding.searching",
    "tasks.embedding.static",
)
__getattr__, __dir__ = open_room(__name__, __file__)
