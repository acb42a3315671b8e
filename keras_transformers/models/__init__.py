"""What the families share: named models, anatomy, and model classes that decode.

It also shows the families' models by their names, as in `models.vit.vit`, and the heads. Importing
it imports the models' classes and layers, so that Keras knows those of a saved model.
"""

import sys

import keras_transformers.models.classes  # noqa: F401
from keras_transformers.rooms import open_room

# Modules whose public names this room shows.
SHOWS = ("families.*.shrinking", "families.*.from_encoder", "tasks.*.head", "models.packing")
# Modules that it shows by their own or their family's name.
MODULES = ("families.*.model", "heads")
__getattr__, __dir__ = open_room(__name__, __file__)
# Where 1.0.0 showed some of the families' models.
encoders = encoder_decoders = sys.modules[__name__]
