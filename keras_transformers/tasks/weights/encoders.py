"""Loads a model and its tokenizer, for the recipes."""

import contextlib
import logging
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert.families import families
from keras_transformers.convert.family import Family
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.weights import FoundWeights, find_weights
from keras_transformers.dependencies.private_api import give_values, without_values
from keras_transformers.families.vit.model import copy_weights
from keras_transformers.models.anatomy import anatomy
from keras_transformers.models.entry import Entry
from keras_transformers.models.registry import entry
from keras_transformers.tasks.weights.assembly import assemble

__all__ = ["load_encoder", "load_image_encoder", "load_language_model"]

_logger = logging.getLogger(__name__)


def load_encoder(
    *,
    weights: Path | str | None = None,
    model: str | None = None,
    vocabulary: Path | str | None = None,
    lowercase: bool | None = None,
    dropout: float = 0.1,
) -> tuple[keras.Model, Any]:
    """Loads an encoder and its tokenizer.

    Args:
        weights: any weights that `keras_transformers.load` takes: a saved pipeline, a folder in
            Hugging Face's layout and so on, or "hf://organization/name@commit". Heads are left out,
            so a model fine-tuned for one task can start another.
        model: instead of `weights`, a name from `list_models()`; its weights are random.
        vocabulary: the vocabulary for `model`, in its family's usual files; `weights` have their
            own.
        lowercase: whether to lower-case. By default, the files of `weights` decide, or else the
            words of their vocabulary; for `model`, texts are lower-cased. Ignored by families that
            always keep case.
        dropout: rate in the encoder and its attention.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: the arguments are neither `weights` alone nor `model` with `vocabulary`; the
            family is unknown; the files do not belong together, need something that the tokenizers
            lack, or contradict `lowercase`.
    """
    return _load("embedding", weights, model, vocabulary, lowercase, dropout)


def load_language_model(
    *,
    weights: Path | str | None = None,
    model: str | None = None,
    vocabulary: Path | str | None = None,
    dropout: float = 0.1,
) -> tuple[Any, Any]:
    """Loads a causal language model and its tokenizer.

    Args:
        weights: any weights that `keras_transformers.load` takes, such as the output of the
            `language_model` recipe; see `load_encoder`.
        model: instead of `weights`, a name from `keras-transformers list 'gpt*'`; its weights are
            random.
        vocabulary: the folder with vocab.json and merges.txt for `model`; `weights` have their own.
        dropout: rate in the model and its attention.

    Returns:
        A `models.gpt.CausalLM`, and its tokenizer.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: the arguments are neither `weights` alone nor `model` with `vocabulary`, or the
            files do not belong together.
    """
    return _load("generation", weights, model, vocabulary, None, dropout)


def load_image_encoder(
    weights: Path | str, *, image_size: tuple[int, int], num_channels: int, dropout: float
) -> keras.Model:
    """Loads a ViT without its head, at any resolution.

    Args:
        weights: any weights that `keras_transformers.load` takes; see `load_encoder`.
        image_size: (height, width) in pixels. If it differs from that of the weights, the position
            embeddings are resized bilinearly; a saved pipeline keeps its own size.
        num_channels: 3 for RGB, 1 for grey; must match the weights.
        dropout: rate in the encoder.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: the weights are not a ViT's, are damaged, or have another number of channels.
    """
    opened = _open(weights, "image_classification")
    sizes = {"image_size": image_size, "num_channels": num_channels}
    with without_values():
        resized = opened.build(dropout=dropout, **sizes)
    copy_weights(_headless(opened, dropout=dropout), resized)
    give_values(resized)
    return resized


def _open(weights: Path | str, base: str) -> FoundWeights:
    """Opens weights; ValueError unless they serve this base task."""
    opened = find_weights(weights)
    if opened.base != base:
        raise ValueError(
            f"{weights}: its model is for {opened.base}, not for {base}: pass weights for that"
        )
    return opened


def _headless(opened: FoundWeights, **rates: Any) -> keras.Model:
    """Loads a model without the head of its task, with other rates of dropout."""
    model, new, _ = assemble(opened, **rates)
    if new:
        # Masked language models and token classifiers have no pooler. A task that needs one trains
        # it.
        _logger.warning("%s has no pooler: the encoder's starts with random weights", opened.source)
    return model


def _load(
    base: str,
    weights: Path | str | None,
    model: str | None,
    vocabulary: Path | str | None,
    lowercase: bool | None,
    dropout: float,
) -> tuple[Any, Any]:
    rates: dict[str, Any] = {"dropout": dropout, "attention_dropout": dropout}
    if weights and not model and not vocabulary:
        opened = _open(weights, base)
        encoder = _headless(opened, **rates)
        tokenizer = opened.tokenizers(lowercase)[0]
        if lowercase not in (None, getattr(tokenizer, "lowercase", lowercase)):
            raise ValueError(
                f"lowercase={lowercase}, but the files of {weights} say {tokenizer.lowercase}: "
                "leave it out"
            )
        size = anatomy(encoder, "token_embedding").token_embedding.input_dim
        if tokenizer.vocabulary_size > size:
            raise ValueError(
                f"{weights}: its vocabulary has {tokenizer.vocabulary_size} tokens, but the model "
                f"embeds {size}: use the vocabulary that belongs to the weights"
            )
        return encoder, tokenizer
    if model and vocabulary and not weights:
        family, named = _named(base, model)
        tokenizer = family.tokenizer(Folder(vocabulary), lowercase is not False)
        return named.factory(vocabulary_size=tokenizer.vocabulary_size, **rates), tokenizer
    raise ValueError("pass either weights=FOLDER, or model=NAME and vocabulary=FILE")


def _named(base: str, model: str) -> tuple[Family, Entry]:
    """Returns the family and the entry of a registered model; ValueError for other names."""
    possible = [family for family in families() if family.task == base]
    with contextlib.suppress(ValueError):
        named = entry(model)
        for family in possible:
            if named.family in {other.family for other in family.entries.values()}:
                return family, named
    names = ", ".join(name for family in possible for name in family.entries)
    raise ValueError(f"model={model!r}: use one of {names}")
