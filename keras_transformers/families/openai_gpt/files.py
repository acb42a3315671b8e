"""Describes the first GPT in Hugging Face's files."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert.config_map import ConfigMap
from keras_transformers.convert.family import Family
from keras_transformers.convert.name_map import prefixed
from keras_transformers.families.gpt import files as gpt
from keras_transformers.families.gpt.model import MODELS
from keras_transformers.families.gpt.model import gpt as build

__all__ = ["FAMILY"]

_NAMES = dataclasses.replace(
    gpt.NAMES,
    family="GPT",
    layers={
        "token_embedding": "transformer.tokens_embed",
        "position_embedding": "transformer.positions_embed",
    },
    rewritten=(
        prefixed("transformer", "tokens_embed", "positions_embed", "h"),
        (r"^position_ids$", "transformer.position_ids"),
    ),
    tied={"lm_head.weight": "transformer.tokens_embed.weight"},
    buffers=(*gpt.NAMES.buffers, "transformer.position_ids"),  # 0, 1, 2, ... in old versions
    required=("token_embedding", "position_embedding"),
    traits={"block.norm_position": "post"},
)


def _after_read(file: Path, config: Mapping[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    return {**arguments, "norm_position": "post"}


def _before_write(
    model: keras.Model, arguments: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    hidden, inner = arguments["hidden_dim"], arguments["intermediate_dim"]
    if inner != 4 * hidden:
        raise ValueError(
            f"intermediate_dim={inner}: the first GPT's config.json has no field for this, so it "
            f"must be 4 * hidden_dim = {4 * hidden}"
        )
    return gpt.before_write(model, arguments)


_CONFIG = ConfigMap(
    "openai-gpt",
    required=gpt.CONFIG.required,
    optional={
        ours: theirs for ours, theirs in gpt.CONFIG.optional.items() if ours != "intermediate_dim"
    },
    activation=("afn", "gelu"),
    # In Hugging Face's first GPT, "gelu" means the tanh form.
    activations={"gelu": "gelu_approximate", "relu": "relu", "silu": "silu", "swish": "silu"},
    after_read=_after_read,
    before_write=_before_write,
)

FAMILY: Family = dataclasses.replace(
    gpt.FAMILY,
    model_type="openai-gpt",
    entries={name: entry for name, entry in MODELS.items() if name not in gpt.FAMILY.entries},
    names=_NAMES,
    fields=_CONFIG,
    build=build,
    writer=gpt.writer("OpenAIGPTLMHeadModel"),
    keras_nlp=None,
    tokenizer_classes=("GPT2Tokenizer", "OpenAIGPTTokenizer"),
)
