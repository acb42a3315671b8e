"""Where old files look for a `DecoderLayer`."""

from keras_transformers.layers.old_files import DecoderLayer as DecoderLayer
