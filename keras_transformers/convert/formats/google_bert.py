"""Google's TF1 checkpoints of BERT: bert_config.json, bert_model.ckpt.* and vocab.txt."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers.convert.bert import FAMILY, fill_bert, read_bert_config
from keras_transformers.convert.formats.checkpoints import Checkpoint, Format
from keras_transformers.convert.formats.tokenizer_files import has_capitals
from keras_transformers.files import read_json
from keras_transformers.models.encoders.bert import bert

__all__ = ["open_google_bert", "read_google_bert"]

_CONFIGS = ("bert_config.json", "albert_config.json")
# Fields that BERT lacks -> the model that they stand for.
_OTHERS = {
    "num_hidden_groups": "an ALBERT, whose layers share their weights",
    "inner_group_num": "an ALBERT, whose layers share their weights",
    "embedding_size": "an ALBERT or ELECTRA, whose embeddings are narrower than its layers",
}
# A tensor whose name does not follow the rule -> Hugging Face's. Google's run_classifier.py and
# run_squad.py write the last four.
_SPECIAL = {
    "cls/predictions/output_bias": "cls.predictions.bias",
    "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
    "cls/seq_relationship/output_bias": "cls.seq_relationship.bias",
    "output_weights": "classifier.weight",
    "output_bias": "classifier.bias",
    "cls/squad/output_weights": "qa_outputs.weight",
    "cls/squad/output_bias": "qa_outputs.bias",
}
_WEIGHTS = {"kernel": "weight", "gamma": "weight", "beta": "bias", "bias": "bias"}
# The optimizer's, not the model's.
_TRAINING = re.compile(r"(.*/)?(adam_[mv]|global_step|[Aa]dam.*|beta[12]_power)")


def open_google_bert(folder: Path) -> Checkpoint:
    """Opens a folder as Google published them, or one that its scripts fine-tuned.

    "gelu" means the exact form, as in Hugging Face's copies of these checkpoints. If vocab.txt has
    words with capitals, texts keep their case.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or describes another model than BERT.
    """
    file = next(folder / name for name in _CONFIGS if (folder / name).is_file())
    for field, what in _OTHERS.items():
        if field in read_json(file):
            raise ValueError(f"{file}: {field} makes it {what}; only BERT can be read")
    arguments = read_bert_config(file)
    prefix = _prefix(folder)
    shapes = _shapes(prefix)
    trained, options = _trained(shapes)

    def fill(model: keras.Model, ignore: Iterable[str]) -> list[str]:
        return fill_bert(model, read_google_bert(prefix), source=str(prefix), ignore=ignore)

    def tokenizers() -> tuple[Any, ...]:
        return (FAMILY.tokenizer(folder, not has_capitals(folder / "vocab.txt")),)

    return Checkpoint(
        source=folder,
        base="embedding",
        trained=trained,
        build=lambda: bert(**arguments),
        fill=fill,
        tokenizers=tokenizers,
        parts=FAMILY.parts,
        has_pooler="bert.pooler.dense.weight" in shapes,
        options=options,
        masked_lm={name: arguments[name] for name in ("activation", "norm_epsilon")},
    )


def read_google_bert(prefix: Path) -> dict[str, np.ndarray]:
    """Reads a TF1 checkpoint of BERT under Hugging Face's names and shapes.

    Args:
        prefix: the path without ".index", such as "uncased_L-12_H-768_A-12/bert_model.ckpt".

    Raises:
        ValueError: a file is damaged or missing; the checksums of all tensors are compared.
    """
    import tensorflow as tf

    try:
        reader = tf.train.load_checkpoint(str(prefix))
        return {
            theirs: _stored(ours, reader.get_tensor(ours))
            for ours, theirs in _names(reader.get_variable_to_shape_map()).items()
        }
    except (tf.errors.OpError, IndexError, RuntimeError, ValueError) as error:
        raise _unreadable(prefix, error) from error


def _shapes(prefix: Path) -> dict[str, list[int]]:
    """Reads Hugging Face's name -> shape in the checkpoint, and no values."""
    import tensorflow as tf

    try:
        found = tf.train.load_checkpoint(str(prefix)).get_variable_to_shape_map()
    except (tf.errors.OpError, IndexError, RuntimeError, ValueError) as error:
        raise _unreadable(prefix, error) from error
    return {theirs: found[ours] for ours, theirs in _names(found).items()}


def _unreadable(prefix: Path, error: Exception) -> ValueError:
    reason = " ".join(str(error).split())
    return ValueError(
        f"{prefix}: not a readable TF1 checkpoint ({reason}); it may be truncated: download "
        f"{prefix.name}.index and {prefix.name}.data-* again"
    )


def _prefix(folder: Path) -> Path:
    found = sorted(path.with_suffix("") for path in folder.glob("*.index"))
    if len(found) > 1:
        raise ValueError(
            f"{folder} has the checkpoints {', '.join(path.name for path in found)}: leave one"
        )
    if not found:
        raise FileNotFoundError(f"{folder} has no bert_model.ckpt.index: download it again")
    return found[0]


def _names(names: Iterable[str]) -> dict[str, str]:
    """Returns the name of each of the model's tensors in the checkpoint -> Hugging Face's."""
    return {name: _name(name) for name in names if not _TRAINING.fullmatch(name)}


def _name(name: str) -> str:
    if name in _SPECIAL:
        return _SPECIAL[name]
    module, _, last = name.rpartition("/")
    if last.endswith("_embeddings"):
        return f"{name}/weight".replace("/", ".")
    module = re.sub(r"/layer_(\d+)/", r"/layer/\1/", module)
    return f"{module}/{_WEIGHTS.get(last, last)}".lstrip("/").replace("/", ".")


def _stored(name: str, array: np.ndarray) -> np.ndarray:
    """Returns an array as PyTorch stores it: kernels transposed."""
    return array.T if name.endswith("/kernel") else array


def _trained(shapes: dict[str, list[int]]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Returns what the heads were trained for, and the options of its pipeline."""
    if "classifier.bias" in shapes:
        (num_labels,) = shapes["classifier.bias"]
        labels = [f"LABEL_{number}" for number in range(num_labels)]
        if num_labels == 1:
            return ("regression",), {}
        return ("classification",), {"labels": labels}
    if "qa_outputs.bias" in shapes:
        return ("question_answering",), {}
    if "cls.seq_relationship.bias" in shapes:
        return ("fill_mask", "next_sentence"), {}
    return ("fill_mask",) if "cls.predictions.bias" in shapes else ("embedding",), {}


FORMAT = Format(
    "Google's bert_config.json with bert_model.ckpt",
    lambda path: (
        any((path / name).is_file() for name in _CONFIGS) and not (path / "config.json").is_file()
    ),
    open_google_bert,
)
