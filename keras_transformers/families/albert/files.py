"""Describes ALBERT in Hugging Face's files: one block for any `num_layers`."""

from typing import Any

import keras

from keras_transformers.convert.config_map import ConfigMap
from keras_transformers.convert.family import Family, Writer
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.keras_backbones import TEXTS, Backbone
from keras_transformers.convert.name_map import Blocks, NameMap, prefixed
from keras_transformers.families.albert.model import MODELS, albert
from keras_transformers.families.bert import files as bert
from keras_transformers.models.anatomy import anatomy

__all__ = ["FAMILY"]

NAMES: NameMap = NameMap(
    "ALBERT",
    layers={
        "token_embedding": "albert.embeddings.word_embeddings",
        "position_embedding": "albert.embeddings.position_embeddings",
        "segment_embedding": "albert.embeddings.token_type_embeddings",
        "embeddings_norm": "albert.embeddings.LayerNorm",
        "embeddings_project": "albert.encoder.embedding_hidden_mapping_in",
        "pooler": "albert.pooler",
        "masked_lm_dense": "predictions.dense",
        "masked_lm_norm": "predictions.LayerNorm",
        "mask_logits": "predictions",
        "logits": "classifier",
        "score_dense": "classifier",
        "span_logits": "qa_outputs",
    },
    blocks=Blocks(
        "albert.encoder.albert_layer_groups.0.albert_layers.0",
        {
            "self_attention/query": "attention.query",
            "self_attention/key": "attention.key",
            "self_attention/value": "attention.value",
            "self_attention/output": "attention.dense",
            "self_attention_norm": "attention.LayerNorm",
            "feed_forward/intermediate": "ffn",
            "feed_forward/output": "ffn_output",
            "feed_forward_norm": "full_layer_layer_norm",
        },
    ),
    rewritten=(prefixed("albert", "embeddings", "encoder", "pooler"),),
    tied={
        "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
    buffers=("albert.embeddings.position_ids", "albert.embeddings.token_type_ids"),
    required=("token_embedding", "position_embedding", "segment_embedding", "embeddings_project"),
    traits=bert.NAMES.traits,
)
CONFIG: ConfigMap = ConfigMap(
    "albert",
    required=bert.CONFIG.required,
    optional={
        **bert.CONFIG.optional,
        "embedding_dim": ("embedding_size", 128),
        "dropout": ("hidden_dropout_prob", 0.0),
        "attention_dropout": ("attention_probs_dropout_prob", 0.0),
    },
    activation=("hidden_act", "gelu_new"),
    fixed={"position_embedding_type": "absolute", "num_hidden_groups": 1, "inner_group_num": 1},
)


def _tokenizer(folder: Folder, lowercase: bool) -> Any:
    # Imported here because it needs TensorFlow, which the weights do not.
    from keras_transformers.tokenizers.sentence_pieces.albert import AlbertTokenizer

    config = folder.json("tokenizer_config.json", missing_ok=True)
    keeps = bool(config.get("keep_accents"))
    return AlbertTokenizer(folder, lowercase=lowercase, keep_accents=keeps)


def _is_one_block(model: keras.Model) -> bool:
    """Returns whether all layers of a model share one block, unlike ELECTRA's."""
    return len({id(block) for block in anatomy(model).blocks}) == 1


FAMILY: Family = Family(
    "albert",
    MODELS,
    NAMES,
    CONFIG,
    albert,
    _tokenizer,
    Writer(
        "Albert",
        tokenizer="AlbertTokenizer",
        tokenizer_class="AlbertTokenizer",
        special_tokens=bert.SPECIAL_TOKENS,
        tokenizer_fields=lambda tokenizers: {"keep_accents": tokenizers["tokenizer"].keep_accents},
    ),
    parts=("albert.pooler.*", "predictions.*", "sop_classifier.*", "classifier.*", "qa_outputs.*"),
    pieces_file="spiece.model",
    first_pieces=("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
    vocabulary_file="spiece.model",
    accepts=_is_one_block,
    keras_nlp=Backbone(
        name="AlbertBackbone",
        fields=(*TEXTS, "num_segments", "embedding_dim"),
        fixed={"activation": "gelu_approximate", "norm_epsilon": 1e-12},
        only={"num_groups": 1, "num_inner_repetitions": 1},
        has_pooler=True,
        blocks=r"group_(0)_inner_layer_0/(.+)",
        our_blocks="encoder_layer",
    ),
)
