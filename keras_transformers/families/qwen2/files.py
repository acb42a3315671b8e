"""Describes Qwen 2 and 2.5 in Hugging Face's files: Llama with biases on queries, keys, values."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert.family import Family
from keras_transformers.families.llama import files as llama
from keras_transformers.families.llama.gguf import GGUF

__all__ = ["FAMILY"]


def _read_more(
    file: Path, config: Mapping[str, Any], arguments: llama.Arguments
) -> llama.Arguments:
    windows = llama.read_windows(file, config, arguments)
    return {"use_attention_bias": True, "use_output_bias": False, "windows": windows}


def _accepts(model: keras.Model) -> bool:
    traits = dataclasses.replace(llama.traits(model), has_windows=False)
    return traits == llama.Traits(has_bias=True)


FAMILY: Family = llama.family(
    "qwen2",
    "Qwen2",
    "Qwen 2",
    llama.config_map("qwen2", read_more=_read_more, write_more=llama.written_windows),
    _accepts,
    entries=("qwen2",),
    gguf=GGUF,
)
