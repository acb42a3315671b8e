"""Describes DistilBERT in Hugging Face's files."""

from typing import Any

import keras

from keras_transformers.convert.config_map import ConfigMap
from keras_transformers.convert.family import Family, Writer
from keras_transformers.convert.keras_backbones import Backbone
from keras_transformers.convert.name_map import Blocks, NameMap, prefixed
from keras_transformers.families.bert import files as bert
from keras_transformers.families.distilbert.model import MODELS, distilbert, with_pooler

__all__ = ["FAMILY"]

_NAMES = NameMap(
    "DistilBERT",
    layers={
        "token_embedding": "distilbert.embeddings.word_embeddings",
        "position_embedding": "distilbert.embeddings.position_embeddings",
        "embeddings_norm": "distilbert.embeddings.LayerNorm",
        "pooler": "pre_classifier",
        "masked_lm_dense": "vocab_transform",
        "masked_lm_norm": "vocab_layer_norm",
        "mask_logits": "vocab_projector",
        "logits": "classifier",
        "score_dense": "classifier",
        "span_logits": "qa_outputs",
    },
    blocks=Blocks(
        "distilbert.transformer.layer.{}",
        {
            "self_attention/query": "attention.q_lin",
            "self_attention/key": "attention.k_lin",
            "self_attention/value": "attention.v_lin",
            "self_attention/output": "attention.out_lin",
            "self_attention_norm": "sa_layer_norm",
            "feed_forward/intermediate": "ffn.lin1",
            "feed_forward/output": "ffn.lin2",
            "feed_forward_norm": "output_layer_norm",
        },
    ),
    rewritten=(prefixed("distilbert", "embeddings", "transformer"),),
    tied={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
    required=("token_embedding", "position_embedding"),
    traits={**bert.ENCODER_TRAITS, "pooler.activation": "relu"},
)
_CONFIG = ConfigMap(
    "distilbert",
    required={
        "vocabulary_size": "vocab_size",
        "num_layers": "n_layers",
        "num_heads": "n_heads",
        "hidden_dim": "dim",
        "intermediate_dim": "hidden_dim",
        "max_sequence_length": "max_position_embeddings",
    },
    optional={
        "dropout": ("dropout", 0.1),
        "attention_dropout": ("attention_dropout", 0.1),
        "initializer_range": ("initializer_range", 0.02),
    },
    activation=("activation", "gelu"),
)


def _build(**arguments: Any) -> keras.Model:
    return with_pooler(distilbert(**arguments))


FAMILY: Family = Family(
    "distilbert",
    MODELS,
    _NAMES,
    _CONFIG,
    _build,
    bert.wordpieces,
    Writer(
        "DistilBert",
        tokenizer="WordPieceTokenizer",
        tokenizer_class="DistilBertTokenizer",
        reads_tokenizer_json=True,
        special_tokens=bert.SPECIAL_TOKENS,
    ),
    parts=("vocab_*", "pre_classifier.*", "classifier.*", "qa_outputs.*"),
    keras_nlp=Backbone(name="DistilBertBackbone"),
)
