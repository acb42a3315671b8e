"""Describes MPNet in Hugging Face's files."""

from typing import Any

from keras_transformers.convert.config_map import ConfigMap
from keras_transformers.convert.family import Family, Writer
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.name_map import Blocks, NameMap, prefixed
from keras_transformers.families.mpnet.model import FIRST_POSITION, MODELS, NUM_BUCKETS, mpnet
from keras_transformers.families.roberta import files as roberta

__all__ = ["FAMILY"]

_NAMES = NameMap(
    "MPNet",
    layers={
        "token_embedding": "mpnet.embeddings.word_embeddings",
        "position_embedding": "mpnet.embeddings.position_embeddings",
        "relative_position_bias": "mpnet.encoder.relative_attention_bias",
        "embeddings_norm": "mpnet.embeddings.LayerNorm",
        "pooler": "mpnet.pooler.dense",
        "masked_lm_dense": "lm_head.dense",
        "masked_lm_norm": "lm_head.layer_norm",
        "mask_logits": "lm_head",
        "logits": "classifier",
        "score_dense": "classifier",
        "span_logits": "qa_outputs",
    },
    blocks=Blocks(
        "mpnet.encoder.layer.{}",
        {
            "self_attention/query": "attention.attn.q",
            "self_attention/key": "attention.attn.k",
            "self_attention/value": "attention.attn.v",
            "self_attention/output": "attention.attn.o",
            "self_attention_norm": "attention.LayerNorm",
            "feed_forward/intermediate": "intermediate.dense",
            "feed_forward/output": "output.dense",
            "feed_forward_norm": "output.LayerNorm",
        },
    ),
    sequence_head=roberta.SEQUENCE_HEAD,
    rewritten=(prefixed("mpnet", "embeddings", "encoder", "pooler"),),
    tied={
        "lm_head.decoder.weight": "mpnet.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    buffers=("mpnet.embeddings.position_ids",),
    required=("token_embedding", "position_embedding", "relative_position_bias"),
    traits=roberta.NAMES.traits,
)
_CONFIG = ConfigMap(
    "mpnet",
    required=roberta.CONFIG.required,
    optional=roberta.CONFIG.optional,
    fixed={
        "pad_token_id": FIRST_POSITION - 1,
        "relative_attention_num_buckets": NUM_BUCKETS,
    },
    offsets=roberta.CONFIG.offsets,
    written=roberta.CONFIG.written,
)


def _tokenizer(folder: Folder, lowercase: bool) -> Any:
    # Imported here because it needs TensorFlow, which the weights do not.
    from keras_transformers.tokenizers.mpnet import MPNetTokenizer

    return MPNetTokenizer(folder.file("vocab.txt"), lowercase=lowercase)


FAMILY: Family = Family(
    "mpnet",
    MODELS,
    _NAMES,
    _CONFIG,
    mpnet,
    _tokenizer,
    Writer(
        "MPNet",
        tokenizer="MPNetTokenizer",
        tokenizer_class="MPNetTokenizer",
        special_tokens=roberta.SPECIAL_TOKENS,
        tokenizer_fields=roberta.tokenizer_fields,
    ),
    parts=("mpnet.pooler.*", "lm_head.*", "classifier.*", "qa_outputs.*"),
    masked_lm_activation="gelu",  # regardless of the encoder's
)
