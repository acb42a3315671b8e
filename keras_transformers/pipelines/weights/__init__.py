"""Makes pipelines of weights in other people's formats."""

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__)
