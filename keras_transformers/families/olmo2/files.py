"""Describes OLMo 2 in Hugging Face's files: Llama with its norms after the sub-layers."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert.config_map import check_flag
from keras_transformers.convert.family import Family
from keras_transformers.convert.name_map import NameMap
from keras_transformers.families.llama import files as llama
from keras_transformers.families.llama.gguf import GGUF
from keras_transformers.models.anatomy import anatomy

__all__ = ["FAMILY"]

_NORMS = {
    "self_attention_norm": "post_attention_layernorm",
    "feed_forward_norm": "post_feedforward_layernorm",
}
_BEFORE: NameMap = llama.name_map("OLMo 2")
_NAMES: NameMap = dataclasses.replace(
    _BEFORE,
    blocks=dataclasses.replace(_BEFORE.blocks, parts={**_BEFORE.blocks.parts, **_NORMS}),
    traits={"block.norm": "rms", "block.norm_position": "output"},
)
_PARTS = {
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def _read_more(
    file: Path, config: Mapping[str, Any], arguments: llama.Arguments
) -> llama.Arguments:
    return {
        "norm_position": "output",
        "query_key_norm": True,
        "query_key_norm_over": "width",
        "use_attention_bias": check_flag(file, config, "attention_bias"),
    }


def _write_more(model: keras.Model) -> dict[str, Any]:
    return {"attention_bias": anatomy(model, "blocks").blocks[0].self_attention.use_bias}


def _accepts(model: keras.Model) -> bool:
    traits = llama.traits(model)
    has_bias = traits.has_bias
    return traits == llama.Traits(has_wide_norms=True, has_bias=has_bias, has_output_bias=has_bias)


FAMILY: Family = dataclasses.replace(
    llama.family(
        "olmo2",
        "Olmo2",
        "OLMo 2",
        llama.config_map("olmo2", read_more=_read_more, write_more=_write_more, norm_epsilon=1e-5),
        _accepts,
        entries=("olmo2",),
        gguf=dataclasses.replace(GGUF, parts={**GGUF.parts, **_PARTS}),
    ),
    names=_NAMES,
)
