"""The layers that the models are made of. They use `keras.ops` only and run on every backend.

All modules are imported with the room: Keras finds the classes of a saved model only then.
"""

import importlib
import pkgutil

from keras_transformers.rooms import open_room

__getattr__, __dir__ = open_room(__name__)

for _found in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_found.name)
