"""Describes RoBERTa in Hugging Face's files."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_transformers.convert.config_map import ConfigMap
from keras_transformers.convert.family import Family, Writer
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.keras_backbones import Backbone
from keras_transformers.convert.name_map import Blocks, NameMap, prefixed
from keras_transformers.families.bert import files as bert
from keras_transformers.families.roberta.model import FIRST_POSITION, MODELS, roberta

__all__ = ["FAMILY"]

# A classifier there has no pooler: the pooler's layer is the first layer of the head.
SEQUENCE_HEAD: dict[str, str] = {
    "pooler": "classifier.dense",
    "logits": "classifier.out_proj",
    "score_dense": "classifier.out_proj",
}
NAMES: NameMap = NameMap(
    "RoBERTa",
    layers={
        "token_embedding": "roberta.embeddings.word_embeddings",
        "position_embedding": "roberta.embeddings.position_embeddings",
        "segment_embedding": "roberta.embeddings.token_type_embeddings",
        "embeddings_norm": "roberta.embeddings.LayerNorm",
        "pooler": "roberta.pooler.dense",
        "masked_lm_dense": "lm_head.dense",
        "masked_lm_norm": "lm_head.layer_norm",
        "mask_logits": "lm_head",
        "logits": "classifier",
        "score_dense": "classifier",
        "span_logits": "qa_outputs",
    },
    blocks=Blocks("roberta.encoder.layer.{}", bert.BLOCK),
    sequence_head=SEQUENCE_HEAD,
    rewritten=(prefixed("roberta", "embeddings", "encoder", "pooler"),),
    tied={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    buffers=("roberta.embeddings.position_ids", "roberta.embeddings.token_type_ids"),
    required=("token_embedding", "position_embedding", "segment_embedding"),
    traits={**bert.ENCODER_TRAITS, "position_embedding.first_position": FIRST_POSITION},
)
CONFIG: ConfigMap = ConfigMap(
    "roberta",
    required=bert.CONFIG.required,
    optional={
        ours: theirs for ours, theirs in bert.CONFIG.optional.items() if ours != "num_segments"
    },
    fixed={**bert.CONFIG.fixed, "type_vocab_size": 1, "pad_token_id": FIRST_POSITION - 1},
    offsets={"max_sequence_length": FIRST_POSITION},  # the first rows belong to no position
    written={"bos_token_id": 0, "eos_token_id": 2},
)
# The fields of `tokenizer_config.json` that name its special tokens.
SPECIAL_TOKENS: tuple[str, ...] = ("bos_token", "eos_token", *bert.SPECIAL_TOKENS)
PARTS: tuple[str, ...] = ("roberta.pooler.*", "lm_head.*", "classifier.*", "qa_outputs.*")


def tokenizer_fields(tokenizers: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the mask token with `lstrip` set.

    Raises:
        ValueError: the id of padding is not the one from which transformers counts positions.
    """
    tokenizer = tokenizers["tokenizer"]
    pad, wanted = tokenizer.pad_token_id, FIRST_POSITION - 1
    if pad != wanted:
        raise ValueError(
            f"{tokenizer.vocabulary[pad]!r} has the id {pad} in this vocabulary; in transformers, "
            f"the token with id {wanted} takes no position, so it must be the padding: save "
            "in the format 'keras_transformers', or train with a vocabulary in fairseq's order, "
            "<s> <pad> </s> <unk> first"
        )
    added = {"__type": "AddedToken", "content": tokenizer.mask_token, "lstrip": True}
    return {"mask_token": {**added, "normalized": False, "rstrip": False, "single_word": False}}


def _tokenizer(folder: Folder, lowercase: bool) -> Any:
    # Imported here because it needs TensorFlow, which the weights do not.
    from keras_transformers.tokenizers.byte_pairs.roberta import RobertaTokenizer

    return RobertaTokenizer(folder)


def _with_unused_rows(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Adds what keras-nlp's class lacks: segments, and rows before the first position."""
    positions = arrays["position_embedding/embeddings"]
    before = np.zeros((FIRST_POSITION, positions.shape[1]), "float32")
    return {
        **arrays,
        "position_embedding/embeddings": np.concatenate([before, positions]),
        "segment_embedding/embeddings": np.zeros((1, positions.shape[1]), "float32"),
    }


BACKBONE: Backbone = Backbone(
    name="RobertaBackbone", fixed={"norm_epsilon": 1e-5}, adapt=_with_unused_rows
)
FAMILY: Family = Family(
    "roberta",
    MODELS,
    NAMES,
    CONFIG,
    roberta,
    _tokenizer,
    Writer(
        "Roberta",
        tokenizer="RobertaTokenizer",
        tokenizer_class="RobertaTokenizer",
        special_tokens=SPECIAL_TOKENS,
        tokenizer_fields=tokenizer_fields,
    ),
    parts=PARTS,
    masked_lm_activation="gelu",  # regardless of the encoder's
    keras_nlp=BACKBONE,
)
