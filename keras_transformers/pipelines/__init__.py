"""Shows the pipelines of all tasks, their answers, `load` and `save`."""

from keras_transformers.rooms import open_room

SHOWS = (
    "tasks.*.pipeline",
    "tasks.pipeline",
    "tasks.*.answer",
    "tasks.answers",
    "tasks.weights.loading",
    "tasks.weights.writing",
)
MODULES = ("results",)
__getattr__, __dir__ = open_room(__name__, __file__)
