"""Opens GGUF files of BERT, such as llama.cpp's embedders, and of Llama and similar models."""

from pathlib import Path
from typing import Any

import numpy as np

from keras_transformers.convert.containers.arrays import Arrays
from keras_transformers.convert.containers.gguf import Gguf, find_gguf
from keras_transformers.convert.families import families
from keras_transformers.convert.family import Family
from keras_transformers.convert.formats.chat_templates import known_template
from keras_transformers.convert.formats.encoder_shapes import encoder_arguments
from keras_transformers.convert.formats.generation_config import gguf_sampling_options
from keras_transformers.convert.formats.weights import Format, FoundWeights
from keras_transformers.families.bert.files import FAMILY
from keras_transformers.layers import RotaryScaling

__all__: list[str] = []

_LLAMA3_LENGTH = 8192  # Llama 3's length in training, before 3.1 scaled its positions
_POOLINGS = {1: "mean", 2: "cls", 3: "lasttoken"}
_CONTROL = 3  # the type of special tokens
_SPACE = "▁"  # before a token that starts a word; others had "##"


def open_gguf(path: Path) -> FoundWeights:
    """Opens a BERT, a Llama, a Mistral or a Qwen that llama.cpp converted, at any precision.

    Quantized weights are converted to float32.

    Args:
        path: the file, or a folder with only this GGUF file.

    Raises:
        ValueError: the file is damaged, or has an unsupported family or tokenizer.
    """
    file = find_gguf(path)
    assert file is not None
    opened = Gguf.open(file)
    arrays = opened.arrays()
    known = {family.model_type: family for family in families() if family.task == "generation"}
    if opened.architecture in known:
        return _decoder(opened, arrays, known[opened.architecture])
    return _bert(opened, arrays)


def _decoder(opened: Gguf, arrays: Arrays, family: Family) -> FoundWeights:
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
    from keras_transformers.convert.formats.language_tokenizers import gguf_tokenizer

    found = gguf_tokenizer(opened.fields, opened.file)
    if found.end_token_id is None:
        raise ValueError(
            f"{opened.file}: no tokenizer.ggml.eos_token_id, the token that ends texts"
        )
    return found


def _huggingface_config(opened: Gguf, arrays: Arrays) -> dict[str, Any]:
    """Returns a language model's `config.json`."""

    def number(name: str, kind: type = int) -> Any:
        return _number(opened, f"{opened.architecture}.{name}", kind, None)

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


def _bert(opened: Gguf, arrays: Arrays) -> FoundWeights:
    """Opens a BERT.

    The file lacks the encoder's pooler, and does not say which GELU to use: it is the exact one
    here, as in Hugging Face's models. If the vocabulary has words with capitals, texts keep their
    case.
    """
    file = opened.file
    kind = opened.fields.get("tokenizer.ggml.model")
    if kind != "bert":
        raise ValueError(
            f"{file}: tokenizer {kind!r:.100}; only 'bert' (WordPiece) is supported: get "
            "the model.safetensors that it was made from"
        )
    heads = _number(opened, "bert.attention.head_count", int, None)
    arguments = encoder_arguments(arrays, "bert", num_heads=heads, missing="config.json") | {
        "activation": "gelu",
        "norm_epsilon": _number(opened, "bert.attention.layer_norm_epsilon", float, 1e-12),
    }
    pooling = _number(opened, "bert.pooling_type", int, 1)
    if pooling not in _POOLINGS:
        raise ValueError(
            f"{file}: bert.pooling_type={pooling}; expected 1 (mean), 2 (cls) or 3 (last token)"
        )

    def tokenizers(lowercase: bool | None = None) -> tuple[Any, ...]:
        # Imported here because it needs TensorFlow, which the weights do not.
        from keras_transformers.tokenizers.wordpiece import WordPieceTokenizer

        words = _words(opened)
        lowers = lowercase
        if lowers is None:
            lowers = not any(word != word.lower() for word in words if not word.startswith("["))
        try:
            return (WordPieceTokenizer(words, lowercase=lowers),)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error

    return FoundWeights(
        source=file,
        base="embedding",
        trained=("embedding",),
        build=lambda **changes: FAMILY.build(**(arguments | changes)),
        fill=lambda model, ignore: FAMILY.fill(model, arrays, ignore=ignore),
        tokenizers=tokenizers,
        parts=FAMILY.parts,
        has_pooler=False,
        options={"pooling": _POOLINGS[pooling]},
        masked_lm={"activation": "gelu", "norm_epsilon": arguments["norm_epsilon"]},
    )


def _number(opened: Gguf, name: str, kind: type, default: Any) -> Any:
    """Returns a number from the metadata; ValueError if it is anything else."""
    value = opened.fields.get(name, default)
    if value is default:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise ValueError(f"{opened.file}: {name}={value!r:.100}; expected a number, 0 or more")
    return kind(value)


def _words(opened: Gguf) -> list[str]:
    """Returns the vocabulary in WordPiece's form."""
    words = opened.fields.get("tokenizer.ggml.tokens")
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{opened.file}: tokenizer.ggml.tokens is not a list of tokens")
    kinds = opened.fields.get("tokenizer.ggml.token_type")
    if not isinstance(kinds, list) or len(kinds) != len(words):
        kinds = [0] * len(words)
    return [_word(word, kind) for word, kind in zip(words, kinds, strict=True)]


def _word(word: str, kind: Any) -> str:
    if kind == _CONTROL or (word.startswith("[") and word.endswith("]")):
        return word
    return word[1:] if word.startswith(_SPACE) else f"##{word}"


def _recognises(path: Path) -> bool:
    folder = path if path.is_dir() else path.parent
    alone = path.is_file() or not (folder / "config.json").is_file()
    return alone and find_gguf(path) is not None


FORMAT = Format("GGUF of a BERT, a Llama or a Qwen", _recognises, open_gguf)
