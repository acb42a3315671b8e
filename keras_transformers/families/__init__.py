"""The model families, a folder each: its model, its files in other formats, its tokenizer.

A folder is found by being here; `registry` says by which constants. The tutorial "Add a model
family" shows how to write one.
"""

from keras_transformers.rooms import open_room

# Modules whose public names this room shows; their own folders are not in it.
SHOWS = ()
__getattr__, __dir__ = open_room(__name__, __file__)
