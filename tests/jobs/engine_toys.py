"""SavedModels of plain functions, and what pretraining data is made of."""

from pathlib import Path

import tensorflow as tf

from keras_transformers.data.pretraining import PretrainingOptions
from keras_transformers.jobs import places
from keras_transformers.tokenizers.vocabulary import SPECIAL_TOKENS

VOCABULARY = [*SPECIAL_TOKENS, *"abcdefghij"]
OPTIONS = PretrainingOptions(
    max_sequence_length=32, max_predictions=6, dupe_factor=2, num_shards=3, seed=7
)


def export(folder: Path, **functions) -> Path:
    """Writes a SavedModel of functions by signature name."""
    tf.saved_model.save(tf.Module(), str(folder), signatures=functions)
    return folder


def contents(place: Path | str) -> dict[str, bytes]:
    """Returns the files in a folder, by path or URL: name -> bytes."""
    found = {}
    for name in places.names(str(place)):
        with places.fetched(f"{place}/{name}") as path:
            found[name] = path.read_bytes()
    return found
