"""Converts BERT weights from and to Hugging Face's safetensors."""

import functools
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers.convert.config_map import ConfigMap, arguments_of, label_fields
from keras_transformers.convert.families import (
    Family,
    Writer,
    encoder_classes,
    without_missing_pooler,
)
from keras_transformers.convert.name_map import NameMap
from keras_transformers.convert.tensors import (
    assign,
    drop_copies,
    read_safetensors,
    write_safetensors,
)
from keras_transformers.models import heads
from keras_transformers.models.encoders.bert import MODELS, SIZES, bert

__all__ = [
    "bert_size",
    "load_bert",
    "load_pretrainer",
    "pretrained_size",
    "read_bert_config",
    "save_bert",
    "save_bert_config",
    "save_pretrainer",
]

# RoBERTa's files have most of these names and fields too.
NAMES = NameMap(
    family="BERT",
    embeddings={
        "token_embedding": "bert.embeddings.word_embeddings.weight",
        "position_embedding": "bert.embeddings.position_embeddings.weight",
        "segment_embedding": "bert.embeddings.token_type_embeddings.weight",
    },
    modules={
        "pooler": "bert.pooler.dense",
        "embeddings_norm": "bert.embeddings.LayerNorm",
        "masked_lm_dense": "cls.predictions.transform.dense",
        "masked_lm_norm": "cls.predictions.transform.LayerNorm",
        "next_sentence_logits": "cls.seq_relationship",
        "logits": "classifier",
        "score_dense": "classifier",
        "span_logits": "qa_outputs",
    },
    biases={"mask_logits": "cls.predictions.bias"},
    layers="bert.encoder.layer",
    parts={
        "self_attention/query": "attention.self.query",
        "self_attention/key": "attention.self.key",
        "self_attention/value": "attention.self.value",
        "self_attention/output": "attention.output.dense",
        "self_attention_norm": "attention.output.LayerNorm",
        "feed_forward/intermediate": "intermediate.dense",
        "feed_forward/output": "output.dense",
        "feed_forward_norm": "output.LayerNorm",
    },
)
CONFIG = ConfigMap(
    "bert",
    required={
        "vocabulary_size": "vocab_size",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "hidden_dim": "hidden_size",
        "intermediate_dim": "intermediate_size",
        "max_sequence_length": "max_position_embeddings",
    },
    optional={
        "num_segments": ("type_vocab_size", 2),
        "dropout": ("hidden_dropout_prob", 0.1),
        "attention_dropout": ("attention_probs_dropout_prob", 0.1),
        "norm_epsilon": ("layer_norm_eps", 1e-12),
        "initializer_range": ("initializer_range", 0.02),
    },
    fixed={
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
    },
)
# The fields of `tokenizer_config.json` that name its special tokens.
SPECIAL_TOKENS = ("unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_HEADS = ("cls.*", "classifier.*", "qa_outputs.*")
# Not a weight: old versions of transformers also saved 0, 1, 2, ...
_BUFFERS = ("bert.embeddings.position_ids",)
# Copies of tied weights that some files also contain.
_TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


def read_bert_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads Hugging Face's `config.json` as arguments of `models.encoders.bert.bert`.

    Args:
        path: the file or its folder.

    Returns:
        Keyword arguments that build the encoder it describes.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not JSON, does not describe a BERT, lacks a field, or needs something that
            these layers lack (relative positions, a decoder, another activation).

    Example:
        encoder = bert(**read_bert_config("minilm"))
    """
    return CONFIG.read(path)


def load_bert(
    model: keras.Model, path: str | os.PathLike[str], *, ignore: Iterable[str] = ()
) -> list[str]:
    """Loads Hugging Face's BERT weights into an encoder, with or without heads.

    It reads the files of BertModel, BertForPreTraining, BertForMaskedLM,
    BertForSequenceClassification and similar classes. Unless every tensor is used or matches
    `ignore`, loading fails and the model is unchanged.

    Args:
        model: a model from `keras_transformers.models.encoders.bert` or `heads`.
        path: a `.safetensors` file, or a folder with `model.safetensors`.
        ignore: wildcards of tensors to leave out, such as "cls.*" for the pretraining heads. Names
            start with "bert." here, even if they do not in the file.

    Returns:
        The names of the tensors that `ignore` left out.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is unreadable; tensors are missing, left over or of another shape (the
            message lists them all); or a copy of a tied weight differs from it.
    """
    tensors = {_modern(name): tensor for name, tensor in read_safetensors(path).items()}
    drop_copies(tensors, _TIED, source=str(path))
    return fill_bert(model, tensors, source=str(path), ignore=ignore)


def fill_bert(
    model: keras.Model, tensors: Mapping[str, np.ndarray], *, source: str, ignore: Iterable[str]
) -> list[str]:
    """Fills a model with tensors under today's names in Hugging Face's files; see `assign`."""
    variables = NAMES.variables(model)
    return assign(variables, tensors, source=source, ignore=ignore, buffers=_BUFFERS)


def save_bert(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Writes a BERT model's weights under Hugging Face's names, for `from_pretrained`.

    Args:
        model: a model from `keras_transformers.models.encoders.bert` or `heads`.
        path: the `.safetensors` file to write.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: Hugging Face's BERT has no counterpart of a layer.
    """
    write_safetensors(NAMES.variables(model), path)


def save_bert_config(
    model: keras.Model, path: str | os.PathLike[str], *, labels: Sequence[str] | None = None
) -> None:
    """Writes a BERT model's shape as Hugging Face's `config.json`, to go with `save_bert`.

    Args:
        model: a model from `keras_transformers.models.encoders.bert` or `heads`.
        path: the file to write.
        labels: the name of each class of a classifier's or tagger's head, in the order of its
            logits; "LABEL_0" and so on by default.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: the model is not a BERT or has another number of classes, or Hugging Face has no
            name for its activation.
    """
    arguments = arguments_of(model, "BERT", NAMES.embeddings)
    CONFIG.write(arguments, path, **label_fields(model, labels))


def bert_size(model: str) -> dict[str, Any]:
    """Returns a named BERT's shape as arguments of `bert`; ValueError for other names."""
    if model not in SIZES:
        raise ValueError(f"--model {model}: take one of {', '.join(SIZES)}")
    return dict(SIZES[model])


def pretrained_size(weights: Path, max_sequence_length: int) -> dict[str, Any]:
    """Returns a pretrained BERT's shape as arguments of `bert`.

    Raises:
        FileNotFoundError: the folder has no config.json.
        ValueError: it does not describe a BERT, or the BERT has too few positions.
    """
    found = read_bert_config(weights)
    if found["max_sequence_length"] < max_sequence_length:
        raise ValueError(
            f"{weights} has {found['max_sequence_length']} positions, but the examples have "
            f"{max_sequence_length} tokens: shorten the examples"
        )
    return found


def load_pretrainer(
    *,
    weights: Path | None = None,
    model: str = "bert_tiny",
    shape: Mapping[str, int | None] | None = None,
    vocabulary_size: int,
    max_sequence_length: int,
    dropout: float = 0.1,
    initializer_range: float = 0.02,
) -> keras.Model:
    """Loads or builds a BERT encoder with both pretraining heads.

    Args:
        weights: folder in Hugging Face's layout, with both heads, to continue from.
        model: without `weights`, a name from `keras-transformers list 'bert_*'`; its weights are
            random.
        shape: overrides that model's num_layers, num_heads and hidden_dim; None keeps a value.
        vocabulary_size: number of tokens.
        max_sequence_length: positions of a new model; a loaded one needs at least as many.
        dropout: rate in the encoder and its attention.
        initializer_range: standard deviation of a new encoder's matrices.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: the model is unknown, or the weights have another vocabulary or too few
            positions.
    """
    rates: dict[str, Any] = {"dropout": dropout, "attention_dropout": dropout}
    if weights:
        found = pretrained_size(weights, max_sequence_length)
        if found["vocabulary_size"] != vocabulary_size:
            raise ValueError(
                f"{weights} has {found['vocabulary_size']} tokens, but the vocabulary has "
                f"{vocabulary_size}: use the vocabulary that belongs to the weights"
            )
        loaded = heads.pretrainer(
            bert(**(found | rates)),
            activation=found["activation"],
            norm_epsilon=found["norm_epsilon"],
        )
        load_bert(loaded, weights)
        return loaded
    given: dict[str, Any] = {
        name: value for name, value in (shape or {}).items() if value is not None
    }
    encoder = bert(
        **(bert_size(model) | given),
        vocabulary_size=vocabulary_size,
        max_sequence_length=max_sequence_length,
        initializer_range=initializer_range,
        **rates,
    )
    return heads.pretrainer(encoder)


def save_pretrainer(model: keras.Model, folder: Path, vocabulary: Path) -> None:
    """Writes a BERT with both heads in Hugging Face's layout, for `load_encoder` and others.

    Args:
        model: a model from `load_pretrainer`.
        folder: folder for model.safetensors, config.json and vocab.txt.
        vocabulary: the vocabulary file to copy there.
    """
    folder.mkdir(exist_ok=True)
    save_bert(model, folder / "model.safetensors")
    save_bert_config(model, folder / "config.json")
    shutil.copyfile(vocabulary, folder / "vocab.txt")


def _modern(name: str) -> str:
    """Returns a tensor's name as today's BertForPreTraining writes it."""
    if name.startswith(("embeddings.", "encoder.", "pooler.")):  # BertModel saves no prefix
        name = f"bert.{name}"
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
        "LayerNorm.beta", "LayerNorm.bias"
    )


def _load(folder: Path, dropout: float) -> keras.Model:
    rates = {"dropout": dropout, "attention_dropout": dropout}
    encoder = bert(**(read_bert_config(folder) | rates))
    load_bert(without_missing_pooler(encoder, folder), folder, ignore=_HEADS)
    return encoder


def _tokenizer(path: Path, lowercase: bool) -> Any:
    # Imported here because it needs TensorFlow, which the weights do not.
    from keras_transformers.tokenizers.wordpiece import WordPieceTokenizer

    file = path / "vocab.txt" if path.is_dir() else path
    return WordPieceTokenizer(file, lowercase=lowercase)


FAMILY = Family(
    "bert",
    MODELS,
    _load,
    _tokenizer,
    read=read_bert_config,
    build=bert,
    fill=load_bert,
    parts=("bert.pooler.*", *_HEADS),
    writers=(
        Writer(
            functools.partial(NAMES.fits, pooler_activation="tanh"),  # ELECTRA's is gelu
            {**encoder_classes("Bert"), "next_sentence": "BertForNextSentencePrediction"},
            save_bert,
            save_bert_config,
            tokenizer="WordPieceTokenizer",
            tokenizer_class="BertTokenizer",
            special_tokens=SPECIAL_TOKENS,
        ),
    ),
)
