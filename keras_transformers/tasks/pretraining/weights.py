"""Makes models to pretrain, new or from weights, for the recipes."""

import inspect
import os
from collections.abc import Mapping
from typing import Any

import keras

from keras_transformers.convert.config_map import arguments_of
from keras_transformers.convert.families import encoders, family_named
from keras_transformers.convert.family import Family
from keras_transformers.convert.formats.weights import find_weights
from keras_transformers.dependencies.private_api import without_values
from keras_transformers.families.bert import model as bert
from keras_transformers.families.electra.model import MODELS as ELECTRAS
from keras_transformers.families.electra.model import electra, electra_generator
from keras_transformers.models.anatomy import anatomy
from keras_transformers.tasks.fill_mask.head import masked_lm, pretrainer
from keras_transformers.tasks.replaced_tokens.head import (
    replaced_token_detector,
)
from keras_transformers.tasks.weights.assembly import assemble

__all__ = ["load_electra_pair", "load_pretrainer", "pretrained_tokenizer", "pretraining_size"]

_INPUTS = {"token_ids", "padding_mask"}


def pretraining_size(model: str) -> dict[str, Any]:
    """Returns a named encoder's shape, as arguments of its family's builder.

    Args:
        model: a BERT, such as "bert_base" or "bert_l4_h128", or a named model of another family
            that can learn masked words from WordPiece tokens, such as "modern_bert_base".

    Raises:
        ValueError: the name is unknown.
    """
    _, size = _named(model)
    return size


def _named(model: str) -> tuple[Family, dict[str, Any]]:
    """Returns a named encoder's family and its size."""
    by_name = {
        name: family for family in encoders() if _can_learn(family) for name in family.entries
    }
    if model.startswith("bert_") or model not in by_name:
        others = ", ".join(name for name in by_name if not name.startswith("bert_"))
        try:
            return family_named("bert"), bert.size_of(model)
        except ValueError as error:
            raise ValueError(f"model={model!r}: {error}; or one of {others}") from None
    parameters = inspect.signature(by_name[model].entries[model].factory).parameters
    return by_name[model], {name: parameter.default for name, parameter in parameters.items()}


def _can_learn(family: Family) -> bool:
    """Returns whether a family's models can be pretrained here with any vocabulary.

    RoBERTa's positions start after the id of its padding. ALBERT and ELECTRA have segments but no
    next-sentence head, so their files have no place for one.
    """
    offset = family.names.traits.get("position_embedding.first_position", 0)
    layers = family.names.layers
    return not offset and ("next_sentence_logits" in layers or "segment_embedding" not in layers)


def pretrained_tokenizer(weights: str | os.PathLike[str], max_sequence_length: int) -> Any:
    """Returns the tokenizer of a pretrained encoder.

    Args:
        weights: see `load_pretrainer`.
        max_sequence_length: number of tokens in the longest examples.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: the weights are not an encoder's, its tokenizer is not WordPiece, or it has too
            few positions.
    """
    # Imported here because it needs TensorFlow, which the weights do not.
    from keras_transformers.tokenizers.wordpiece import WordPieceTokenizer

    opened = find_weights(weights)
    with without_values():
        _check(weights, opened.build(), max_sequence_length)
    tokenizer = opened.tokenizers()[0]
    if type(tokenizer) is not WordPieceTokenizer:
        raise ValueError(
            f"{weights}: its tokenizer is a {type(tokenizer).__name__}, but pretraining data is "
            "made with a WordPieceTokenizer: pass weights that have one"
        )
    return tokenizer


def _check(
    weights: str | os.PathLike[str],
    encoder: keras.Model,
    max_sequence_length: int,
) -> None:
    """Raises ValueError unless weights are an encoder's with enough positions."""
    if not set(encoder.input) >= _INPUTS or "pooled_output" not in encoder.output:
        raise ValueError(
            f"{weights}: its model is not an encoder of texts: pass the weights of a BERT or "
            "ModernBERT, or leave them out and pass the name of a model"
        )
    positions = anatomy(encoder).max_sequence_length
    if positions is not None and positions < max_sequence_length:
        raise ValueError(
            f"{weights} has {positions} positions, but the examples have {max_sequence_length} "
            "tokens: shorten the examples"
        )


def _with_heads(encoder: keras.Model, **options: Any) -> keras.Model:
    """Adds the head for masked words and, to BERT with its segments, the one for next sentences."""
    make = pretrainer if "segment_ids" in encoder.input else masked_lm
    return make(encoder, **options)


def load_pretrainer(
    *,
    weights: str | os.PathLike[str] | None = None,
    model: str = "bert_tiny",
    shape: Mapping[str, int | None] | None = None,
    vocabulary_size: int,
    max_sequence_length: int,
    dropout: float = 0.1,
    initializer_range: float = 0.02,
) -> keras.Model:
    """Loads or builds an encoder with its pretraining heads.

    Args:
        weights: any weights that `keras_transformers.load` takes, of an encoder with these heads,
            to continue from.
        model: used without `weights`: see `pretraining_size`; the model's weights are random.
        shape: overrides that model's num_layers, num_heads and hidden_dim; None keeps a value.
        vocabulary_size: number of tokens.
        max_sequence_length: positions of a new model; a loaded one needs at least as many.
        dropout: rate in the encoder and its attention.
        initializer_range: standard deviation of a new encoder's matrices.

    Returns:
        A model from `heads.pretrainer` if the encoder has segments, else from `heads.masked_lm`.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: the model is unknown, or the weights have another vocabulary or too few
            positions.
    """
    rates: dict[str, Any] = {"dropout": dropout, "attention_dropout": dropout}
    if weights:
        opened = find_weights(weights)

        def head(encoder: keras.Model) -> keras.Model:
            _check(weights, encoder, max_sequence_length)
            size = anatomy(encoder).token_embedding.input_dim
            if size < vocabulary_size:
                raise ValueError(
                    f"{weights} has {size} tokens, but the vocabulary has {vocabulary_size}: use "
                    "the vocabulary that belongs to the weights"
                )
            return _with_heads(encoder, **opened.masked_lm)

        return assemble(opened, head, fills_head=True, ignore=(), **rates).model
    family, size = _named(model)
    changes = {name: value for name, value in (shape or {}).items() if value is not None}
    sizes: dict[str, Any] = {
        "vocabulary_size": vocabulary_size,
        "max_sequence_length": max_sequence_length,
        "initializer_range": initializer_range,
    }
    return _with_heads(family.build(**(size | changes | rates | sizes)))


def load_electra_pair(
    *,
    weights: str | os.PathLike[str] | None = None,
    model: str = "electra_small",
    shape: Mapping[str, int | None] | None = None,
    vocabulary_size: int,
    max_sequence_length: int,
    generator_size: float = 0.25,
    dropout: float = 0.1,
    initializer_range: float = 0.02,
) -> tuple[keras.Model, keras.Model]:
    """Builds a generator and a discriminator, from random weights or from a BERT's.

    Clark et al. 2020, section 3.2: a discriminator with random weights that starts far behind its
    generator may not learn more than the majority class.

    Args:
        weights: any weights that `keras_transformers.load` takes, of a BERT with both heads, as
            `pretrain_bert` writes them. Generator and discriminator get its shape and weights.
        model: used without `weights`: a name from `keras-transformers list 'electra_*'`.
        shape: overrides that model's num_layers, num_heads, hidden_dim and embedding_dim; None
            keeps a value.
        vocabulary_size: number of tokens.
        max_sequence_length: positions of new models; a BERT needs at least as many.
        generator_size: used without `weights`: see `models.encoders.electra_generator`.
        dropout: rate in both models and their attention.
        initializer_range: standard deviation of the matrices of new models.

    Returns:
        A model from `heads.masked_lm` and one from `heads.replaced_token_detector`, which share
        their embeddings, for `heads.electra_pretrainer`.

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
        changes = {name: value for name, value in (shape or {}).items() if value is not None}
        encoder = ELECTRAS[model].factory(
            **changes, **sizes, **rates, initializer_range=initializer_range
        )
        generator = masked_lm(electra_generator(encoder, size=generator_size))
        return generator, replaced_token_detector(encoder)
    pretrainer = load_pretrainer(weights=weights, **sizes)
    if "next_sentence_logits" not in pretrainer.output:
        raise ValueError(
            f"{weights}: its model is not a BERT with segments and a pooler: pass such weights, "
            "or leave them out and pass the name of a model"
        )
    taken = inspect.signature(electra).parameters
    shape = {name: value for name, value in arguments_of(pretrainer).items() if name in taken}
    encoder = electra(**(shape | rates))
    generator = masked_lm(electra_generator(encoder, size=1))
    values = {weight.path: weight.numpy() for weight in pretrainer.weights}
    for weight in [*generator.weights, *encoder.weights]:
        weight.assign(values[weight.path])
    return generator, replaced_token_detector(encoder)
