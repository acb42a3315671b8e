"""Weights from and to other people's formats, one module a format."""

from keras_transformers.convert.bert import load_bert, read_bert_config, save_bert, save_bert_config

__all__ = ["load_bert", "read_bert_config", "save_bert", "save_bert_config"]
