"""Opens Google's TF1 checkpoints of BERT: bert_config.json, bert_model.ckpt.*, vocab.txt."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras

from keras_transformers.convert.containers.tf_checkpoint import (
    StoredVariables,
    checkpoint_prefix,
    checkpoints_at,
    is_object_based,
)
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.tokenizer_files import has_capitals
from keras_transformers.convert.formats.weights import Format, FoundWeights
from keras_transformers.families.bert.files import CONFIG, FAMILY
from keras_transformers.families.bert.google_checkpoint import (
    checkpoint_family,
    is_training_state,
    open_tf1_checkpoint,
)
from keras_transformers.families.bert.model import bert
from keras_transformers.files import read_json

if TYPE_CHECKING:
    from keras_transformers.tokenizers.wordpiece import WordPieceTokenizer

__all__ = ["read_google_bert_config"]

_CONFIGS = ("bert_config.json", "albert_config.json")  # a BERT under either name
# The fields as modeling.py reads them. Its "gelu" is the tanh form; Hugging Face's is exact.
_CONFIG = replace(
    CONFIG,
    optional={**CONFIG.optional, "num_segments": ("type_vocab_size", 16)},
    activations={**CONFIG.activations, "gelu": "gelu_approximate"},
)
# Fields that BERT lacks -> the model that they indicate.
_OTHERS = {
    "num_hidden_groups": "an ALBERT, whose layers share their weights",
    "inner_group_num": "an ALBERT, whose layers share their weights",
    "embedding_size": "an ALBERT or ELECTRA, whose embeddings are narrower than its layers",
}
_EITHER = (
    "output_weights may be a classifier's or a tagger's, and the checkpoint does not say which: "
    "pass pipeline='classification' or pipeline='tagging', which then uses this head"
)
_POOLER, _ENCODER = "bert/pooler/dense/", "bert/encoder/"


def open_google_bert(folder: Folder) -> FoundWeights:
    """Opens a folder as Google published them, or one fine-tuned by Google's scripts.

    "gelu" means the tanh form, which Google used in training. `output_weights` is the head of
    run_classifier.py or of a tagger such as run_ner.py: the optimizer's slots show which; without
    them, `pipeline=` must say so. If vocab.txt has words with capitals, texts keep their case.

    Args:
        folder: the folder, whose file `checkpoint` selects one of several checkpoints, or a
            checkpoint's prefix in it, such as ".../model.ckpt-60".

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or describes a model other than BERT.
    """
    directory = folder.directory
    file = _config(directory)
    prefix = checkpoint_prefix(folder.path)
    if file is None:
        raise FileNotFoundError(
            f"{directory} has the checkpoint {prefix.name} but no bert_config.json, which says how "
            "many attention heads the model has: copy it and vocab.txt from the folder of the "
            "pretrained model, given by --bert_config_file and --vocab_file in training"
        )
    for field, what in _OTHERS.items():
        if field in read_json(file):
            raise ValueError(
                f"{file}: {field} makes it {what}, but the variables are a BERT's: put the "
                "bert_config.json of this model there instead"
            )
    arguments = read_google_bert_config(file)
    arrays = open_tf1_checkpoint(prefix)
    trained, options = _trained(StoredVariables.open(prefix).shapes, arrays.shapes)

    def fill(model: keras.Model, ignore: Iterable[str]) -> list[str]:
        return FAMILY.fill(model, arrays, ignore=ignore)

    return FoundWeights(
        source=folder.path,
        base="embedding",
        trained=trained,
        undecided=_EITHER if {"classification", "tagging"} <= set(trained) else "",
        build=lambda **changes: bert(**(arguments | changes)),
        fill=fill,
        tokenizers=lambda lowercase=None: (wordpiece_beside(prefix, lowercase=lowercase),),
        parts=FAMILY.parts,
        has_pooler="bert.pooler.dense.weight" in arrays.shapes,
        options=options,
        masked_lm={name: arguments[name] for name in ("activation", "norm_epsilon")},
    )


def read_google_bert_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads Google's `bert_config.json` as arguments of `models.encoders.bert.bert`.

    Unlike Hugging Face's file, it follows Google's code: "gelu" is the tanh form, and the default
    of `type_vocab_size` is 16.

    Args:
        path: the file.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not JSON, lacks a field, or needs something that these layers lack.

    Example:
        encoder = bert(**read_google_bert_config("uncased_L-12_H-768_A-12/bert_config.json"))
    """
    return _CONFIG.read(path)


def wordpiece_beside(prefix: Path, *, lowercase: bool | None = None) -> "WordPieceTokenizer":
    """Makes the tokenizer from the vocab.txt beside a checkpoint.

    Args:
        prefix: the checkpoint.
        lowercase: whether to lower-case; by default, True unless the vocabulary has words with
            capitals.

    Raises:
        FileNotFoundError: there is no vocab.txt.
    """
    file = prefix.with_name("vocab.txt")
    if not file.is_file():
        raise FileNotFoundError(
            f"{file} is missing: copy the vocabulary that {prefix.name} was trained with there, "
            "usually from the folder of the pretrained model"
        )
    lowers = not has_capitals(file) if lowercase is None else lowercase
    return FAMILY.tokenizer(Folder(file), lowers)


def head_labels(shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Returns names for the classes of `classifier`; a checkpoint has only their number."""
    return [f"LABEL_{number}" for number in range(*shapes["classifier.bias"])]


def _trained(
    stored: Iterable[str], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Returns the tasks that the heads were trained for, and the options of their pipelines.

    Args:
        stored: the names in the checkpoint.
        shapes: Hugging Face's name -> shape, for the model's own variables.
    """
    if "classifier.bias" in shapes:
        labels = head_labels(shapes)
        if len(labels) == 1:
            return ("regression",), {}
        return _kinds_of_classifier(set(stored)), {"labels": labels}
    if "qa_outputs.bias" in shapes:
        return ("question_answering",), {}
    if "cls.seq_relationship.bias" in shapes:
        return ("fill_mask", "next_sentence"), {}
    return ("fill_mask",) if "cls.predictions.bias" in shapes else ("embedding",), {}


def _kinds_of_classifier(stored: set[str]) -> tuple[str, ...]:
    """Returns the tasks that `output_weights` may have been trained for: both if unknown.

    A classifier's loss trains the pooler and a tagger's does not: if the encoder was trained, only
    a classifier's optimizer has slots for the pooler.
    """
    if not any(name.startswith(_POOLER) for name in stored):
        return ("tagging",)
    slots = [name for name in stored if is_training_state(name)]
    if any(name.startswith(_POOLER) for name in slots):
        return ("classification",)
    if any(name.startswith(_ENCODER) for name in slots):
        return ("tagging",)
    return ("classification", "tagging")


def _config(folder: Path) -> Path | None:
    return next((folder / name for name in _CONFIGS if (folder / name).is_file()), None)


def _recognises(folder: Folder) -> bool:
    path, directory = folder.path, folder.directory
    if (directory / "config.json").is_file() or any(map(is_object_based, checkpoints_at(path))):
        return False
    family = folder.once(checkpoint_family, path)
    return family == "bert" or (family == "" and path.is_dir() and _config(directory) is not None)


FORMAT = Format("Google's bert_config.json with bert_model.ckpt", _recognises, open_google_bert)
