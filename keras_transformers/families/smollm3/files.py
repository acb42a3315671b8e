"""Describes SmolLM3 in Hugging Face's files: Llama with layers without rotary positions."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert.config_map import check_flag, check_size
from keras_transformers.convert.family import Family
from keras_transformers.families.llama import files as llama
from keras_transformers.families.llama.gguf import REORDERED
from keras_transformers.models.anatomy import anatomy

__all__ = ["FAMILY"]

# Fields of transformers in files without them.
_ABSENT = {"rope_theta": 2e6, "tie_word_embeddings": True}


def _rotary_layers(
    file: Path, config: Mapping[str, Any], arguments: llama.Arguments
) -> tuple[bool, ...]:
    """Returns whether each layer has rotary positions."""
    count, field = arguments["num_layers"], "no_rope_layers"
    marks = config.get(field)
    if marks is None:
        field = "no_rope_layer_interval"
        every = check_size(file, field, config.get(field, 4))
        marks = [int((index + 1) % every != 0) for index in range(count)]
    if not isinstance(marks, list) or len(marks) < count or any(x not in (0, 1) for x in marks):
        raise ValueError(
            f"{file}: {field}={marks!r:.100}; expected 1 (rotary positions) or 0 for each of the "
            f"{count} layers"
        )
    if not any(marks[:count]):
        raise ValueError(f"{file}: by {field}, none of the {count} layers has rotary positions")
    return tuple(map(bool, marks[:count]))


def _read_more(
    file: Path, config: Mapping[str, Any], arguments: llama.Arguments
) -> llama.Arguments:
    rotary = _rotary_layers(file, config, arguments)
    slides = check_flag(file, config, "use_sliding_window")
    kinds = [
        "sliding_attention" if slides and not is_rotary else "full_attention"
        for is_rotary in rotary
    ]
    if config.get("layer_types") is None:
        config = {**config, "layer_types": kinds}
    return {
        "rotary_layers": rotary,
        "windows": llama.read_windows(file, config, arguments),
        "use_attention_bias": check_flag(file, config, "attention_bias"),
        "use_feed_forward_bias": check_flag(file, config, "mlp_bias"),
    }


def _write_more(model: keras.Model) -> dict[str, Any]:
    blocks = anatomy(model, "blocks").blocks
    return {
        **llama.written_windows(model),
        "no_rope_layers": [int(block.self_attention.positions is not None) for block in blocks],
        "attention_bias": blocks[0].self_attention.use_bias,
        "mlp_bias": blocks[0].feed_forward.use_bias,
    }


def _accepts(model: keras.Model) -> bool:
    traits = llama.traits(model)
    return not (traits.is_rotary or traits.has_norms) and traits.has_bias == traits.has_output_bias


FAMILY: Family = llama.family(
    "smollm3",
    "SmolLM3",
    "SmolLM3",
    llama.config_map("smollm3", read_more=_read_more, write_more=_write_more, absent=_ABSENT),
    _accepts,
    entries=("smollm3",),
    gguf=REORDERED,
)
