"""Converts RoBERTa weights from and to Hugging Face's safetensors."""

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers.convert import bert
from keras_transformers.convert.config_map import ConfigMap, arguments_of, label_fields
from keras_transformers.convert.families import (
    Family,
    Writer,
    encoder_classes,
    without_missing_pooler,
)
from keras_transformers.convert.name_map import NameMap, with_sequence_head
from keras_transformers.convert.tensors import (
    assign,
    drop_copies,
    read_safetensors,
    write_safetensors,
)
from keras_transformers.models.encoders.roberta import FIRST_POSITION, MODELS, roberta

__all__ = ["load_roberta", "read_roberta_config", "save_roberta", "save_roberta_config"]

_NAMES = NameMap(
    family="RoBERTa",
    embeddings={
        "token_embedding": "roberta.embeddings.word_embeddings.weight",
        "position_embedding": "roberta.embeddings.position_embeddings.weight",
        "segment_embedding": "roberta.embeddings.token_type_embeddings.weight",
    },
    modules={
        "pooler": "roberta.pooler.dense",
        "embeddings_norm": "roberta.embeddings.LayerNorm",
        "masked_lm_dense": "lm_head.dense",
        "masked_lm_norm": "lm_head.layer_norm",
        "logits": "classifier",
        "score_dense": "classifier",
        "span_logits": "qa_outputs",
    },
    biases={"mask_logits": "lm_head.bias"},
    layers="roberta.encoder.layer",
    parts=bert.NAMES.parts,
)
CONFIG = ConfigMap(
    "roberta",
    required=bert.CONFIG.required,
    optional={
        ours: theirs for ours, theirs in bert.CONFIG.optional.items() if ours != "num_segments"
    },
    fixed={**bert.CONFIG.fixed, "type_vocab_size": 1, "pad_token_id": FIRST_POSITION - 1},
)
# The fields of `tokenizer_config.json` that name its special tokens.
SPECIAL_TOKENS = ("bos_token", "eos_token", *bert.SPECIAL_TOKENS)
_TOKENS = "roberta.embeddings.word_embeddings.weight"
# Copies of tied weights that some files also contain.
_TIED = {"lm_head.decoder.weight": _TOKENS, "lm_head.decoder.bias": "lm_head.bias"}
_BUFFERS = ("roberta.embeddings.position_ids",)
_HEADS = ("lm_head.*", "classifier.*", "qa_outputs.*")
PARTS = ("roberta.pooler.*", *_HEADS)


def read_roberta_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads Hugging Face's `config.json` as arguments of `models.encoders.roberta.roberta`.

    Args:
        path: the file or its folder.

    Returns:
        Keyword arguments that build the encoder it describes.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not JSON, does not describe a RoBERTa, lacks a field, or needs
            something that these layers lack (relative positions, several segments, a decoder,
            another activation or padding).

    Example:
        encoder = roberta(**read_roberta_config("roberta-base"))
    """
    return read_arguments(CONFIG, path)


def load_roberta(
    model: keras.Model, path: str | os.PathLike[str], *, ignore: Iterable[str] = ()
) -> list[str]:
    """Loads Hugging Face's RoBERTa weights into an encoder, with or without heads.

    Unless every tensor is used or matches `ignore`, loading fails and the model is unchanged.

    Args:
        model: a model from `keras_transformers.models.encoders.roberta` or `heads`.
        path: a `.safetensors` file, or a folder with `model.safetensors`.
        ignore: wildcards of tensors to leave out, such as "lm_head.*".

    Returns:
        The names of the tensors that `ignore` left out.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is unreadable; tensors are missing, left over or of another shape (the
            message lists them all); or a copy of a tied weight differs from it.
    """
    return assign(
        with_sequence_head(_NAMES, model).variables(model),
        _tensors(path),
        source=str(path),
        ignore=ignore,
        buffers=_BUFFERS,
    )


def save_roberta(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Writes a RoBERTa model's weights under Hugging Face's names, for `from_pretrained`.

    Args:
        model: a model from `keras_transformers.models.encoders.roberta` or `heads`.
        path: the `.safetensors` file to write.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: Hugging Face's RoBERTa has no counterpart of a layer.
    """
    write_safetensors(with_sequence_head(_NAMES, model).variables(model), path)


def save_roberta_config(
    model: keras.Model, path: str | os.PathLike[str], *, labels: Sequence[str] | None = None
) -> None:
    """Writes a RoBERTa's shape as Hugging Face's `config.json`, to go with `save_roberta`.

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
    write_arguments(CONFIG, model, path, labels)


def read_arguments(config: ConfigMap, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a `config.json` of a family that counts positions from 2, as RoBERTa does."""
    arguments = config.read(path)
    rows = arguments["max_sequence_length"]
    if rows <= FIRST_POSITION:
        raise ValueError(
            f"{path}: max_position_embeddings={rows!r}; give an integer above {FIRST_POSITION}, "
            "because the first rows stand for no position"
        )
    return {**arguments, "max_sequence_length": rows - FIRST_POSITION}


def write_arguments(
    config: ConfigMap,
    model: keras.Model,
    path: str | os.PathLike[str],
    labels: Sequence[str] | None,
) -> None:
    """Writes a `config.json` of a family with RoBERTa's layers."""
    arguments = arguments_of(model, _NAMES.family, _NAMES.embeddings)
    if model.get_layer("position_embedding").first_position != FIRST_POSITION:
        raise ValueError(f"model {model.name!r} is not a RoBERTa")
    arguments["max_sequence_length"] += FIRST_POSITION
    fields = label_fields(model, labels)
    config.write(arguments, path, bos_token_id=0, eos_token_id=2, **fields)


def recognises(model: keras.Model) -> bool:
    """Returns whether a model has the layers of RoBERTa, which XLM-RoBERTa shares."""
    return _NAMES.fits(model, first_position=FIRST_POSITION)


def tokenizer_fields(tokenizers: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the mask token with its habit of taking the spaces before it.

    Raises:
        ValueError: padding has another id than the one from which transformers counts positions.
    """
    tokenizer = tokenizers["tokenizer"]
    pad, wanted = tokenizer.pad_token_id, FIRST_POSITION - 1
    if pad != wanted:
        raise ValueError(
            f"{tokenizer.vocabulary[pad]!r} has the id {pad} in this vocabulary; in transformers, "
            f"whichever token has the id {wanted} takes no position, so padding must have it: save "
            "in the format 'keras_transformers', or train with a vocabulary in fairseq's order, "
            "<s> <pad> </s> <unk> first"
        )
    added = {"__type": "AddedToken", "content": tokenizer.mask_token, "lstrip": True}
    return {"mask_token": {**added, "normalized": False, "rstrip": False, "single_word": False}}


def _tensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Reads the tensors of a file under today's names, tied ones once."""
    own = ("embeddings.", "encoder.", "pooler.")  # RobertaModel saves without a prefix
    tensors = {
        f"roberta.{name}" if name.startswith(own) else name: tensor
        for name, tensor in read_safetensors(path).items()
    }
    drop_copies(tensors, _TIED, source=str(path))
    return tensors


def read_encoder(config: ConfigMap, folder: Path, dropout: float) -> keras.Model:
    """Reads a folder of a family with RoBERTa's layers, without its head."""
    rates = {"dropout": dropout, "attention_dropout": dropout}
    encoder = roberta(**(read_arguments(config, folder) | rates))
    load_roberta(without_missing_pooler(encoder, folder), folder, ignore=_HEADS)
    return encoder


def _tokenizer(path: Path, lowercase: bool) -> Any:
    # Imported here because it needs TensorFlow, which the weights do not.
    from keras_transformers.tokenizers.byte_pairs.roberta import RobertaTokenizer

    return RobertaTokenizer(path)


FAMILY = Family(
    "roberta",
    MODELS,
    functools.partial(read_encoder, CONFIG),
    _tokenizer,
    read=read_roberta_config,
    build=roberta,
    fill=load_roberta,
    parts=PARTS,
    masked_lm_activation="gelu",  # whatever the encoder's
    writers=(
        Writer(
            recognises,
            encoder_classes("Roberta"),
            save_roberta,
            save_roberta_config,
            tokenizer="RobertaTokenizer",
            tokenizer_class="RobertaTokenizer",
            special_tokens=SPECIAL_TOKENS,
            tokenizer_fields=tokenizer_fields,
        ),
    ),
)
