"""Describes Mistral in Hugging Face's files: Llama with sliding windows."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert.config_map import check_size
from keras_transformers.convert.family import Family
from keras_transformers.families.llama import files as llama

__all__ = ["FAMILY"]


def _read_more(
    file: Path, config: Mapping[str, Any], arguments: llama.Arguments
) -> llama.Arguments:
    window = config.get("sliding_window", 4096)
    if window is None:
        return {}
    return {"windows": (check_size(file, "sliding_window", window),) * arguments["num_layers"]}


def _write_more(model: keras.Model) -> dict[str, Any]:
    return {"sliding_window": llama.windows_of(model)[0]}


def _accepts(model: keras.Model) -> bool:
    has_one_window = len(set(llama.windows_of(model))) == 1
    return has_one_window and llama.traits(model) == llama.Traits(has_windows=True)


FAMILY: Family = llama.family(
    "mistral",
    "Mistral",
    "Mistral",
    llama.config_map("mistral", read_more=_read_more, write_more=_write_more, key_heads=8),
    _accepts,
    entries=("mistral",),
)
