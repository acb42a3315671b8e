"""Opens TensorFlow Model Garden's BERT (official/nlp) and TF-Hub's SavedModels.

They have no config.json. The variables determine everything except a few numbers, which are the
same in all published models.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert.containers.arrays import Arrays
from keras_transformers.convert.containers.tf_checkpoint import index_mentions
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.weights import Format, FoundWeights
from keras_transformers.families.bert.files import FAMILY
from keras_transformers.families.bert.google import (
    head_labels,
    read_google_bert_config,
    wordpiece_beside,
)
from keras_transformers.families.bert.model import bert
from keras_transformers.families.bert.model_garden_checkpoint import (
    lowercases,
    number_of_heads,
    open_tf2_checkpoint,
    prefix_in,
)
from keras_transformers.families.bert.shapes import encoder_arguments
from keras_transformers.families.transformer.opennmt_tf import MARK as OPENNMT_MARK

__all__: list[str] = []

_CONFIG = "bert_config.json"
# Hugging Face's class, named by the container -> the tasks that its heads were trained for.
_TRAINED = {
    "BertModel": ("embedding",),
    "BertForMaskedLM": ("fill_mask",),
    "BertForPreTraining": ("fill_mask", "next_sentence"),
    "BertForQuestionAnswering": ("question_answering",),
    "BertForSequenceClassification": ("classification",),
    "BertForTokenClassification": ("tagging",),
}


def open_model_garden(folder: Folder) -> FoundWeights:
    """Opens a checkpoint of Model Garden's BERT, or a SavedModel made from one, as on TF-Hub.

    The shapes of the variables determine the model's, its heads and their tasks, unless a
    bert_config.json beside them does. GELU is the tanh form. A SavedModel is read as data, not run;
    it has its vocabulary in `assets`, and says whether texts are lower-cased. Otherwise vocab.txt
    is beside the checkpoint, and texts keep their case if it has words with capitals.

    Args:
        folder: a folder, a checkpoint's prefix such as ".../ckpt-100", or a SavedModel's folder.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or the variables are another model's.
    """
    path = folder.path
    arrays = open_tf2_checkpoint(path)
    arguments = _arguments(path, arrays)
    trained: tuple[str, ...] = _TRAINED[arrays.architecture]
    labels = head_labels(arrays.shapes) if "classifier.bias" in arrays.shapes else []
    if trained == ("classification",) and len(labels) == 1:
        trained = ("regression",)

    def fill(model: keras.Model, ignore: Iterable[str]) -> list[str]:
        return FAMILY.fill(model, arrays, ignore=ignore)

    def tokenizers(lowercase: bool | None = None) -> tuple[Any, ...]:
        if _is_saved_model(path):
            return (wordpiece_beside(path / "assets/model", lowercase=lowercases(path)),)
        return (wordpiece_beside(arrays.source, lowercase=lowercase),)

    return FoundWeights(
        source=path,
        base="embedding",
        trained=trained,
        build=lambda **changes: bert(**(arguments | changes)),
        fill=fill,
        tokenizers=tokenizers,
        parts=FAMILY.parts,
        has_pooler="bert.pooler.dense.weight" in arrays.shapes,
        options={"labels": labels} if len(labels) > 1 else {},
        masked_lm={name: arguments[name] for name in ("activation", "norm_epsilon")},
    )


def _arguments(path: Path, arrays: Arrays) -> dict[str, Any]:
    """Returns the arguments that build the encoder; ValueError if the shapes contradict."""
    beside = arrays.source.with_name(_CONFIG)
    if beside.is_file():
        return read_google_bert_config(beside)
    return encoder_arguments(arrays, "bert", num_heads=number_of_heads(path), missing=_CONFIG)


def _is_saved_model(path: Path) -> bool:
    return (path / "saved_model.pb").is_file()


def _recognises(folder: Folder) -> bool:
    path = folder.path
    if (folder.directory / "config.json").is_file() or prefix_in(path) is None:
        return False
    if index_mentions(path, OPENNMT_MARK):
        return False
    # Other SavedModels, such as our exports, are not weights to read.
    file = path / "saved_model.pb"
    return not file.is_file() or b"word_embeddings/embeddings" in file.read_bytes()


FORMAT = Format(
    "Model Garden's checkpoints of BERT, TF-Hub's SavedModels", _recognises, open_model_garden
)
