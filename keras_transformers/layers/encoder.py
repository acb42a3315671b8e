"""Where old files look for an `EncoderLayer`."""

from keras_transformers.layers.old_files import EncoderLayer as EncoderLayer
