"""Weights from and to other people's formats, one module a format."""

from keras_transformers.convert.bert import load_bert, read_bert_config, save_bert, save_bert_config
from keras_transformers.convert.elmo import (
    load_elmo,
    read_elmo_options,
    save_elmo,
    save_elmo_options,
)
from keras_transformers.convert.gpt import load_gpt, read_gpt_config, save_gpt, save_gpt_config
from keras_transformers.convert.vit import load_vit, read_vit_config, save_vit

__all__ = [
    "load_bert",
    "load_elmo",
    "load_gpt",
    "load_vit",
    "read_bert_config",
    "read_elmo_options",
    "read_gpt_config",
    "read_vit_config",
    "save_bert",
    "save_bert_config",
    "save_elmo",
    "save_elmo_options",
    "save_gpt",
    "save_gpt_config",
    "save_vit",
]
