"""Encoders as recipes ask for them: pretrained from files, or new by name."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert import (
    load_bert,
    load_gpt,
    read_bert_config,
    read_gpt_config,
    save_bert,
    save_bert_config,
    save_elmo,
    save_elmo_options,
    save_gpt,
    save_gpt_config,
)
from keras_transformers.models import gpt, heads
from keras_transformers.models.bert import SIZES, bert
from keras_transformers.models.registry import create_model
from keras_transformers.tokenizers import BytePairTokenizer
from keras_transformers.tokenizers.word_vocabulary import WordVocabulary

__all__ = [
    "bert_size",
    "load_language_model",
    "load_pretrainer",
    "pretrained_size",
    "save_elmo_encoder",
    "save_language_model",
    "save_pretrainer",
]


def load_language_model(
    *,
    weights: Path | None = None,
    model: str | None = None,
    vocabulary: Path | None = None,
    dropout: float = 0.1,
) -> tuple[gpt.CausalLM, BytePairTokenizer]:
    """A GPT and the tokenizer whose ids it reads.

    Args:
        weights: folder in Hugging Face's layout, pretrained: config.json, model.safetensors,
            vocab.json and merges.txt, as the recipe `language_model` writes it too.
        model: instead, a name of `keras-transformers list 'gpt*'`, with random weights.
        vocabulary: the folder of vocab.json and merges.txt for `model`; `weights` bring their own.
        dropout: in the model and its attention.

    Raises:
        FileNotFoundError: a file is not there.
        ValueError: neither kind is asked for, or both; or what the files hold does not fit.
    """
    rates = {"dropout": dropout, "attention_dropout": dropout}
    if weights and not model and not vocabulary:
        language_model = gpt.gpt(**(read_gpt_config(weights) | rates))
        tokenizer = BytePairTokenizer(weights)
        load_gpt(language_model, weights)
    elif model and vocabulary and not weights:
        if model not in gpt.MODELS:
            raise ValueError(f"--model {model}: take one of {', '.join(gpt.MODELS)}")
        tokenizer = BytePairTokenizer(vocabulary)
        language_model = create_model(model, vocabulary_size=tokenizer.vocabulary_size, **rates)
    else:
        raise ValueError("give either --weights FOLDER, or --model NAME and --vocabulary FOLDER")
    if tokenizer.vocabulary_size != language_model.get_layer("token_embedding").input_dim:
        raise ValueError(
            f"{weights}: {tokenizer.vocabulary_size} tokens in vocab.json, and the model embeds "
            f"{language_model.get_layer('token_embedding').input_dim}: take the vocabulary that "
            "belongs to the weights"
        )
    return language_model, tokenizer


def bert_size(model: str) -> dict[str, Any]:
    """The shape of a BERT by its name, as arguments of `models.bert.bert`; ValueError without."""
    if model not in SIZES:
        raise ValueError(f"--model {model}: take one of {', '.join(SIZES)}")
    return dict(SIZES[model])


def pretrained_size(weights: Path, max_sequence_length: int) -> dict[str, Any]:
    """The shape of a pretrained BERT, as arguments of `models.bert.bert`.

    Raises:
        FileNotFoundError: there is no config.json in the folder.
        ValueError: it is of no BERT, or of one with fewer positions than asked for.
    """
    found = read_bert_config(weights)
    if found["max_sequence_length"] < max_sequence_length:
        raise ValueError(
            f"{weights} has {found['max_sequence_length']} positions and the examples are of "
            f"{max_sequence_length} tokens: make these shorter"
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
    """A BERT encoder with both pretraining heads.

    Args:
        weights: folder in Hugging Face's layout to go on from, with both heads.
        model: without weights, a name of `keras-transformers list 'bert_*'`, random weights.
        shape: num_layers, num_heads, hidden_dim instead of that model's own; None leaves it.
        vocabulary_size: number of tokens.
        max_sequence_length: positions of a new model; a loaded one has at least as many.
        dropout: in the encoder and its attention.
        initializer_range: standard deviation of a new encoder's matrices.

    Raises:
        FileNotFoundError: a file is not there.
        ValueError: an unknown model, or weights with another vocabulary or fewer positions.
    """
    rates: dict[str, Any] = {"dropout": dropout, "attention_dropout": dropout}
    if weights:
        found = pretrained_size(weights, max_sequence_length)
        if found["vocabulary_size"] != vocabulary_size:
            raise ValueError(
                f"{weights} has {found['vocabulary_size']} tokens and the vocabulary "
                f"{vocabulary_size}: take the one that belongs to the weights"
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
        model: of `load_pretrainer`.
        folder: gets model.safetensors, config.json and vocab.txt.
        vocabulary: the file to copy there.
    """
    folder.mkdir(exist_ok=True)
    save_bert(model, folder / "model.safetensors")
    save_bert_config(model, folder / "config.json")
    shutil.copyfile(vocabulary, folder / "vocab.txt")


def save_language_model(model: gpt.CausalLM, folder: Path, tokenizer: BytePairTokenizer) -> None:
    """Writes a GPT as GPT-2 is published, for `load_language_model` and transformers.

    Args:
        model: of `models.gpt.gpt`.
        folder: gets model.safetensors, config.json, vocab.json and merges.txt.
        tokenizer: whose ids the model reads.
    """
    folder.mkdir(exist_ok=True)
    tokenizer.save(folder)
    save_gpt(model, folder / "model.safetensors")
    save_gpt_config(model, folder / "config.json")


def save_elmo_encoder(encoder: keras.Model, folder: Path, vocabulary: WordVocabulary) -> None:
    """Writes an ELMo as bilm-tf has them.

    Args:
        encoder: of `models.elmo.elmo`.
        folder: gets weights.hdf5, options.json and, unless it has one, vocabulary.txt.
        vocabulary: the words that it was trained to predict.
    """
    folder.mkdir(exist_ok=True)
    save_elmo(encoder, folder / "weights.hdf5")
    save_elmo_options(encoder, folder / "options.json")
    if not (folder / "vocabulary.txt").exists():
        vocabulary.write(folder / "vocabulary.txt")
