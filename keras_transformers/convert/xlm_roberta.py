"""Converts XLM-RoBERTa weights from and to Hugging Face's safetensors.

The tensors have RoBERTa's names; configuration and tokenizer differ.
"""

import dataclasses
import functools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert import roberta
from keras_transformers.convert.families import Family, Writer, encoder_classes
from keras_transformers.models.encoders import roberta as roberta_model
from keras_transformers.models.encoders.xlm_roberta import MODELS

__all__ = [
    "load_xlm_roberta",
    "read_xlm_roberta_config",
    "save_xlm_roberta",
    "save_xlm_roberta_config",
]

_CONFIG = dataclasses.replace(roberta.CONFIG, model_type="xlm-roberta")


def read_xlm_roberta_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads Hugging Face's `config.json` as arguments of `models.encoders.roberta.roberta`.

    Args:
        path: the file or its folder.

    Returns:
        Keyword arguments that build the encoder it describes.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not JSON, does not describe an XLM-RoBERTa, lacks a field, or needs
            something that these layers lack; see `convert.read_roberta_config`.

    Example:
        encoder = roberta(**read_xlm_roberta_config("xlm-roberta-base"))
    """
    return roberta.read_arguments(_CONFIG, path)


def load_xlm_roberta(
    model: keras.Model, path: str | os.PathLike[str], *, ignore: Iterable[str] = ()
) -> list[str]:
    """Loads Hugging Face's XLM-RoBERTa weights into an encoder; see `convert.load_roberta`."""
    return roberta.load_roberta(model, path, ignore=ignore)


def save_xlm_roberta(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Writes a model's weights under Hugging Face's names; see `convert.save_roberta`."""
    roberta.save_roberta(model, path)


def save_xlm_roberta_config(
    model: keras.Model, path: str | os.PathLike[str], *, labels: Sequence[str] | None = None
) -> None:
    """Writes a model's shape as Hugging Face's `config.json`, to go with `save_xlm_roberta`.

    Args:
        model: a model from `keras_transformers.models.encoders.roberta` or `heads`.
        path: the file to write.
        labels: the name of each class of a classifier's or tagger's head, in the order of its
            logits; "LABEL_0" and so on by default.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: the model is not a RoBERTa or has another number of classes, or Hugging Face has
            no name for its activation.
    """
    roberta.write_arguments(_CONFIG, model, path, labels)


def _tokenizer(path: Path, lowercase: bool) -> Any:
    # Imported here because it needs TensorFlow, which the weights do not.
    from keras_transformers.tokenizers.sentence_pieces.xlm_roberta import XlmRobertaTokenizer

    return XlmRobertaTokenizer(path)


FAMILY = Family(
    "xlm-roberta",
    MODELS,
    functools.partial(roberta.read_encoder, _CONFIG),
    _tokenizer,
    read=read_xlm_roberta_config,
    build=roberta_model.roberta,
    fill=load_xlm_roberta,
    parts=roberta.PARTS,
    masked_lm_activation="gelu",  # whatever the encoder's
    writers=(
        Writer(
            roberta.recognises,
            encoder_classes("XLMRoberta"),
            save_xlm_roberta,
            save_xlm_roberta_config,
            tokenizer="XlmRobertaTokenizer",
            tokenizer_class="XLMRobertaTokenizer",
            special_tokens=roberta.SPECIAL_TOKENS,
            tokenizer_fields=roberta.tokenizer_fields,
        ),
    ),
)
