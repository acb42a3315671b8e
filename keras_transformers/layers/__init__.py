"""Provides the models' layers, which use only `keras.ops` and run on every backend.

Importing this package imports all its modules, so that Keras knows the classes of a saved model.
"""

import importlib
import pkgutil

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__, __file__)

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
