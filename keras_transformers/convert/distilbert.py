"""Converts DistilBERT weights from and to Hugging Face's safetensors."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers.convert import bert
from keras_transformers.convert.config_map import ConfigMap, arguments_of, label_fields
from keras_transformers.convert.families import Family, Writer, encoder_classes
from keras_transformers.convert.name_map import NameMap
from keras_transformers.convert.tensors import (
    assign,
    drop_copies,
    read_safetensors,
    write_safetensors,
)
from keras_transformers.models.encoders.distilbert import MODELS, distilbert, with_pooler

__all__ = [
    "load_distilbert",
    "read_distilbert_config",
    "save_distilbert",
    "save_distilbert_config",
]

_NAMES = NameMap(
    family="DistilBERT",
    embeddings={
        "token_embedding": "distilbert.embeddings.word_embeddings.weight",
        "position_embedding": "distilbert.embeddings.position_embeddings.weight",
    },
    modules={
        "embeddings_norm": "distilbert.embeddings.LayerNorm",
        "pooler": "pre_classifier",
        "masked_lm_dense": "vocab_transform",
        "masked_lm_norm": "vocab_layer_norm",
        "logits": "classifier",
        "score_dense": "classifier",
        "span_logits": "qa_outputs",
    },
    biases={"mask_logits": "vocab_projector.bias"},
    layers="distilbert.transformer.layer",
    parts={
        "self_attention/query": "attention.q_lin",
        "self_attention/key": "attention.k_lin",
        "self_attention/value": "attention.v_lin",
        "self_attention/output": "attention.out_lin",
        "self_attention_norm": "sa_layer_norm",
        "feed_forward/intermediate": "ffn.lin1",
        "feed_forward/output": "ffn.lin2",
        "feed_forward_norm": "output_layer_norm",
    },
)
_CONFIG = ConfigMap(
    "distilbert",
    required={
        "vocabulary_size": "vocab_size",
        "num_layers": "n_layers",
        "num_heads": "n_heads",
        "hidden_dim": "dim",
        "intermediate_dim": "hidden_dim",
        "max_sequence_length": "max_position_embeddings",
    },
    optional={
        "dropout": ("dropout", 0.1),
        "attention_dropout": ("attention_dropout", 0.1),
        "initializer_range": ("initializer_range", 0.02),
    },
    activation=("activation", "gelu"),
    fixed={"sinusoidal_pos_embds": False},
)
_PARTS = ("vocab_*", "pre_classifier.*", "classifier.*", "qa_outputs.*")
# A copy of the tied weights that some files also contain.
_TIED = {"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"}


def read_distilbert_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads Hugging Face's `config.json` as arguments of `models.encoders.distilbert.distilbert`.

    Args:
        path: the file or its folder.

    Returns:
        Keyword arguments that build the encoder it describes.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not JSON, does not describe a DistilBERT, lacks a field, or needs
            something that these layers lack (sinusoidal positions, another activation).

    Example:
        encoder = distilbert(**read_distilbert_config("distilbert-base-uncased"))
    """
    return _CONFIG.read(path)


def load_distilbert(
    model: keras.Model, path: str | os.PathLike[str], *, ignore: Iterable[str] = ()
) -> list[str]:
    """Loads Hugging Face's DistilBERT weights into an encoder, with or without heads.

    Unless every tensor is used or matches `ignore`, loading fails and the model is unchanged.

    Args:
        model: a model from `keras_transformers.models.encoders.distilbert` or `heads`.
        path: a `.safetensors` file, or a folder with `model.safetensors`.
        ignore: wildcards of tensors to leave out, such as "vocab_*".

    Returns:
        The names of the tensors that `ignore` left out.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is unreadable; tensors are missing, left over or of another shape (the
            message lists them all); or a copy of a tied weight differs from it.
    """
    tensors = _tensors(path)
    return assign(_NAMES.variables(model), tensors, source=str(path), ignore=ignore)


def save_distilbert(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Writes a DistilBERT model's weights under Hugging Face's names, for `from_pretrained`.

    Args:
        model: a model from `keras_transformers.models.encoders.distilbert` or `heads`.
        path: the `.safetensors` file to write.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: Hugging Face's DistilBERT has no counterpart of a layer.
    """
    write_safetensors(_NAMES.variables(model), path)


def save_distilbert_config(
    model: keras.Model, path: str | os.PathLike[str], *, labels: Sequence[str] | None = None
) -> None:
    """Writes a DistilBERT's shape as Hugging Face's `config.json`, to go with `save_distilbert`.

    Args:
        model: a model from `keras_transformers.models.encoders.distilbert` or `heads`.
        path: the file to write.
        labels: the name of each class of a classifier's or tagger's head, in the order of its
            logits; "LABEL_0" and so on by default.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: the model is not a DistilBERT or has another number of classes, or Hugging Face
            has no name for its activation.
    """
    arguments = arguments_of(model, "DistilBERT", _NAMES.embeddings)
    if "num_segments" in arguments:
        raise ValueError(f"model {model.name!r} is not a DistilBERT")
    _CONFIG.write(arguments, path, **label_fields(model, labels))


def _tensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Reads the tensors of a file under today's names, tied ones once."""
    own = ("embeddings.", "transformer.")  # DistilBertModel saves without a prefix
    tensors = {
        f"distilbert.{name}" if name.startswith(own) else name: tensor
        for name, tensor in read_safetensors(path).items()
    }
    drop_copies(tensors, _TIED, source=str(path))
    return tensors


def _load(folder: Path, dropout: float) -> keras.Model:
    rates = {"dropout": dropout, "attention_dropout": dropout}
    encoder = distilbert(**(read_distilbert_config(folder) | rates))
    load_distilbert(encoder, folder, ignore=_PARTS)
    return with_pooler(encoder)


def _build(**arguments: Any) -> keras.Model:
    return with_pooler(distilbert(**arguments))


def _tokenizer(path: Path, lowercase: bool) -> Any:
    # Imported here because it needs TensorFlow, which the weights do not.
    from keras_transformers.tokenizers.wordpiece import WordPieceTokenizer

    return WordPieceTokenizer(path / "vocab.txt" if path.is_dir() else path, lowercase=lowercase)


FAMILY = Family(
    "distilbert",
    MODELS,
    _load,
    _tokenizer,
    read=read_distilbert_config,
    build=_build,
    fill=load_distilbert,
    parts=_PARTS,
    writers=(
        Writer(
            _NAMES.fits,
            encoder_classes("DistilBert"),
            save_distilbert,
            save_distilbert_config,
            tokenizer="WordPieceTokenizer",
            tokenizer_class="DistilBertTokenizer",
            special_tokens=bert.SPECIAL_TOKENS,
        ),
    ),
)
