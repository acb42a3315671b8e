"""Reads and writes weights in the formats of other libraries."""

from keras_transformers.rooms import open_room

SHOWS = (
    "convert.containers.*",
    "convert.formats.*",
    "families.*.files",
    "families.*.google",
    "tasks.weights.encoders",
    "tasks.pretraining.weights",
)
MODULES = ("families.*.files",)
__getattr__, __dir__ = open_room(__name__, __file__)
