"""Keeps `EncoderLayer` where old files expect it."""

from keras_transformers.layers.old_files import EncoderLayer as EncoderLayer
