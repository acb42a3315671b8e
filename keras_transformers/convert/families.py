"""Finds the family of a folder's weights, of a model, and of a tokenizer."""

import logging
import os
from collections.abc import Iterable
from typing import Any

import keras

from keras_transformers import registry
from keras_transformers.convert.containers.arrays import Arrays
from keras_transformers.convert.family import Family, Writer
from keras_transformers.convert.folder import Folder

__all__ = ["load_weights"]

_logger = logging.getLogger(__name__)


def families() -> tuple[Family, ...]:
    """Returns every registered family."""
    return tuple(registry.values("FAMILY"))


def encoders() -> tuple[Family, ...]:
    """Returns the families whose models read a text in both directions."""
    return tuple(family for family in families() if family.is_encoder)


def family_named(model_type: str) -> Family:
    """Returns the family of this `model_type`; ValueError for an unknown one."""
    by_type = {family.model_type: family for family in families()}
    if model_type not in by_type:
        raise ValueError(f"family={model_type!r}: use one of {', '.join(sorted(by_type))}")
    return by_type[model_type]


def load_weights(
    model: keras.Model,
    path: str | os.PathLike[str],
    *,
    ignore: Iterable[str] = (),
) -> list[str]:
    """Fills a model with the weights in a file or folder, under Hugging Face's names.

    The model's layers determine its family. Unless every tensor is used or matches `ignore`,
    loading fails and the model is unchanged.

    Args:
        model: from a builder in `keras_transformers.models`, with any of the heads in `heads`.
        path: a file of weights, such as `model.safetensors`, or a folder with one.
        ignore: wildcards of tensors to leave out, such as "cls.*" for BERT's pretraining heads.
            They match the names that classes with a head write, where an encoder's start with
            "bert.", even if those in the file do not.

    Returns:
        The names of the tensors that `ignore` left out.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is unreadable; tensors are missing, left over or of another shape (the
            message lists them all); a copy of a tied weight differs from it; or no family has the
            model's layers.

    Example:
        encoder = kt.bert_base()
        kt.convert.load_weights(encoder, "bert-base-uncased/", ignore=["cls.*"])
    """
    arrays = Folder.at(path).arrays
    return _family_for(model, arrays).fill(model, arrays, ignore=ignore)


def _family_for(model: keras.Model, arrays: Arrays) -> Family:
    """Returns the family that fits all layers of a model; of several, the one in the file.

    Raises:
        ValueError: no family fits; the message says what the closest one lacks.
    """
    problems = {family.model_type: family.names.problems(model) for family in families()}
    nearest = min(families(), key=lambda family: len(problems[family.model_type]))
    nearest.names.check(model)

    def num_missing(family: Family) -> int:
        names = {tensor.name for tensor in family.names.tensors(model)}
        return len(names - family.names.today(arrays).shapes.keys())

    return min((f for f in families() if not problems[f.model_type]), key=num_missing)


def without_pooler(encoder: keras.Model) -> keras.Model:
    """Returns the part of an encoder that computes its `sequence_output`."""
    outputs = {"sequence_output": encoder.output["sequence_output"]}
    return keras.Model(encoder.input, outputs, name=encoder.name)


def tokenizer_family(folder: Folder, family: Family) -> Family:
    """Returns the family of a folder's tokenizer, which may differ from its encoder's.

    Multilingual MiniLM, for example, is a BERT with XLM-RoBERTa's tokenizer. tokenizer_config.json
    names the tokenizer's class; without it, the name of a SentencePiece model decides, or the first
    tokens of the model in tokenizer.json.
    """
    if not family.is_encoder:  # others have their own tokenizers
        return family
    kind = folder.json("tokenizer_config.json", missing_ok=True).get("tokenizer_class")
    for other in (family, *encoders()):
        if other.writer is not None and other.writer.has_tokenizer_class(kind):
            return other
    vocabularies = ("vocab.txt", family.pieces_file)
    if any(name and (folder / name).is_file() for name in vocabularies):
        return family
    pieces = _unigrams(folder)
    for other in encoders():
        file_name, first = other.vocabulary_file, other.first_pieces
        if file_name == "tokenizer.json":  # which any family may have
            continue
        has_pieces = bool(first) and tuple(pieces[: len(first)]) == first
        if has_pieces or (file_name and (folder / file_name).is_file()):
            return other
    return family


def tokenizer_writer(family: Family, *tokenizers: str) -> Writer | None:
    """Returns how transformers reads the tokenizer of a family's model; None without a class.

    An encoder may have the tokenizer of another family, as `tokenizer_family` finds it.

    Args:
        family: the model's family.
        *tokenizers: our classes of the model's tokenizers; a writer has one.
    """
    others = encoders() if family.is_encoder else ()
    writers = (family.writer, *family.other_tokenizers, *(other.writer for other in others))
    for writer in writers:
        if writer is not None and {writer.tokenizer} == {*tokenizers}:
            return writer
    return None


def _unigrams(folder: Folder) -> list[Any]:
    """Returns the tokens of a SentencePiece model in tokenizer.json; none for another model."""
    model = folder.json("tokenizer.json", missing_ok=True).get("model")
    if not isinstance(model, dict) or model.get("type") != "Unigram":
        return []
    vocabulary = model.get("vocab")
    pairs = vocabulary if isinstance(vocabulary, list) else []
    return [pair[0] if isinstance(pair, list) and pair else None for pair in pairs]


def family_of(folder: str | os.PathLike[str], candidates: tuple[Family, ...]) -> Family:
    """Returns the family that a folder's config.json names.

    Raises:
        FileNotFoundError: the folder has no config.json.
        ValueError: it is not a JSON object, or the family is not among the candidates.
    """
    folder = Folder.at(folder)
    file, config = folder / "config.json", folder.json("config.json")
    model_type = config.get("model_type")
    for family in candidates:
        if model_type == family.model_type or (family.is_default and "model_type" not in config):
            return family
        if (why := family.refused.get(str(model_type))) is not None:
            raise ValueError(f"{file}: model_type {model_type!r} {why}")
    names = ", ".join(sorted(family.model_type for family in candidates))
    classes = config.get("architectures")
    what = f" ({classes[0]!s:.100})" if isinstance(classes, list) and classes else ""
    raise ValueError(
        f"{file}: model_type {model_type!r:.100}{what} is unknown; expected one of {names}; the "
        'tutorial "Add a model family" shows how'
    )
