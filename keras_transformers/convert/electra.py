"""Converts ELECTRA weights from and to Hugging Face's safetensors."""

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers.convert import bert
from keras_transformers.convert.config_map import ConfigMap, arguments_of, label_fields
from keras_transformers.convert.families import Family, Writer, encoder_classes
from keras_transformers.convert.name_map import NameMap, with_sequence_head
from keras_transformers.convert.tensors import (
    assign,
    drop_copies,
    read_safetensors,
    write_safetensors,
)
from keras_transformers.models import heads
from keras_transformers.models.encoders.electra import (
    MODELS,
    electra,
    electra_generator,
    with_pooler,
)

__all__ = [
    "load_electra",
    "load_electra_pair",
    "read_electra_config",
    "save_electra",
    "save_electra_config",
    "save_electra_folder",
]

_NAMES = NameMap(
    family="ELECTRA",
    embeddings={
        "token_embedding": "electra.embeddings.word_embeddings.weight",
        "position_embedding": "electra.embeddings.position_embeddings.weight",
        "segment_embedding": "electra.embeddings.token_type_embeddings.weight",
    },
    modules={
        "embeddings_norm": "electra.embeddings.LayerNorm",
        "embeddings_project": "electra.embeddings_project",
        "pooler": "sequence_summary.summary",  # of choices; classifiers have their own
        "masked_lm_dense": "generator_predictions.dense",
        "masked_lm_norm": "generator_predictions.LayerNorm",
        "replaced_dense": "discriminator_predictions.dense",
        "replaced_score": "discriminator_predictions.dense_prediction",
        "logits": "classifier",
        "score_dense": "classifier",
        "span_logits": "qa_outputs",
    },
    biases={"mask_logits": "generator_lm_head.bias"},
    layers="electra.encoder.layer",
    parts=bert.NAMES.parts,
)
_CONFIG = ConfigMap(
    "electra",
    required=bert.CONFIG.required,
    optional={"embedding_dim": ("embedding_size", 128), **bert.CONFIG.optional},
    fixed={
        **bert.CONFIG.fixed,
        "summary_type": "first",
        "summary_activation": "gelu",
    },
)
_TOKENS = "electra.embeddings.word_embeddings.weight"
# A copy of the tied weights that some files also contain.
_TIED = {"generator_lm_head.weight": _TOKENS}
_BUFFERS = ("electra.embeddings.position_ids",)
_HEADS = (
    *("generator_*", "discriminator_predictions.*", "sequence_summary.*"),
    *("classifier.*", "qa_outputs.*"),
)
# The layer of a pretraining head -> the class that has it.
_CLASSES = {"replaced_score": "ElectraForPreTraining", "mask_logits": "ElectraForMaskedLM"}


def read_electra_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads Hugging Face's `config.json` as arguments of `models.encoders.electra.electra`.

    Args:
        path: the file or its folder.

    Returns:
        Keyword arguments that build the encoder it describes.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not JSON, does not describe an ELECTRA, lacks a field, or needs something
            that these layers lack (relative positions, a decoder, another activation or summary).

    Example:
        encoder = electra(**read_electra_config("electra-small-discriminator"))
    """
    return _CONFIG.read(path)


def load_electra(
    model: keras.Model, path: str | os.PathLike[str], *, ignore: Iterable[str] = ()
) -> list[str]:
    """Loads Hugging Face's ELECTRA weights into an encoder, with or without heads.

    It reads discriminators, generators and what they were fine-tuned to. Unless every tensor is
    used or matches `ignore`, loading fails and the model is unchanged.

    Args:
        model: a model from `keras_transformers.models.encoders.electra` or `heads`.
        path: a `.safetensors` file, or a folder with `model.safetensors`.
        ignore: wildcards of tensors to leave out, such as "discriminator_predictions.*".

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


def save_electra(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Writes an ELECTRA model's weights under Hugging Face's names, for `from_pretrained`.

    Args:
        model: a model from `keras_transformers.models.encoders.electra` or `heads`.
        path: the `.safetensors` file to write.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: Hugging Face's ELECTRA has no counterpart of a layer.
    """
    write_safetensors(with_sequence_head(_NAMES, model).variables(model), path)


def save_electra_config(
    model: keras.Model, path: str | os.PathLike[str], *, labels: Sequence[str] | None = None
) -> None:
    """Writes an ELECTRA's shape as Hugging Face's `config.json`, to go with `save_electra`.

    Args:
        model: a model from `keras_transformers.models.encoders.electra` or `heads`.
        path: the file to write.
        labels: the name of each class of a classifier's or tagger's head, in the order of its
            logits; "LABEL_0" and so on by default.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: the model is not an ELECTRA or has another number of classes, or Hugging Face
            has no name for its activation.
    """
    arguments = arguments_of(model, "ELECTRA", _NAMES.embeddings)
    arguments["embedding_dim"] = model.get_layer("token_embedding").hidden_dim
    classes = [_CLASSES[layer.name] for layer in model.layers if layer.name in _CLASSES]
    fields = {"architectures": classes} if classes else {}
    _CONFIG.write(arguments, path, **fields, **label_fields(model, labels))


def save_electra_folder(model: keras.Model, folder: Path, vocabulary: Path) -> None:
    """Writes an ELECTRA in Hugging Face's layout, for `load_encoder`, `load` and others.

    Args:
        model: a discriminator or generator, with its head.
        folder: folder for model.safetensors, config.json and vocab.txt.
        vocabulary: the vocabulary file to copy there.
    """
    folder.mkdir(exist_ok=True)
    save_electra(model, folder / "model.safetensors")
    save_electra_config(model, folder / "config.json")
    shutil.copyfile(vocabulary, folder / "vocab.txt")


def load_electra_pair(
    *,
    weights: Path | None = None,
    model: str = "electra_small",
    shape: Mapping[str, int | None] | None = None,
    vocabulary_size: int,
    max_sequence_length: int,
    generator_size: float = 0.25,
    dropout: float = 0.1,
    initializer_range: float = 0.02,
) -> tuple[keras.Model, keras.Model]:
    """Builds a generator and a discriminator, from random weights or from a BERT's.

    Clark et al. 2020, section 3.2: a discriminator that starts from random weights, far behind its
    generator, may not learn beyond the majority class.

    Args:
        weights: folder of a BERT with both heads in Hugging Face's layout, as `pretrain_bert`
            writes it. Generator and discriminator get its shape and its weights.
        model: without `weights`, a name from `keras-transformers list 'electra_*'`.
        shape: overrides that model's num_layers, num_heads, hidden_dim and embedding_dim; None
            keeps a value.
        vocabulary_size: number of tokens.
        max_sequence_length: positions of new models; a BERT needs at least as many.
        generator_size: without `weights`, see `models.encoders.electra_generator`.
        dropout: rate in both models and their attention.
        initializer_range: standard deviation of the matrices of new models.

    Returns:
        A model of `heads.masked_lm` and one of `heads.replaced_token_detector`, which share their
        embeddings, for `heads.electra_pretrainer`.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a name is unknown, `generator_size` is out of range, or the weights have another
            vocabulary or too few positions.
    """
    rates: dict[str, Any] = {"dropout": dropout, "attention_dropout": dropout}
    sizes: dict[str, Any] = {
        "vocabulary_size": vocabulary_size,
        "max_sequence_length": max_sequence_length,
    }
    if weights is None:
        given = {name: value for name, value in (shape or {}).items() if value is not None}
        encoder = MODELS[model].factory(
            **given, **sizes, **rates, initializer_range=initializer_range
        )
        generator = heads.masked_lm(electra_generator(encoder, size=generator_size))
        return generator, heads.replaced_token_detector(encoder)
    found = bert.load_pretrainer(weights=weights, **sizes)
    encoder = electra(**(bert.read_bert_config(weights) | rates))
    generator = heads.masked_lm(electra_generator(encoder, size=1))
    values = {weight.path: weight.numpy() for weight in found.weights}
    for weight in [*generator.weights, *encoder.weights]:
        weight.assign(values[weight.path])
    return generator, heads.replaced_token_detector(encoder)


def _tensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Reads the tensors of a file under today's names, tied ones once."""
    own = ("embeddings.", "embeddings_project.", "encoder.")  # ElectraModel saves without a prefix
    tensors = {
        f"electra.{name}" if name.startswith(own) else name: tensor
        for name, tensor in read_safetensors(path).items()
    }
    drop_copies(tensors, _TIED, source=str(path))
    return tensors


def _load(folder: Path, dropout: float) -> keras.Model:
    rates = {"dropout": dropout, "attention_dropout": dropout}
    encoder = electra(**(read_electra_config(folder) | rates))
    load_electra(encoder, folder, ignore=_HEADS)
    return with_pooler(encoder)


def _recognises(model: keras.Model) -> bool:
    """Returns whether a model has ELECTRA's layers, and not only those that BERT has too."""
    names = {layer.name for layer in model.layers}
    if "replaced_score" in names:  # its logits are numbers, the Tagger's two classes
        return False
    own = names & {"embeddings_project", "pooler"}
    return bool(own) and _NAMES.fits(model, pooler_activation="gelu")


def _build(**arguments: Any) -> keras.Model:
    return with_pooler(electra(**arguments))


FAMILY = Family(
    "electra",
    MODELS,
    _load,
    bert.FAMILY.tokenizer,
    read=read_electra_config,
    build=_build,
    fill=load_electra,
    parts=_HEADS,
    masked_lm_activation="gelu",  # whatever the encoder's
    trained={"ForPreTraining": ("replaced_tokens",)},
    writers=(
        Writer(
            _recognises,
            encoder_classes("Electra"),
            save_electra,
            save_electra_config,
            tokenizer="WordPieceTokenizer",
            tokenizer_class="ElectraTokenizer",
            special_tokens=bert.SPECIAL_TOKENS,
        ),
    ),
)
