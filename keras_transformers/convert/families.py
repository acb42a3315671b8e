"""Loads an encoder from a folder: the family's own module knows how to read it.

A module in this folder registers its family by defining `FAMILY`; no list names it.
"""

import functools
import importlib
import logging
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras

from keras_transformers import convert
from keras_transformers.convert.config_map import read_config
from keras_transformers.convert.tensors import tensor_names
from keras_transformers.models.entry import Entry

__all__ = ["Family", "Writer", "load_encoder"]

_logger = logging.getLogger(__name__)


# Task -> the end of the class of transformers that serves it, for encoders of texts.
_CLASS_ENDS = {
    "classification": "ForSequenceClassification",
    "embedding": "Model",
    "fill_mask": "ForMaskedLM",
    "multiple_choice": "ForMultipleChoice",
    "question_answering": "ForQuestionAnswering",
    "regression": "ForSequenceClassification",
    "tagging": "ForTokenClassification",
}


@dataclass(frozen=True)
class Writer:
    """How to write a family's models for `from_pretrained` of transformers.

    Attributes:
        recognises: returns whether a model has the family's layers and no others.
        classes: task, one of the pipelines' -> the class of transformers that serves it.
        save: takes a model with any head and a file; writes the weights.
        save_config: takes a model with any head and a file; writes its config.json. For a head with
            classes it also takes `labels`, their names.
        tokenizer: the class of tokenizers here whose files transformers reads; "" for images.
        tokenizer_class: the class there that reads them.
        special_tokens: the fields of `tokenizer_config.json` that name special tokens.
        tokenizer_fields: takes the tokenizers, by the names of their arguments in pipelines;
            returns more fields of `tokenizer_config.json`.
        generation_fields: for models that write texts: takes the pipeline's options; returns the
            fields of `generation_config.json` besides special tokens.
    """

    recognises: Callable[[keras.Model], bool]
    classes: Mapping[str, str]
    save: Callable[[keras.Model, Path], None]
    save_config: Callable[..., None]
    tokenizer: str = ""
    tokenizer_class: str = ""
    special_tokens: tuple[str, ...] = ()
    tokenizer_fields: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda tokenizers: {}
    generation_fields: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None


def encoder_classes(start: str) -> dict[str, str]:
    """Returns task -> class of transformers for an encoder whose classes start like this."""
    return {task: f"{start}{end}" for task, end in _CLASS_ENDS.items()}


def search_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of `generation_config.json` for the options of `pipelines.Translator`.

    transformers searches by its own rules, whatever the Translator's are.
    """
    same = {name: options[name] for name in ("num_beams", "length_penalty", "min_length")}
    return {**same, "max_length": options["max_length"] + 1}  # it counts the start token


def accepted_by(check: Callable[[keras.Model], Any]) -> Callable[[keras.Model], bool]:
    """Returns whether a check of models raises no ValueError, as a function of the model."""

    def accepts(model: keras.Model) -> bool:
        try:
            check(model)
        except ValueError:
            return False
        return True

    return accepts


@dataclass(frozen=True)
class Family:
    """How to read a family's models and tokenizers from files.

    A family with `read`, `build` and `fill` can be loaded with its heads; one without them, as an
    encoder only.

    Attributes:
        model_type: the family's name in `config.json`.
        entries: the family's named models.
        load: takes a folder in Hugging Face's layout and the dropout rate; returns an encoder
            without its pretraining heads.
        tokenizer: takes a folder or vocabulary file and whether to lower-case, which families that
            keep case ignore; returns a tokenizer.
        read: takes a folder or its config.json; returns the arguments of `build`.
        build: makes the encoder without its heads, with random weights.
        fill: takes a model with any head, a folder and `ignore`, wildcards of tensors to leave out;
            fills the model and returns the names of the tensors left out.
        parts: wildcards of the tensors outside the encoder's layers: its pooler and all heads.
        masked_lm_activation: the activation of the masked-word head, if not the encoder's.
        task: the task that a model without a head serves, one of the pipelines'.
        other_types: more names of the family in `config.json`.
        trained: the end of a class's name -> the tasks that its heads were trained for, if they are
            not those of other families' classes.
        target_tokenizer: takes a folder; returns the tokenizer of the model's answers, if they have
            their own.
        tokenizer_classes: the classes of tokenizers, without "Fast", whose files are read; by
            default those of any family.
        pieces_file: the tokenizer's SentencePiece model, if one can be made of a tokenizer.json.
        longest_text: most tokens of a text if no file says so.
        writers: how to write its models; none if transformers has no class for them.
    """

    model_type: str
    entries: Mapping[str, Entry]
    load: Callable[[Path, float], keras.Model]
    tokenizer: Callable[[Path, bool], Any]
    read: Callable[[Path], dict[str, Any]] | None = None
    build: Callable[..., keras.Model] | None = None
    fill: Callable[..., list[str]] | None = None
    parts: tuple[str, ...] = ()
    masked_lm_activation: str | None = None
    task: str = "embedding"
    other_types: tuple[str, ...] = ()
    trained: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    target_tokenizer: Callable[[Path], Any] | None = None
    tokenizer_classes: tuple[str, ...] = ()
    pieces_file: str | None = None
    longest_text: int | None = None
    writers: tuple[Writer, ...] = ()


@functools.cache
def families() -> tuple[Family, ...]:
    """Returns every family that a module in this folder registers."""
    modules = (
        importlib.import_module(f"{convert.__name__}.{found.name}")
        for found in pkgutil.iter_modules(convert.__path__)
    )
    return tuple(module.FAMILY for module in modules if hasattr(module, "FAMILY"))


def encoders() -> tuple[Family, ...]:
    """Returns the families whose models read a text both ways."""
    return tuple(family for family in families() if family.task == "embedding")


def load_encoder(
    *,
    weights: Path | str | None = None,
    model: str | None = None,
    vocabulary: Path | str | None = None,
    lowercase: bool = True,
    dropout: float = 0.1,
) -> tuple[keras.Model, Any]:
    """Loads an encoder and its tokenizer.

    Args:
        weights: folder of a pretrained encoder in Hugging Face's layout: config.json,
            model.safetensors and the vocabulary. Heads are left out, so that a model fine-tuned
            for one task can begin another.
        model: instead of `weights`, a name from `list_models()`; its weights are random.
        vocabulary: the vocabulary for `model`, in its family's usual files; `weights` have their
            own.
        lowercase: whether to lower-case; families that always keep case ignore it.
        dropout: rate in the encoder and its attention.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: the arguments are neither `weights` alone nor `model` with `vocabulary`; the
            family is unknown; or the files do not belong together.
    """
    if weights and not model and not vocabulary:
        family = family_of(Path(weights), encoders())
        encoder = family.load(Path(weights), dropout)
        return encoder, family.tokenizer(Path(weights), lowercase)
    if model and vocabulary and not weights:
        named = next((family for family in encoders() if model in family.entries), None)
        if named is None:
            known = ", ".join(name for family in encoders() for name in family.entries)
            raise ValueError(f"--model {model}: take one of {known}")
        tokenizer = named.tokenizer(Path(vocabulary), lowercase)
        encoder = named.entries[model].factory(
            vocabulary_size=tokenizer.vocabulary_size, dropout=dropout, attention_dropout=dropout
        )
        return encoder, tokenizer
    raise ValueError("give either --weights FOLDER, or --model NAME and --vocabulary FILE")


def without_missing_pooler(encoder: keras.Model, folder: Path) -> keras.Model:
    """Returns what a folder's weights fill: the encoder, or all but its pooler if they have none.

    Masked language models and token classifiers have no pooler. A task that needs one trains it.
    """
    if has_pooler(folder):
        return encoder
    _logger.warning("%s has no pooler: the encoder's starts with random weights", folder)
    return without_pooler(encoder)


def has_pooler(folder: Path) -> bool:
    """Returns whether a folder's weights in Hugging Face's layout have an encoder's pooler."""
    return any(name.endswith("pooler.dense.weight") for name in tensor_names(folder))


def without_pooler(encoder: keras.Model) -> keras.Model:
    """Returns the part of an encoder that leads to its `sequence_output`."""
    outputs = {"sequence_output": encoder.output["sequence_output"]}
    return keras.Model(encoder.input, outputs, name=encoder.name)


def family_of(folder: Path, known: tuple[Family, ...]) -> Family:
    """Returns the family that a folder's config.json names.

    Raises:
        FileNotFoundError: the folder has no config.json.
        ValueError: it is not a JSON object, or the family is not among the known ones.
    """
    file, config = read_config(folder / "config.json")
    model_type = config.get("model_type", "bert")
    for family in known:
        if model_type in (family.model_type, *family.other_types):
            return family
    names = ", ".join(sorted(name for f in known for name in (f.model_type, *f.other_types)))
    raise ValueError(f"{file}: model_type {model_type!r} is unknown; expected one of {names}")
