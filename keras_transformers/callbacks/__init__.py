"""Shows the callbacks of `fit` that log a training to other software."""

from keras_transformers.rooms import open_room

SHOWS = ("runs.tracking.mlflow",)
__getattr__, __dir__ = open_room(__name__, __file__)
