"""Opens GGUF files, llama.cpp's, of Llama, Mistral and Qwen."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformers.convert.containers.arrays import Arrays
from keras_transformers.convert.containers.gguf import Gguf, GgufMap
from keras_transformers.convert.family import Family
from keras_transformers.convert.formats.chat_templates import known_template
from keras_transformers.convert.formats.generation_config import gguf_sampling_options
from keras_transformers.convert.formats.weights import FoundWeights
from keras_transformers.layers import RotaryScaling

__all__: list[str] = []

_LLAMA3_LENGTH = 8192  # Llama 3's length in training, before 3.1 scaled its positions


def _open(opened: Gguf, arrays: Arrays, family: Family) -> FoundWeights:
    """Opens a language model."""
    config = _huggingface_config(opened, arrays)
    arguments = family.fields.arguments(opened.file, config)
    return FoundWeights(
        source=opened.file,
        base="generation",
        trained=("generation",),
        build=lambda **changes: family.build(**(arguments | changes)),
        fill=lambda model, ignore: family.fill(model, arrays, ignore=ignore),
        tokenizers=lambda lowercase=None: (_tokenizer(opened),),
        parts=family.parts,
        has_pooler=False,
        max_sequence_length=arguments["max_sequence_length"],
        options={
            **known_template(opened.fields.get("tokenizer.chat_template"), opened.file),
            **gguf_sampling_options(opened.fields, opened.file, arguments["vocabulary_size"]),
        },
    )


def _tokenizer(opened: Gguf) -> Any:
    """Returns the tokenizer of a language model."""
    # Imported here because it needs TensorFlow, which the weights do not.
    from keras_transformers.families.llama.tokenizers import gguf_tokenizer

    tokenizer = gguf_tokenizer(opened.fields, opened.file)
    if tokenizer.end_token_id is None:
        raise ValueError(
            f"{opened.file}: no tokenizer.ggml.eos_token_id, the token that ends texts"
        )
    return tokenizer


def _huggingface_config(opened: Gguf, arrays: Arrays) -> dict[str, Any]:
    """Returns a language model's `config.json`."""

    def number(name: str, kind: type = int) -> Any:
        return opened.number(f"{opened.architecture}.{name}", kind)

    rotary: dict[str, Any] = {"rope_theta": number("rope.freq_base", float) or 10_000.0}
    scaling = opened.fields.get(f"{opened.architecture}.rope.scaling.type", "none")
    factors = opened.rotary_factors()
    if scaling != "none" and factors is not None:
        raise ValueError(
            f"{opened.file}: rope.scaling.type={scaling!r:.100} and rope_freqs.weight scale rotary "
            "positions twice: get the model.safetensors that it was made from"
        )
    if scaling != "none":
        rotary |= {"rope_type": scaling, "factor": number("rope.scaling.factor", float)}
        rotary |= {
            "original_max_position_embeddings": number("rope.scaling.original_context_length")
        }
    elif factors is not None:
        rotary |= _llama3(opened.file, factors, rotary["rope_theta"])
    embedded = arrays.shapes.get("model.embed_tokens.weight", (None,))
    sizes = {
        "num_hidden_layers": "block_count",
        "num_attention_heads": "attention.head_count",
        "hidden_size": "embedding_length",
        "intermediate_size": "feed_forward_length",
    }
    if missing := [name for name in sizes.values() if number(name) is None]:
        raise ValueError(
            f"{opened.file}: no {opened.architecture}.{missing[0]}, a size of the model: get a "
            "whole file"
        )
    named = {
        **{field: number(name) for field, name in sizes.items()},
        "vocab_size": embedded[0],
        "num_key_value_heads": number("attention.head_count_kv"),
        "head_dim": number("attention.key_length"),
        "max_position_embeddings": number("context_length"),
        "sliding_window": number("attention.sliding_window") or None,
        "rms_norm_eps": number("attention.layer_norm_rms_epsilon", float),
    }
    return {
        **{name: value for name, value in named.items() if value is not None},
        "rope_parameters": rotary,
        "tie_word_embeddings": "lm_head.weight" not in arrays.shapes,
        "attention_bias": any(name.endswith("self_attn.o_proj.bias") for name in arrays.shapes),
    }


def _llama3(file: Path, factors: np.ndarray, base: float) -> dict[str, Any]:
    """Returns Llama 3.1's scaling of rotary positions; a file has only the resulting factors."""
    factor = float(max(factors, default=0))
    rates = base ** -(np.arange(len(factors)) / max(len(factors), 1))
    try:
        scaling = RotaryScaling(kind="llama3", factor=factor, original_length=_LLAMA3_LENGTH)
        expected = rates / scaling.scaled(rates, base)
    except ValueError:
        expected = np.zeros_like(rates)
    if not np.allclose(factors, expected, rtol=1e-4):
        raise ValueError(
            f"{file}: rope_freqs.weight, factors of the rotary positions' rates, are not those of "
            f"Llama 3.1 at {_LLAMA3_LENGTH:,} tokens: get the model.safetensors it was made from"
        )
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": RotaryScaling.low_frequency_factor,
        "high_freq_factor": RotaryScaling.high_frequency_factor,
        "original_max_position_embeddings": _LLAMA3_LENGTH,
    }


GGUF = GgufMap(
    modules={
        "token_embd": "model.embed_tokens",
        "output_norm": "model.norm",
        "output": "lm_head",
    },
    block="model.layers",
    parts={
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "attn_q_norm": "self_attn.q_norm",
        "attn_k_norm": "self_attn.k_norm",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    },
    open=_open,
    is_rotary=True,
)
# As in files of Llama, whose queries and keys the converter reorders.
REORDERED = dataclasses.replace(
    GGUF, reordered={"attn_q": "attention.head_count", "attn_k": "attention.head_count_kv"}
)
