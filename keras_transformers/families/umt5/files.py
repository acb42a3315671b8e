"""Describes UMT5 in Hugging Face's files: T5 1.1 whose layers have their own relative positions."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_transformers.convert.config_map import ConfigMap
from keras_transformers.convert.family import Family
from keras_transformers.families.t5 import files as t5
from keras_transformers.families.umt5.model import MODELS

__all__ = ["FAMILY"]

_MOST_LAYERS = 200
_SIDES = ("encoder", "decoder")


def _after_read(file: Path, config: Mapping[str, Any], arguments: t5.Arguments) -> t5.Arguments:
    return {**t5.after_read(file, config, arguments), "shared_position_bias": False}


_NAMES = dataclasses.replace(
    t5.NAMES,
    family="UMT5",
    layers={
        **t5.NAMES.layers,
        **{
            f"{side}_layer_{number}_position_bias": (
                f"{side}.block.{number}.layer.0.SelfAttention.relative_attention_bias"
            )
            for side in _SIDES
            for number in range(_MOST_LAYERS)
        },
    },
    required=("token_embedding", *(f"{side}_layer_0_position_bias" for side in _SIDES)),
)
CONFIG: ConfigMap = dataclasses.replace(
    t5.CONFIG,
    model_type="umt5",
    activation=("feed_forward_proj", "gated-gelu"),
    written={"architectures": ["UMT5ForConditionalGeneration"]},
    after_read=_after_read,
)
FAMILY: Family = dataclasses.replace(
    t5.FAMILY,
    model_type="umt5",
    entries=MODELS,
    names=_NAMES,
    fields=CONFIG,
    tokenizer=lambda folder, lowercase: t5.tokenizer_of(folder, CONFIG),
    writer=t5.writer_of("UMT5ForConditionalGeneration"),
    keras_nlp=None,
)
