"""Weights from and to other people's formats, one module a format."""

from keras_transformers.convert.bert import load_bert, read_bert_config, save_bert, save_bert_config
from keras_transformers.convert.elmo import load_elmo, read_elmo_options

__all__ = [
    "load_bert",
    "load_elmo",
    "read_bert_config",
    "read_elmo_options",
    "save_bert",
    "save_bert_config",
]
