"""Keeps `DecoderLayer` where old files expect it."""

from keras_transformers.layers.old_files import DecoderLayer as DecoderLayer
