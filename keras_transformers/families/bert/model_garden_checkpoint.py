"""Reads Model Garden's checkpoints of BERT (official/nlp) and TF-Hub's SavedModels of them.

The object graph in a checkpoint, which is only read, has the names of the variables. A
SavedModel's variables are such a checkpoint; its functions are never run.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from keras_transformers.convert.containers.arrays import Arrays, Container
from keras_transformers.convert.containers.tf_checkpoint import (
    StoredVariables,
    checkpoint_prefix,
    checkpoints_at,
    is_object_based,
)

__all__: list[str] = []

# The suffix of a module's or variable's name -> Hugging Face's. Versions 1 and 2 on TF-Hub have
# `embedding_postprocessor`.
_WHOLE = {
    "word_embeddings/embeddings": "bert.embeddings.word_embeddings.weight",
    "position_embedding/embeddings": "bert.embeddings.position_embeddings.weight",
    "type_embeddings/embeddings": "bert.embeddings.token_type_embeddings.weight",
    "embedding_postprocessor/position_embeddings": "bert.embeddings.position_embeddings.weight",
    "embedding_postprocessor/type_embeddings": "bert.embeddings.token_type_embeddings.weight",
    "cls/predictions/output_bias/bias": "cls.predictions.bias",
}
_MODULES = {
    "embeddings/layer_norm": "bert.embeddings.LayerNorm",
    "embedding_postprocessor/layer_norm": "bert.embeddings.LayerNorm",
    "pooler_transform": "bert.pooler.dense",
    "cls/predictions/transform/dense": "cls.predictions.transform.dense",
    "cls/predictions/transform/LayerNorm": "cls.predictions.transform.LayerNorm",
    "next_sentence/logits": "cls.seq_relationship",
}
_PARTS = {
    "self_attention/query": "attention.self.query",
    "self_attention/key": "attention.self.key",
    "self_attention/value": "attention.self.value",
    "self_attention/attention_output": "attention.output.dense",
    "self_attention_output": "attention.output.dense",
    "self_attention_layer_norm": "attention.output.LayerNorm",
    "intermediate": "intermediate.dense",
    "output": "output.dense",
    "output_layer_norm": "output.LayerNorm",
}
_WEIGHTS = {"kernel": "weight", "gamma": "weight", "beta": "bias", "bias": "bias"}
_LAYER = re.compile(rf"(?:.*/)?layer_(\d+)/({'|'.join(_PARTS)})/(kernel|bias|gamma|beta)")
# A head's first layer, if it has its own instead of the encoder's pooler, and its last one.
_HEAD = re.compile(r"(?:.*/)?[^/]+/(pooler_dense|logits)/(kernel|bias)")
_OLD_HEAD = re.compile(r"(?:.*/)?predictions/transform/logits/(kernel|bias)")
_POOLER = "bert.pooler.dense"


def open_tf2_checkpoint(path: Path) -> Arrays:
    """Opens a Model Garden BERT: an encoder with or without a head, or a SavedModel.

    If the head has its own pooler, that replaces the encoder's, which was then not trained.

    Args:
        path: a folder, a prefix such as "bert/ckpt-1", or a SavedModel's folder.

    Raises:
        FileNotFoundError: there is no checkpoint.
        ValueError: a file is damaged or missing; the folder has several checkpoints and does not
            say which to use; or the checkpoint is another model's.
    """
    stored, names = _opened(path)
    heads_own = any("pooler_dense/" in name for name in names)
    keys: dict[str, str] = {}
    for name, key in names.items():
        if heads_own and "pooler_transform/" in name:
            continue
        ours = _name(name, stored, names)
        if ours in keys:
            raise ValueError(f"{stored.prefix} has several heads: {name} is one of two {ours}")
        keys[ours] = key
    kernels = {key for name, key in names.items() if name.endswith("/kernel")}

    def read(name: str) -> np.ndarray:
        array = stored.read(keys[name])
        flat = array.reshape(_flat(name, array.shape))
        return flat.T if keys[name] in kernels else flat

    shapes = {
        name: _flat(name, stored.shapes[key])[:: -1 if key in kernels else 1]
        for name, key in keys.items()
    }
    return Arrays(stored.prefix, shapes, read, _architecture(shapes, names))


def number_of_heads(path: Path) -> int | None:
    """Returns the number of attention heads, an axis of Model Garden's kernels; None if missing."""
    stored, names = _opened(path)
    for name, key in names.items():
        match = _LAYER.fullmatch(name)
        if match and match[2] == "self_attention/query" and len(stored.shapes[key]) == 3:
            return stored.shapes[key][1]
    return None


def lowercases(path: Path) -> bool | None:
    """Returns whether a SavedModel of TF-Hub lower-cases texts; None if it does not say."""
    stored = StoredVariables.open(checkpoint_prefix(prefix_in(path) or path))
    key = next((key for key in stored.shapes if key.startswith("do_lower_case/")), None)
    return None if key is None else bool(np.all(stored.read(key)))


def prefix_in(path: Path) -> Path | None:
    """Returns the folder or prefix of a TensorFlow 2 checkpoint at a path."""
    if (path / "saved_model.pb").is_file():
        path = path / "variables"
    return path if any(map(is_object_based, checkpoints_at(path))) else None


def _opened(path: Path) -> tuple[StoredVariables, dict[str, str]]:
    """Returns the stored variables, and name -> key of the model's own."""
    stored = StoredVariables.open(checkpoint_prefix(prefix_in(path) or path))
    keys = stored.names or {}
    names = {name: key for key, name in keys.items()}
    words = [name for name in names if name.endswith("word_embeddings/embeddings")]
    if len(words) != 1 or len(names) != len(keys):
        raise ValueError(
            f"{stored.prefix} is not a single Model Garden BERT: it has {len(words)} variables "
            f"word_embeddings/embeddings, and {len(keys) - len(names)} names occur twice; the "
            f"first names are {', '.join(sorted(names)[:5])}"
        )
    return stored, names


def _name(name: str, stored: StoredVariables, names: Iterable[str]) -> str:
    """Returns Hugging Face's name of a variable; its own if it has none."""
    for end, ours in _WHOLE.items():
        if name == end or name.endswith(f"/{end}"):
            return ours
    module, _, weight = name.rpartition("/")
    weight = _WEIGHTS.get(weight, weight)
    for end, ours in _MODULES.items():
        if module == end or module.endswith(f"/{end}"):
            return f"{ours}.{weight}"
    if match := _LAYER.fullmatch(name):
        return f"bert.encoder.layer.{match[1]}.{_PARTS[match[2]]}.{weight}"
    if _OLD_HEAD.fullmatch(name):
        pretrains = any("cls/predictions/" in path for path in names)
        spans = "span_labeling" in stored.attributes
        head = "cls.seq_relationship" if pretrains else "qa_outputs" if spans else "classifier"
        return f"{head}.{weight}"
    if match := _HEAD.fullmatch(name):
        return f"{_POOLER if match[1] == 'pooler_dense' else 'classifier'}.{weight}"
    return name


def _flat(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns a shape without an axis for the heads."""
    if re.search(r"\.self\.(query|key|value)\.", name) and len(shape) in (2, 3):
        whole = name.endswith(".weight")
        rows = shape[:1] if whole else ()
        return (*rows, int(np.prod(shape[len(rows) :])))
    if name.endswith("attention.output.dense.weight") and len(shape) == 3:
        return (shape[0] * shape[1], shape[2])
    return shape


def _architecture(shapes: Mapping[str, tuple[int, ...]], names: Mapping[str, str]) -> str:
    """Returns Hugging Face's class of the model, by its head."""
    if "qa_outputs.bias" in shapes:
        return "BertForQuestionAnswering"
    if "cls.seq_relationship.bias" in shapes:
        return "BertForPreTraining"
    if "cls.predictions.bias" in shapes:
        return "BertForMaskedLM"
    if "classifier.bias" not in shapes:
        return "BertModel"
    # A tagger's last layer is on its own, a classifier's is inside a model of the same name.
    alone = [
        key
        for name, key in names.items()
        if _OLD_HEAD.fullmatch(name)
        and not re.search(r"layer_with_weights-\d+/.+/(kernel|bias)/", key)
    ]
    return "BertForTokenClassification" if alone else "BertForSequenceClassification"


CONTAINER = Container(
    "a checkpoint of TensorFlow 2, or a SavedModel's", 7, prefix_in, open_tf2_checkpoint
)
