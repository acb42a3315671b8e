"""Describes mT5 in Hugging Face's files: T5 1.1 with another tokenizer."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_transformers.convert.config_map import ConfigMap
from keras_transformers.convert.family import Family
from keras_transformers.families.mt5.model import MODELS
from keras_transformers.families.t5 import files as t5
from keras_transformers.models.anatomy import anatomy

__all__ = ["FAMILY"]

_TOKENIZER = "MT5Tokenizer"


def _after_read(file: Path, config: Mapping[str, Any], arguments: t5.Arguments) -> t5.Arguments:
    # The logits have their own matrix, whatever transformers 5 writes about it.
    return {**t5.after_read(file, config, arguments), "tied_logits": False}


CONFIG: ConfigMap = dataclasses.replace(
    t5.CONFIG,
    model_type="mt5",
    activation=("feed_forward_proj", "gated-gelu"),
    written={"architectures": ["MT5ForConditionalGeneration"]},
    after_read=_after_read,
)
FAMILY: Family = dataclasses.replace(
    t5.FAMILY,
    model_type="mt5",
    entries=MODELS,
    fields=CONFIG,
    tokenizer=lambda folder, lowercase: t5.tokenizer_of(folder, CONFIG, _TOKENIZER),
    writer=t5.writer_of("MT5ForConditionalGeneration", tokenizer=_TOKENIZER),
    tokenizer_classes=("T5Tokenizer", "MT5Tokenizer"),
    longest_text=1024,  # the longest in pretraining
    accepts=lambda model: anatomy(model).projection is not anatomy(model).token_embedding,
    keras_nlp=None,
)
