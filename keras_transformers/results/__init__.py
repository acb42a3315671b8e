"""Shows the types of the answers that pipelines, exports and a server's client return."""

from keras_transformers.rooms import open_room

# Modules whose public names this room shows; their own folders are not in it.
SHOWS = (
    "tasks.*.answer",
    "tasks.answers",
)
__getattr__, __dir__ = open_room(__name__, __file__)
