"""Describes Qwen 3 in Hugging Face's files: Llama with norms on each head's queries and keys."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert.config_map import check_flag
from keras_transformers.convert.family import Family
from keras_transformers.families.llama import files as llama
from keras_transformers.families.llama.gguf import GGUF
from keras_transformers.models.anatomy import anatomy

__all__ = ["FAMILY"]

_HEAD_DIM = 128  # in files without the field


def _read_more(
    file: Path, config: Mapping[str, Any], arguments: llama.Arguments
) -> llama.Arguments:
    return {
        "query_key_norm": True,
        "use_attention_bias": check_flag(file, config, "attention_bias"),
        "windows": llama.read_windows(file, config, arguments),
    }


def _write_more(model: keras.Model) -> dict[str, Any]:
    attention = anatomy(model, "blocks").blocks[0].self_attention
    return {"attention_bias": attention.use_bias, **llama.written_windows(model)}


def _accepts(model: keras.Model) -> bool:
    traits = llama.traits(model)
    return traits.has_norms and traits.is_rotary and traits.has_bias == traits.has_output_bias


_FIELDS = llama.config_map("qwen3", read_more=_read_more, write_more=_write_more)
FAMILY: Family = llama.family(
    "qwen3",
    "Qwen3",
    "Qwen 3",
    dataclasses.replace(
        _FIELDS, optional={**_FIELDS.optional, "head_dim": ("head_dim", _HEAD_DIM)}
    ),
    _accepts,
    entries=("qwen3",),
    gguf=GGUF,
)
