"""Converts MPNet weights from and to Hugging Face's safetensors."""

import functools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers.convert import roberta
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
from keras_transformers.models.encoders.mpnet import FIRST_POSITION, MODELS, NUM_BUCKETS, mpnet

__all__ = ["load_mpnet", "read_mpnet_config", "save_mpnet", "save_mpnet_config"]

_NAMES = NameMap(
    family="MPNet",
    embeddings={
        "token_embedding": "mpnet.embeddings.word_embeddings.weight",
        "position_embedding": "mpnet.embeddings.position_embeddings.weight",
        "relative_position_bias": "mpnet.encoder.relative_attention_bias.weight",
    },
    modules={
        "pooler": "mpnet.pooler.dense",
        "embeddings_norm": "mpnet.embeddings.LayerNorm",
        "masked_lm_dense": "lm_head.dense",
        "masked_lm_norm": "lm_head.layer_norm",
        "logits": "classifier",
        "score_dense": "classifier",
        "span_logits": "qa_outputs",
    },
    biases={"mask_logits": "lm_head.bias"},
    layers="mpnet.encoder.layer",
    parts={
        "self_attention/query": "attention.attn.q",
        "self_attention/key": "attention.attn.k",
        "self_attention/value": "attention.attn.v",
        "self_attention/output": "attention.attn.o",
        "self_attention_norm": "attention.LayerNorm",
        "feed_forward/intermediate": "intermediate.dense",
        "feed_forward/output": "output.dense",
        "feed_forward_norm": "output.LayerNorm",
    },
)
_CONFIG = ConfigMap(
    "mpnet",
    required=roberta.CONFIG.required,
    optional=roberta.CONFIG.optional,
    fixed={
        "pad_token_id": FIRST_POSITION - 1,
        "relative_attention_num_buckets": NUM_BUCKETS,
    },
)
_TOKENS = "mpnet.embeddings.word_embeddings.weight"
# Copies of tied weights that some files also contain.
_TIED = {"lm_head.decoder.weight": _TOKENS, "lm_head.decoder.bias": "lm_head.bias"}
_BUFFERS = ("mpnet.embeddings.position_ids",)
_HEADS = ("lm_head.*", "classifier.*", "qa_outputs.*")


def read_mpnet_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads Hugging Face's `config.json` as arguments of `models.encoders.mpnet.mpnet`.

    Args:
        path: the file or its folder.

    Returns:
        Keyword arguments that build the encoder it describes.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not JSON, does not describe an MPNet, lacks a field, or needs
            something that these layers lack (another number of buckets, activation or padding).

    Example:
        encoder = mpnet(**read_mpnet_config("mpnet-base"))
    """
    return roberta.read_arguments(_CONFIG, path)


def load_mpnet(
    model: keras.Model, path: str | os.PathLike[str], *, ignore: Iterable[str] = ()
) -> list[str]:
    """Loads Hugging Face's MPNet weights into an encoder, with or without heads.

    Unless every tensor is used or matches `ignore`, loading fails and the model is unchanged.

    Args:
        model: a model from `keras_transformers.models.encoders.mpnet` or `heads`.
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


def save_mpnet(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Writes an MPNet model's weights under Hugging Face's names, for `from_pretrained`.

    Args:
        model: a model from `keras_transformers.models.encoders.mpnet` or `heads`.
        path: the `.safetensors` file to write.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: Hugging Face's MPNet has no counterpart of a layer.
    """
    write_safetensors(with_sequence_head(_NAMES, model).variables(model), path)


def save_mpnet_config(
    model: keras.Model, path: str | os.PathLike[str], *, labels: Sequence[str] | None = None
) -> None:
    """Writes an MPNet's shape as Hugging Face's `config.json`, to go with `save_mpnet`.

    Args:
        model: a model from `keras_transformers.models.encoders.mpnet` or `heads`.
        path: the file to write.
        labels: the name of each class of a classifier's or tagger's head, in the order of its
            logits; "LABEL_0" and so on by default.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: the model is not an MPNet or has another number of classes, or Hugging Face has
            no name for its activation.
    """
    arguments = arguments_of(model, "MPNet", _NAMES.embeddings)
    arguments["max_sequence_length"] += FIRST_POSITION
    fields = label_fields(model, labels)
    _CONFIG.write(arguments, path, bos_token_id=0, eos_token_id=2, **fields)


def _tensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Reads the tensors of a file under today's names, tied ones once."""
    own = ("embeddings.", "encoder.", "pooler.")  # MPNetModel saves without a prefix
    tensors = {
        f"mpnet.{name}" if name.startswith(own) else name: tensor
        for name, tensor in read_safetensors(path).items()
    }
    drop_copies(tensors, _TIED, source=str(path))
    return tensors


def _load(folder: Path, dropout: float) -> keras.Model:
    rates = {"dropout": dropout, "attention_dropout": dropout}
    encoder = mpnet(**(read_mpnet_config(folder) | rates))
    load_mpnet(without_missing_pooler(encoder, folder), folder, ignore=_HEADS)
    return encoder


def _tokenizer(path: Path, lowercase: bool) -> Any:
    # Imported here because it needs TensorFlow, which the weights do not.
    from keras_transformers.tokenizers.mpnet import MPNetTokenizer

    return MPNetTokenizer(path / "vocab.txt" if path.is_dir() else path, lowercase=lowercase)


FAMILY = Family(
    "mpnet",
    MODELS,
    _load,
    _tokenizer,
    read=read_mpnet_config,
    build=mpnet,
    fill=load_mpnet,
    parts=("mpnet.pooler.*", *_HEADS),
    masked_lm_activation="gelu",  # whatever the encoder's
    writers=(
        Writer(
            functools.partial(_NAMES.fits, first_position=FIRST_POSITION),
            encoder_classes("MPNet"),
            save_mpnet,
            save_mpnet_config,
            tokenizer="MPNetTokenizer",
            tokenizer_class="MPNetTokenizer",
            special_tokens=roberta.SPECIAL_TOKENS,
            tokenizer_fields=roberta.tokenizer_fields,
        ),
    ),
)
