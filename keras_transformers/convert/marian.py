"""Converts Marian weights (Opus-MT) from and to Hugging Face's safetensors."""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import keras
import numpy as np

from keras_transformers.convert.config_map import ConfigMap, read_config
from keras_transformers.convert.families import (
    Family,
    Writer,
    accepted_by,
    search_fields,
)
from keras_transformers.convert.name_map import in_module, part_of
from keras_transformers.convert.tensors import (
    NamedVariable,
    assign,
    drop_copies,
    read_safetensors,
    write_safetensors,
)
from keras_transformers.files import write_json
from keras_transformers.models.classes.encoder_decoder import Transformer
from keras_transformers.models.encoder_decoders.marian import MODELS, marian

if TYPE_CHECKING:
    from keras_transformers.tokenizers import MarianTokenizer

__all__ = [
    "load_marian",
    "load_marian_translator",
    "read_marian_config",
    "save_marian",
    "save_marian_config",
    "save_marian_translator",
]

# Our argument -> fields that must agree; the first one is read.
_SAME = {
    "num_heads": ("encoder_attention_heads", "decoder_attention_heads"),
    "intermediate_dim": ("encoder_ffn_dim", "decoder_ffn_dim"),
    "vocabulary_size": ("vocab_size", "decoder_vocab_size"),
    "pad_token_id": ("pad_token_id", "decoder_start_token_id"),
}
_CONFIG = ConfigMap(
    "marian",
    required={
        "vocabulary_size": "vocab_size",
        "num_encoder_layers": "encoder_layers",
        "num_decoder_layers": "decoder_layers",
        "num_heads": "encoder_attention_heads",
        "hidden_dim": "d_model",
        "intermediate_dim": "encoder_ffn_dim",
        "max_sequence_length": "max_position_embeddings",
        "pad_token_id": "pad_token_id",
    },
    optional={
        "dropout": ("dropout", 0.1),
        "attention_dropout": ("attention_dropout", 0.0),
        "feed_forward_dropout": ("activation_dropout", 0.0),
    },
    activation=("activation_function", "gelu"),
    activations={"swish": "silu", "silu": "silu", "relu": "relu", "gelu": "gelu"},
    fixed={
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "static_position_embeddings": True,
        "normalize_before": False,
        "normalize_embedding": False,
        "add_final_layer_norm": False,
        "is_encoder_decoder": True,
        "eos_token_id": 0,
    },
)
_PARTS = {
    "self_attention/query": "self_attn.q_proj",
    "self_attention/key": "self_attn.k_proj",
    "self_attention/value": "self_attn.v_proj",
    "self_attention/output": "self_attn.out_proj",
    "self_attention_norm": "self_attn_layer_norm",
    "cross_attention/query": "encoder_attn.q_proj",
    "cross_attention/key": "encoder_attn.k_proj",
    "cross_attention/value": "encoder_attn.v_proj",
    "cross_attention/output": "encoder_attn.out_proj",
    "cross_attention_norm": "encoder_attn_layer_norm",
    "feed_forward/intermediate": "fc1",
    "feed_forward/output": "fc2",
    "feed_forward_norm": "final_layer_norm",
}
_LAYERS = ("token_embedding", "target_position_embedding", "decoder_layer_0", "logits")
_TOKENS = "model.shared.weight"
_COPIES = dict.fromkeys(
    ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"),
    _TOKENS,
)
_BIAS = "final_logits_bias"  # of shape (1, vocabulary)
_SINUSOIDS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")


def read_marian_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads Hugging Face's `config.json` as arguments of `models.encoder_decoders.marian.marian`.

    Args:
        path: the file or its folder.

    Returns:
        Keyword arguments that build the model it describes.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not JSON, does not describe a Marian, lacks a field, or needs something
            that these layers lack (other heads in the decoder, embeddings without their scale).

    Example:
        model = marian(**read_marian_config("opus-mt-de-en"))
    """
    file, config = read_config(path, "marian")
    if config.get("scale_embedding", False) is not True:
        raise ValueError(f"{file}: scale_embedding is not true; only true is supported")
    for first, other in _SAME.values():
        value = config.get(first)
        if config.get(other, value) not in (value, None):
            raise ValueError(
                f"{file}: {other}={config[other]!r} and {first}={value!r}; they must be the same"
            )
    return _CONFIG.arguments(file, config)


def load_marian(
    model: keras.Model, path: str | os.PathLike[str], *, ignore: Iterable[str] = ()
) -> list[str]:
    """Loads Hugging Face's weights, those of MarianMTModel, into a Marian.

    Unless every tensor is used or matches `ignore`, loading fails and the model is unchanged.

    Args:
        model: a model from `keras_transformers.models.encoder_decoders.marian`.
        path: a `.safetensors` file, or a folder with `model.safetensors`.
        ignore: wildcards of tensors to leave out.

    Returns:
        The names of the tensors that `ignore` left out.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is unreadable; tensors are missing, left over or of another shape (the
            message lists them all); or a copy of the tied embeddings differs from them.
    """
    tensors = read_safetensors(path)
    drop_copies(tensors, _COPIES, source=str(path))
    if _BIAS in tensors and tensors[_BIAS].ndim == 2 and len(tensors[_BIAS]) == 1:
        tensors[_BIAS] = tensors[_BIAS][0]
    variables = _variables(model)
    return assign(variables, tensors, source=str(path), ignore=ignore, buffers=_SINUSOIDS)


def save_marian(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Writes a Marian's weights under Hugging Face's names, for `from_pretrained`.

    Args:
        model: a model from `keras_transformers.models.encoder_decoders.marian`.
        path: the `.safetensors` file to write.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: the model is not a Marian.
    """
    variables = [
        NamedVariable(np.asarray(named.variable)[None], _BIAS) if named.name == _BIAS else named
        for named in _variables(model)
    ]
    write_safetensors(variables, path)


def save_marian_config(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Writes a Marian's shape as Hugging Face's `config.json`, to go with `save_marian`.

    Args:
        model: a model from `keras_transformers.models.encoder_decoders.marian`.
        path: the file to write.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: the model is not a Marian, or Hugging Face has no name for its activation.
    """
    by_name = _layers(model)
    arguments = {
        **by_name["decoder_layer_0"].get_config(),
        "vocabulary_size": by_name["token_embedding"].vocabulary_size,
        "num_encoder_layers": sum(name.startswith("encoder_layer_") for name in by_name),
        "num_decoder_layers": sum(name.startswith("decoder_layer_") for name in by_name),
        "max_sequence_length": by_name["target_position_embedding"].max_sequence_length,
        "pad_token_id": by_name["source_padding_mask"].pad_token_id,
    }
    same = {fields[1]: arguments[ours] for ours, fields in _SAME.items()}
    _CONFIG.write(
        arguments,
        path,
        scale_embedding=True,
        architectures=["MarianMTModel"],
        bad_words_ids=[[arguments["pad_token_id"]]],
        **same,
    )


def load_marian_translator(
    folder: str | os.PathLike[str],
) -> tuple[Transformer, "MarianTokenizer", "MarianTokenizer"]:
    """Loads a Marian and both tokenizers, the arguments of `pipelines.Translator`.

    The bias of padding's logit becomes -10,000: no search may find padding, which these models
    leave to the search (Hugging Face: bad_words_ids).

    Args:
        folder: Hugging Face's layout: config.json, model.safetensors, vocab.json, source.spm and
            target.spm.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or they do not belong together.

    Example:
        translate = Translator(*load_marian_translator("opus-mt-de-en"))
    """
    folder = Path(folder)
    model = marian(**read_marian_config(folder))
    _fill(model, folder)
    return model, _tokenizer(folder), _target_tokenizer(folder)


def save_marian_translator(
    model: keras.Model,
    folder: str | os.PathLike[str],
    tokenizer: "MarianTokenizer",
    target_tokenizer: "MarianTokenizer",
) -> None:
    """Writes a Marian in Hugging Face's layout, for `load_marian_translator` and transformers.

    Args:
        model: a model from `keras_transformers.models.encoder_decoders.marian`.
        folder: folder for model.safetensors, config.json and the tokenizers' files.
        tokenizer: the sources' tokenizer.
        target_tokenizer: the targets' tokenizer.
    """
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    for side in (tokenizer, target_tokenizer):
        side.save(folder)
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "MarianTokenizer"})
    save_marian(model, folder / "model.safetensors")
    save_marian_config(model, folder / "config.json")


def _layers(model: keras.Model) -> dict[str, Any]:
    """Returns the model's layers by name; ValueError unless it is a Marian."""
    by_name = {layer.name: layer for layer in model.layers}
    missing = [name for name in _LAYERS if name not in by_name]
    if missing:
        raise ValueError(
            f"model {model.name!r} is not a Marian: it has no layer {', '.join(missing)}"
        )
    if getattr(by_name["target_position_embedding"], "interleaved", True):
        raise ValueError(f"model {model.name!r} is not a Marian: it has other positions")
    return by_name


def _variables(model: keras.Model) -> list[NamedVariable]:
    """Returns every variable of the model with its name in the file; tied weights occur once."""
    layers = _layers(model).values()
    return [named for layer in layers if layer.weights for named in _of_layer(layer)]


def _of_layer(layer: Any) -> Iterator[NamedVariable]:
    if layer.name == "token_embedding":
        yield NamedVariable(layer.embeddings, _TOKENS)
    elif layer.name == "logits":
        yield NamedVariable(layer.bias, _BIAS)
    elif "coder_layer_" in layer.name:
        side, _, index = layer.name.split("_")
        for variable in layer.weights:
            part = _PARTS[part_of(variable, layer)]
            yield in_module(variable, f"model.{side}.layers.{index}.{part}")
    else:
        raise ValueError(f"layer {layer.name!r} has no place in Hugging Face's Marian")


def _load(folder: Path, dropout: float) -> Transformer:
    rates = {"dropout": dropout, "attention_dropout": dropout}
    model = marian(**(read_marian_config(folder) | rates))
    _fill(model, folder)
    return model


def _fill(model: keras.Model, folder: Path, *, ignore: Iterable[str] = ()) -> list[str]:
    """Loads the weights for a search, which must not find padding."""
    left_out = load_marian(model, folder, ignore=ignore)
    bias = model.get_layer("logits").bias
    values = np.array(bias)
    values[model.get_layer("source_padding_mask").pad_token_id] = -1e4
    bias.assign(values)
    return left_out


def _tokenizer(path: Path, lowercase: bool = False) -> "MarianTokenizer":
    return _side(path, "source")


def _target_tokenizer(path: Path) -> "MarianTokenizer":
    return _side(path, "target")


def _side(folder: Path, side: Literal["source", "target"]) -> "MarianTokenizer":
    # Imported here because it needs TensorFlow, which the weights do not.
    from keras_transformers.tokenizers import MarianTokenizer

    arguments = read_marian_config(folder)
    tokenizer = MarianTokenizer(folder, side=side, vocabulary_size=arguments["vocabulary_size"])
    if tokenizer.pad_token_id != arguments["pad_token_id"]:
        raise ValueError(
            f"{folder}: padding is {tokenizer.pad_token_id} in vocab.json and "
            f"{arguments['pad_token_id']} in config.json: use the vocabulary that belongs to the "
            "weights"
        )
    return tokenizer


def _tokenizer_fields(tokenizers: Mapping[str, Any]) -> dict[str, Any]:
    sides = [tokenizer.side for tokenizer in tokenizers.values()]
    if sides != ["source", "target"]:
        raise ValueError(
            f"tokenizers of the side {' and '.join(sides)}: Marian's folders have a source's and a "
            "target's: give both to the pipeline"
        )
    return {"separate_vocabs": False}


FAMILY = Family(
    "marian",
    MODELS,
    _load,
    _tokenizer,
    read=read_marian_config,
    build=marian,
    fill=_fill,
    task="translation",
    trained={"MTModel": ("translation",)},
    target_tokenizer=_target_tokenizer,
    tokenizer_classes=("MarianTokenizer",),
    writers=(
        Writer(
            accepted_by(_variables),
            {"translation": "MarianMTModel"},
            save_marian,
            save_marian_config,
            tokenizer="MarianTokenizer",
            tokenizer_class="MarianTokenizer",
            special_tokens=("eos_token", "unk_token", "pad_token"),
            tokenizer_fields=_tokenizer_fields,
            generation_fields=search_fields,
        ),
    ),
)
