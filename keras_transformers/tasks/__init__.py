"""The tasks, a folder each: its answer, head, pipeline and training.

A folder is found by being here; `registry` says by which constants. The guide "Add a task" shows
how to write one.
"""

from keras_transformers.rooms import open_room

# Modules whose public names this room shows; their own folders are not in it.
SHOWS = (
    "tasks.answers",
    "tasks.task",
    "tasks.training",
    "tasks.pipeline",
    "tasks.*.training",
    "tasks.few_shot",
)
__getattr__, __dir__ = open_room(__name__, __file__)
