"""Describes Phi-3 in Hugging Face's files: Llama, or Mistral, with joined matrices."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert.config_map import check_size
from keras_transformers.convert.family import Family
from keras_transformers.convert.name_map import NameMap
from keras_transformers.families.llama import files as llama
from keras_transformers.families.llama.gguf import GGUF

__all__ = ["FAMILY"]

_JOINED = {
    "self_attention/query": "self_attn.qkv_proj",
    "self_attention/key": "self_attn.qkv_proj",
    "self_attention/value": "self_attn.qkv_proj",
    "feed_forward/intermediate": "mlp.gate_up_proj",
    "feed_forward/gate": "mlp.gate_up_proj",
}
_SEPARATE: NameMap = llama.name_map("Phi-3")
_NAMES: NameMap = dataclasses.replace(
    _SEPARATE,
    blocks=dataclasses.replace(_SEPARATE.blocks, parts={**_SEPARATE.blocks.parts, **_JOINED}),
)


def _read_more(
    file: Path, config: Mapping[str, Any], arguments: llama.Arguments
) -> llama.Arguments:
    window = config.get("sliding_window")
    if window is None:
        return {}
    return {"windows": (check_size(file, "sliding_window", window),) * arguments["num_layers"]}


def _write_more(model: keras.Model) -> dict[str, Any]:
    return {"sliding_window": llama.windows_of(model)[0]}


_PARTS = {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}
FAMILY: Family = dataclasses.replace(
    llama.family(
        "phi3",
        "Phi3",
        "Phi-3",
        llama.config_map("phi3", read_more=_read_more, write_more=_write_more, norm_epsilon=1e-5),
        lambda model: False,  # saved as the Llama or Mistral that it equals
        entries=("phi3",),
        gguf=dataclasses.replace(GGUF, parts={**GGUF.parts, **_PARTS}),
    ),
    names=_NAMES,
)
