"""Reads Google's TensorFlow 1 checkpoints of BERT, ALBERT and ELECTRA."""

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from keras_transformers.convert.containers.arrays import Arrays, Container
from keras_transformers.convert.containers.tf_checkpoint import (
    StoredVariables,
    checkpoint_prefix,
    checkpoints_at,
    index_of,
    is_object_based,
)

__all__: list[str] = []

# A tensor whose name does not follow the rule -> Hugging Face's. Google's run_classifier.py and
# run_squad.py write those without "predictions" and "seq_relationship".
_SPECIAL = {
    "cls/predictions/output_bias": "cls.predictions.bias",
    "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
    "cls/seq_relationship/output_bias": "cls.seq_relationship.bias",
    "output_weights": "classifier.weight",
    "output_bias": "classifier.bias",
    "cls/squad/output_weights": "qa_outputs.weight",
    "cls/squad/output_bias": "qa_outputs.bias",
    "generator_predictions/output_bias": "generator_lm_head.bias",
    "discriminator_predictions/dense_1/kernel": "discriminator_predictions.dense_prediction.weight",
    "discriminator_predictions/dense_1/bias": "discriminator_predictions.dense_prediction.bias",
}
# Names in an index -> the family that has them; the first match decides.
_MARKS = {
    b"electra/embeddings/": "electra",
    b"embedding_hidden_mapping_in/": "albert",
    b"bert/embeddings/": "bert",
}
# ALBERT's scopes -> Hugging Face's modules, applied in order.
_ALBERT = (
    (r"^bert/", "albert/"),
    (r"/transformer/group_0/inner_group_0/", "/albert_layer_groups/0/albert_layers/0/"),
    (r"albert_layers/0/LayerNorm/", "albert_layers/0/attention/LayerNorm/"),
    (r"/LayerNorm_1/", "/full_layer_layer_norm/"),
    (r"/attention_1/(self|output)/", "/attention/"),
    (r"/ffn_1/intermediate/output/dense/", "/ffn_output/"),
    (r"/ffn_1/intermediate/dense/", "/ffn/"),
    (r"/pooler/dense/", "/pooler/"),
    (r"^cls/predictions/(transform/)?", "predictions/"),
    (r"^predictions/output_bias$", "predictions/bias"),
    (r"^cls/seq_relationship/output_weights$", "sop_classifier/classifier/weight"),
    (r"^cls/seq_relationship/output_bias$", "sop_classifier/classifier/bias"),
)
_PROJECTION = "/embedding_hidden_mapping_in/"
_WEIGHTS = {"kernel": "weight", "gamma": "weight", "beta": "bias", "bias": "bias"}
# The optimizer's, not the model's: the slots of a variable follow its name.
_TRAINING = re.compile(r"(.*/)?(adam_[mv]|global_step|[Aa]dam.*|beta[12]_power)")


def open_tf1_checkpoint(path: Path) -> Arrays:
    """Opens a checkpoint of Google's BERT, ALBERT or ELECTRA, without the optimizer's variables.

    Args:
        path: a folder, or a prefix such as "uncased_L-12_H-768_A-12/bert_model.ckpt".

    Raises:
        FileNotFoundError: there is no checkpoint.
        ValueError: a file is damaged or missing, or the folder has several checkpoints and does not
            say which to use. The checksums of all tensors are verified as they are read.
    """
    stored = StoredVariables.open(checkpoint_prefix(path))
    scopes = _ALBERT if any(_PROJECTION in key for key in stored.shapes) else ()
    keys = {_name(key, scopes): key for key in stored.shapes if not is_training_state(key)}

    def read(name: str) -> np.ndarray:
        array = stored.read(keys[name])
        return array.T if keys[name].endswith("/kernel") else array

    shapes = {
        name: stored.shapes[key][::-1] if key.endswith("/kernel") else stored.shapes[key]
        for name, key in keys.items()
    }
    return Arrays(stored.prefix, shapes, read)


def is_training_state(name: str) -> bool:
    """Returns whether a variable belongs to an optimizer."""
    return _TRAINING.fullmatch(name) is not None


def checkpoint_family(path: Path) -> str:
    """Returns the family of one of Google's checkpoints, "bert" and so on; "" for others.

    It searches only the index, where names omit the start that they share with the previous name;
    therefore it looks for the first name of a module.

    Args:
        path: a folder, of whose checkpoints one decides, or a prefix.
    """
    prefixes = [prefix for prefix in checkpoints_at(path) if not is_object_based(prefix)]
    index = b"".join(index_of(prefix).read_bytes() for prefix in prefixes[:1])
    families = [family for mark, family in _MARKS.items() if mark in index]
    return families[0] if families else ""


def _name(name: str, scopes: Iterable[tuple[str, str]]) -> str:
    for pattern, module in scopes:
        name = re.sub(pattern, module, name)
    if name in _SPECIAL:
        return _SPECIAL[name]
    module, _, last = name.rpartition("/")
    if last.endswith("_embeddings"):
        return f"{name}/weight".replace("/", ".")
    module = re.sub(r"/layer_(\d+)/", r"/layer/\1/", module)
    return f"{module}/{_WEIGHTS.get(last, last)}".lstrip("/").replace("/", ".")


def _find(path: Path) -> Path | None:
    return path if any(not is_object_based(prefix) for prefix in checkpoints_at(path)) else None


CONTAINER = Container("a checkpoint of TensorFlow 1", 6, _find, open_tf1_checkpoint)
