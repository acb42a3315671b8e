"""Shows the heads of all tasks, and what they share."""

from keras_transformers.rooms import open_room

# Modules whose public names this room shows; their own folders are not in it.
SHOWS = (
    "tasks.*.head",
    "models.packing",
)
MODULES = ("models.features",)
__getattr__, __dir__ = open_room(__name__, __file__)
