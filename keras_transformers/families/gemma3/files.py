"""Describes Gemma 3 in Hugging Face's files: Llama with four norms in a layer, and local layers.

Its files store the factors of the norms less 1.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert.config_map import ConfigMap, check_flag, check_number, check_size
from keras_transformers.convert.containers.arrays import Arrays
from keras_transformers.convert.containers.gguf import Gguf
from keras_transformers.convert.family import Family
from keras_transformers.convert.name_map import NameMap
from keras_transformers.convert.tensors import PLAIN, Form
from keras_transformers.families.llama import files as llama
from keras_transformers.families.llama.gguf import GGUF
from keras_transformers.models.anatomy import anatomy

__all__ = ["FAMILY"]

_EVERY = 6  # each sixth layer attends to all earlier tokens, if a file does not say otherwise
_FULL, _SLIDING = "full_attention", "sliding_attention"
_LOCAL_BASE, _SCALE = "rope_local_base_freq", "query_pre_attn_scalar"
# Fields of transformers in files without them.
_ABSENT = {"rope_theta": 1e6, "tie_word_embeddings": True, "sliding_window": 4096}
_NORMS = {
    "self_attention_output_norm": "post_attention_layernorm",
    "feed_forward_norm": "pre_feedforward_layernorm",
    "feed_forward_output_norm": "post_feedforward_layernorm",
}
_LLAMA: NameMap = llama.name_map("Gemma 3")
_NAMES: NameMap = dataclasses.replace(
    _LLAMA,
    blocks=dataclasses.replace(_LLAMA.blocks, parts={**_LLAMA.blocks.parts, **_NORMS}),
    norm=Form(added=1.0),
    traits={"block.norm": "rms", "block.norm_position": "both"},
)


def _after_read(
    file: Path, config: Mapping[str, Any], arguments: llama.Arguments
) -> llama.Arguments:
    """Reads the positions of both kinds of layers, from the fields of transformers 4 or 5."""
    config = {**_ABSENT, **config}
    by_kind = config.get("rope_parameters")
    if isinstance(by_kind, dict) and not by_kind.keys().isdisjoint((_FULL, _SLIDING)):
        local = by_kind.get(_SLIDING) or {}
        if not isinstance(local, dict) or local.get("rope_type", "default") != "default":
            raise ValueError(
                f"{file}: rope_parameters.{_SLIDING}={local!r:.100}; only the type 'default' is "
                "supported there"
            )
        config[_LOCAL_BASE] = local.get("rope_theta", config.get(_LOCAL_BASE, 1e4))
        config["rope_parameters"] = by_kind.get(_FULL) or {}
    read = _FIELDS.after_read
    assert read is not None
    return read(file, config, arguments)


def _read_more(
    file: Path, config: Mapping[str, Any], arguments: llama.Arguments
) -> llama.Arguments:
    kinds = config.get("layer_types")
    if kinds is None:
        every = config.get("sliding_window_pattern", _EVERY)
        every = check_size(file, "sliding_window_pattern", every)
        numbers = range(1, arguments["num_layers"] + 1)
        kinds = [_SLIDING if number % every else _FULL for number in numbers]
    local_base = check_number(
        file, _LOCAL_BASE, config.get(_LOCAL_BASE, 1e4), least=1.0 + 1e-6, below=1e12
    )
    layers = {**config, "layer_types": kinds, "use_sliding_window": True}
    scale = check_size(file, _SCALE, config.get(_SCALE, 256))
    return {
        "local_rotary_base": float(local_base),
        "windows": llama.read_windows(file, layers, arguments),
        "query_key_norm": True,
        "norm_position": "both",
        "scale_dim": scale,
        "embedding_scale": arguments["hidden_dim"] ** 0.5,
        "use_attention_bias": check_flag(file, config, "attention_bias"),
    }


def _write_more(model: keras.Model) -> dict[str, Any]:
    attentions: list[Any] = [block.self_attention for block in anatomy(model, "blocks").blocks]
    local = [x.positions.base for x in attentions if x.window is not None]
    windows = llama.written_windows(model)
    return {
        "sliding_window": windows["sliding_window"],
        "layer_types": windows["layer_types"],
        _LOCAL_BASE: local[0] if local else 1e4,
        _SCALE: attentions[0].scale_dim,
        "attention_bias": attentions[0].use_bias,
    }


def _accepts(model: keras.Model) -> bool:
    traits, embedding = llama.traits(model), anatomy(model, "token_embedding").token_embedding
    is_scaled = abs(embedding.scale**2 / embedding.hidden_dim - 1) < 1e-6
    return is_scaled and traits.has_norms and traits.has_bias == traits.has_output_bias


def _open_gguf(opened: Gguf, arrays: Arrays, family: Family) -> Any:
    """Opens llama.cpp's files, whose norms have the factors themselves."""
    if opened.fields.get("gemma3.block_count") == 62:
        raise ValueError(
            f"{opened.file}: the file of a model with 62 layers, the 27B, does not say by what its "
            "attention is scaled: get the model.safetensors that it was made from"
        )
    names = dataclasses.replace(family.names, norm=PLAIN)
    return GGUF.open(opened, arrays, dataclasses.replace(family, names=names))


_FIELDS = llama.config_map(
    "gemma3_text", read_more=_read_more, write_more=_write_more, key_heads=4, absent=_ABSENT
)
_CONFIG: ConfigMap = dataclasses.replace(
    _FIELDS,
    optional={
        **_FIELDS.optional,
        "head_dim": ("head_dim", 256),
        "max_sequence_length": ("max_position_embeddings", 131_072),
    },
    activation=("hidden_activation", "gelu_pytorch_tanh"),
    fixed={
        "use_bidirectional_attention": False,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
    },
    after_read=_after_read,
)
_PARTS = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_DECODER = llama.family("gemma3_text", "Gemma3", "Gemma 3", _CONFIG, _accepts, entries=("gemma3",))
_WITH_IMAGES = (
    "holds the weights of an image encoder, too, which is not supported here: get a model with the "
    "model_type gemma3_text, such as gemma-3-1b-it"
)
FAMILY: Family = dataclasses.replace(
    _DECODER,
    names=_NAMES,
    tokenizer_classes=(*_DECODER.tokenizer_classes, "GemmaTokenizer"),
    gguf=dataclasses.replace(
        GGUF, parts={**GGUF.parts, **_PARTS}, open=_open_gguf, architecture="gemma3"
    ),
    refused={"gemma3": _WITH_IMAGES},
)
