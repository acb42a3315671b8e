"""Describes BART in Hugging Face's files."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_transformers.convert.config_map import ConfigMap, check_flag
from keras_transformers.convert.containers.arrays import Arrays
from keras_transformers.convert.family import Family, Writer, search_fields
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.name_map import Blocks, NameMap, prefixed
from keras_transformers.convert.tensors import Form
from keras_transformers.families.bart.model import FIRST_POSITION, MODELS, bart
from keras_transformers.families.marian import files as marian
from keras_transformers.families.roberta.files import SPECIAL_TOKENS
from keras_transformers.models.anatomy import anatomy
from keras_transformers.models.as_encoder import as_end_pooled_encoder

if TYPE_CHECKING:
    from keras_transformers.tokenizers import BartTokenizer

__all__ = ["FAMILY"]

_END = 2  # ends texts, and starts targets


def check_fields(
    file: Path, config: Mapping[str, Any], arguments: dict[str, Any]
) -> dict[str, Any]:
    """Returns the builder's arguments with the scale of the embeddings.

    Raises:
        ValueError: encoder and decoder have different sizes, or the scale is not a flag.
    """
    marian.check_same(file, config, marian.SAME)
    return {**arguments, "scale_embeddings": check_flag(file, config, "scale_embedding")}


def decoder_fields(
    model: keras.Model, arguments: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the arguments, and the fields of the decoder's sizes and of the embeddings' scale."""
    same = {
        other: arguments[ours]
        for ours, theirs in marian.REQUIRED.items()
        if (other := marian.SAME.get(theirs))
    }
    scale = anatomy(model, "token_embedding").token_embedding.scale
    return arguments, {**same, "scale_embedding": scale != 1.0}


def with_bias(model: keras.Model, arrays: Arrays) -> Arrays:
    """Returns the weights with a bias of the logits: zeros, as in transformers, if they lack it.

    A model with a classifier's head has no such logits.
    """
    if marian.BIAS in arrays or anatomy(model).projection is None:
        return arrays
    size = anatomy(model, "token_embedding").token_embedding.input_dim
    return arrays.including(marian.BIAS, np.zeros((1, size), "float32"))


LAYERS: dict[str, str] = {
    **marian.LAYERS,
    "source_embeddings_norm": "model.encoder.layernorm_embedding",
    "target_embeddings_norm": "model.decoder.layernorm_embedding",
}
_HEAD = "classification_head"
SEQUENCE_HEAD: dict[str, str] = {
    "pooler": f"{_HEAD}.dense",
    "logits": f"{_HEAD}.out_proj",
    "score_dense": f"{_HEAD}.out_proj",
}
# The parts of the files that a model with another head leaves out.
PARTS: tuple[str, ...] = (f"{_HEAD}.*",)
PROJECTION: tuple[str, ...] = (marian.BIAS,)
# The tasks that transformers' class of classifiers serves.
CLASSIFIES: tuple[str, ...] = (
    "classification",
    "multi_label_classification",
    "regression",
    "reranking",
    "zero_shot_classification",
)
_NAMES = NameMap(
    "BART",
    layers=LAYERS,
    blocks=Blocks("model.encoder.layers.{}", marian.ENCODER_BLOCK),
    decoder_blocks=Blocks("model.decoder.layers.{}", marian.DECODER_BLOCK),
    sequence_head=SEQUENCE_HEAD,
    stored={"logits/bias": (marian.BIAS, Form(ones=1))},
    rewritten=(prefixed("model", "shared", "encoder", "decoder"),),
    tied=marian.TIED,
    buffers=("model.encoder.version", "model.decoder.version"),  # fairseq's
    required=tuple(LAYERS),
    traits={
        "source_position_embedding.first_position": FIRST_POSITION,
        "block.norm_position": "post",
    },
)
_CONFIG = ConfigMap(
    "bart",
    required=marian.REQUIRED,
    optional=marian.OPTIONAL,
    activation=("activation_function", "gelu"),
    fixed={
        "tie_word_embeddings": True,
        "static_position_embeddings": False,
        "normalize_before": False,
        "normalize_embedding": True,
        "add_bias_logits": False,
        "add_final_layer_norm": False,
        "is_encoder_decoder": True,
        "eos_token_id": _END,
        "decoder_start_token_id": _END,
    },
    after_read=check_fields,
    before_write=decoder_fields,
)


def _tokenizer(folder: Folder, lowercase: bool) -> "BartTokenizer":
    # Imported here because it needs TensorFlow, which the weights do not.
    from keras_transformers.tokenizers import BartTokenizer

    arguments = _CONFIG.read(folder)
    tokenizer = BartTokenizer(folder, vocabulary_size=arguments["vocabulary_size"])
    for field, token_id, wanted in (
        ("pad_token_id", tokenizer.pad_token_id, arguments["pad_token_id"]),
        ("eos_token_id", tokenizer.end_token_id, _END),
    ):
        if token_id != wanted:
            raise ValueError(
                f"{folder}: {field} is {wanted} in config.json, but the vocabulary's token has the "
                f"id {token_id}: use the vocabulary that belongs to the weights"
            )
    return tokenizer


FAMILY: Family = Family(
    "bart",
    MODELS,
    _NAMES,
    _CONFIG,
    bart,
    _tokenizer,
    Writer(
        {
            "translation": "BartForConditionalGeneration",
            **dict.fromkeys(CLASSIFIES, "BartForSequenceClassification"),
        },
        tokenizer="BartTokenizer",
        tokenizer_class="BartTokenizer",
        special_tokens=tuple(name for name in SPECIAL_TOKENS if name != "mask_token"),
        generation_fields=search_fields,
    ),
    parts=PARTS,
    projection=PROJECTION,
    task="translation",
    generates=True,
    as_encoder=functools.partial(as_end_pooled_encoder, end_token_id=_END, start_token_id=_END),
    trained={"ForConditionalGeneration": ("translation",)},
    tokenizer_classes=("BartTokenizer", "RobertaTokenizer"),
    adapt=with_bias,
)
