"""Describes ELECTRA in Hugging Face's files: discriminators, generators and fine-tuned models."""

from typing import Any

import keras

from keras_transformers.convert.config_map import ConfigMap
from keras_transformers.convert.family import Family, Writer
from keras_transformers.convert.name_map import Blocks, NameMap, prefixed
from keras_transformers.families.bert import files as bert
from keras_transformers.families.electra.model import MODELS, electra, with_pooler
from keras_transformers.families.roberta import files as roberta

__all__ = ["FAMILY"]

# Output of a pretraining head -> the class that has it.
_CLASSES = {"replaced_logits": "ElectraForPreTraining", "mask_logits": "ElectraForMaskedLM"}


def _classes(
    model: keras.Model, arguments: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the class of a discriminator or generator, whose configurations look the same."""
    classes = [_CLASSES[name] for name in model.output if name in _CLASSES]
    return arguments, {"architectures": classes} if classes else {}


_NAMES = NameMap(
    "ELECTRA",
    layers={
        "token_embedding": "electra.embeddings.word_embeddings",
        "position_embedding": "electra.embeddings.position_embeddings",
        "segment_embedding": "electra.embeddings.token_type_embeddings",
        "embeddings_norm": "electra.embeddings.LayerNorm",
        "embeddings_project": "electra.embeddings_project",
        "pooler": "sequence_summary.summary",  # of choices
        "masked_lm_dense": "generator_predictions.dense",
        "masked_lm_norm": "generator_predictions.LayerNorm",
        "mask_logits": "generator_lm_head",
        "replaced_dense": "discriminator_predictions.dense",
        "replaced_score": "discriminator_predictions.dense_prediction",
        "logits": "classifier",
        "score_dense": "classifier",
        "span_logits": "qa_outputs",
    },
    blocks=Blocks("electra.encoder.layer.{}", bert.BLOCK),
    sequence_head=roberta.SEQUENCE_HEAD,
    rewritten=(prefixed("electra", "embeddings", "embeddings_project", "encoder"),),
    tied={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
    buffers=("electra.embeddings.position_ids", "electra.embeddings.token_type_ids"),
    required=("token_embedding", "position_embedding", "segment_embedding"),
    traits={**bert.ENCODER_TRAITS, "pooler.activation": "gelu"},
)
_CONFIG = ConfigMap(
    "electra",
    required=bert.CONFIG.required,
    optional={"embedding_dim": ("embedding_size", 128), **bert.CONFIG.optional},
    fixed={**bert.CONFIG.fixed, "summary_type": "first", "summary_activation": "gelu"},
    before_write=_classes,
)


def _build(**arguments: Any) -> keras.Model:
    return with_pooler(electra(**arguments))


def _accepts(model: keras.Model) -> bool:
    """Returns whether a model has layers that BERT lacks, and is not a tagger with one logit.

    A detector has one logit per token, while ElectraForTokenClassification has two classes.
    """
    names = {layer.name for layer in model.layers}
    return bool(names & {"embeddings_project", "pooler"}) and "replaced_score" not in names


FAMILY: Family = Family(
    "electra",
    MODELS,
    _NAMES,
    _CONFIG,
    _build,
    bert.wordpieces,
    Writer(
        "Electra",
        tokenizer="WordPieceTokenizer",
        tokenizer_class="ElectraTokenizer",
        reads_tokenizer_json=True,
        special_tokens=bert.SPECIAL_TOKENS,
    ),
    parts=(
        *("generator*", "discriminator_predictions.*", "sequence_summary.*"),
        *("classifier.*", "qa_outputs.*"),
    ),
    masked_lm_activation="gelu",  # regardless of the encoder's
    trained={"ForPreTraining": ("replaced_tokens",)},
    accepts=_accepts,
)
