"""Converts T5 weights, 1.0 and 1.1, from and to Hugging Face's safetensors."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras

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
from keras_transformers.files import read_json, write_json
from keras_transformers.models.classes.encoder_decoder import Transformer
from keras_transformers.models.encoder_decoders.t5 import MODELS, t5

if TYPE_CHECKING:
    from keras_transformers.tokenizers import T5Tokenizer

__all__ = [
    "load_t5",
    "load_text_to_text",
    "read_t5_config",
    "save_t5",
    "save_t5_config",
    "save_text_to_text",
]

_GATED = "gated_"
_CONFIG = ConfigMap(
    "t5",
    required={
        "vocabulary_size": "vocab_size",
        "num_encoder_layers": "num_layers",
        "num_heads": "num_heads",
        "hidden_dim": "d_model",
        "intermediate_dim": "d_ff",
        "head_dim": "d_kv",
    },
    optional={
        "num_decoder_layers": ("num_decoder_layers", None),  # as many as in the encoder
        "num_buckets": ("relative_attention_num_buckets", 32),
        "max_distance": ("relative_attention_max_distance", 128),
        "dropout": ("dropout_rate", 0.1),
        "norm_epsilon": ("layer_norm_epsilon", 1e-6),
    },
    activation=("feed_forward_proj", "relu"),
    activations={
        "relu": "relu",
        "gelu_new": "gelu_approximate",
        "gelu": "gelu",
        "silu": "silu",
        "gated-gelu": f"{_GATED}gelu_approximate",  # transformers means the tanh form by this one
        "gated-relu": f"{_GATED}relu",
        "gated-silu": f"{_GATED}silu",
    },
    fixed={
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
        "is_encoder_decoder": True,
    },
)
_LAYERS = ("token_embedding", "encoder_position_bias", "decoder_position_bias", "decoder_layer_0")
# Part of an `EncoderLayer` or `DecoderLayer` -> its sub-layer's modules.
_ENCODER_SUBLAYERS = {
    "self_attention": "layer.0.SelfAttention",
    "self_attention_norm": "layer.0.layer_norm",
    "feed_forward": "layer.1.DenseReluDense",
    "feed_forward_norm": "layer.1.layer_norm",
}
_DECODER_SUBLAYERS = {
    "self_attention": "layer.0.SelfAttention",
    "self_attention_norm": "layer.0.layer_norm",
    "cross_attention": "layer.1.EncDecAttention",
    "cross_attention_norm": "layer.1.layer_norm",
    "feed_forward": "layer.2.DenseReluDense",
    "feed_forward_norm": "layer.2.layer_norm",
}
_MATRICES = {"query": "q", "key": "k", "value": "v", "output": "o"}
# With a gate, the activated matrix has another name.
_FEED_FORWARD = {
    False: {"intermediate": "wi", "output": "wo"},
    True: {"intermediate": "wi_0", "gate": "wi_1", "output": "wo"},
}
_MOST_EXTRA_IDS = 10_000
_TOKENS = "shared.weight"
_LOGITS = "lm_head.weight"
_COPIES = {"encoder.embed_tokens.weight": _TOKENS, "decoder.embed_tokens.weight": _TOKENS}
# Cross-attention has no positions; old files have this matrix all the same.
_UNUSED = ("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",)


def read_t5_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads Hugging Face's `config.json` as arguments of `models.encoder_decoders.t5.t5`.

    Args:
        path: the file or its folder.

    Returns:
        Keyword arguments that build the model it describes.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not JSON, does not describe a T5, lacks a field, or needs something that
            these layers lack (another activation, other special tokens).

    Example:
        model = t5(**read_t5_config("t5-small"))
    """
    file, config = read_config(path, "t5")
    arguments = _CONFIG.arguments(file, config)
    if arguments["num_decoder_layers"] is None:
        arguments["num_decoder_layers"] = arguments["num_encoder_layers"]
    activation = arguments["activation"]
    # By tying, files say whether the logits are scaled; transformers 5 writes a field for it, and
    # says of all models that they are tied.
    tied = config.get("scale_decoder_outputs", config.get("tie_word_embeddings", True))
    return {
        **arguments,
        "attention_dropout": arguments["dropout"],
        "activation": activation.removeprefix(_GATED),
        "gated_feed_forward": activation.startswith(_GATED),
        "tied_logits": tied is not False,
    }


def load_t5(
    model: keras.Model, path: str | os.PathLike[str], *, ignore: Iterable[str] = ()
) -> list[str]:
    """Loads Hugging Face's weights, those of T5ForConditionalGeneration, into a T5.

    Unless every tensor is used or matches `ignore`, loading fails and the model is unchanged.

    Args:
        model: a model from `keras_transformers.models.encoder_decoders.t5`.
        path: a `.safetensors` file, or a folder with `model.safetensors`.
        ignore: wildcards of tensors to leave out.

    Returns:
        The names of the tensors that `ignore` left out.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is unreadable; tensors are missing, left over or of another shape (the
            message lists them all); or a copy of the tied embeddings differs from them.
    """
    variables = _variables(model)
    tensors = read_safetensors(path)
    is_tied = all(named.name != _LOGITS for named in variables)
    drop_copies(tensors, _COPIES | ({_LOGITS: _TOKENS} if is_tied else {}), source=str(path))
    return assign(variables, tensors, source=str(path), ignore=ignore, buffers=_UNUSED)


def save_t5(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Writes a T5's weights under Hugging Face's names, for `from_pretrained`.

    Args:
        model: a model from `keras_transformers.models.encoder_decoders.t5`.
        path: the `.safetensors` file to write.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: the model is not a T5.
    """
    write_safetensors(_variables(model), path)


def save_t5_config(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Writes a T5's shape as Hugging Face's `config.json`, to go with `save_t5`.

    Args:
        model: a model from `keras_transformers.models.encoder_decoders.t5`.
        path: the file to write.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: the model is not a T5, or Hugging Face has no name for its activation.
    """
    by_name = _layers(model)
    names = list(by_name)
    layer = by_name["decoder_layer_0"].get_config()
    bias = by_name["encoder_position_bias"]
    gate = _GATED if layer["gated_feed_forward"] else ""
    arguments = {
        **layer,
        "activation": gate + layer["activation"],
        "vocabulary_size": by_name["token_embedding"].vocabulary_size,
        "num_encoder_layers": sum(name.startswith("encoder_layer_") for name in names),
        "num_decoder_layers": sum(name.startswith("decoder_layer_") for name in names),
        "num_buckets": bias.num_buckets,
        "max_distance": bias.max_distance,
    }
    _CONFIG.write(
        arguments,
        path,
        tie_word_embeddings="output_projection" not in by_name,
        architectures=["T5ForConditionalGeneration"],
    )


def load_text_to_text(folder: str | os.PathLike[str]) -> tuple[Transformer, "T5Tokenizer"]:
    """Loads a T5 and its tokenizer, for `pipelines.Translator`.

    Args:
        folder: Hugging Face's layout: config.json, model.safetensors, spiece.model and, if it says
            how many extra ids there are, tokenizer_config.json.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or they do not belong together.

    Example:
        model, tokenizer = load_text_to_text("t5-small")
        answer = Translator(model, tokenizer, max_sequence_length=512)
        answer("translate English to German: The house is wonderful.")
    """
    folder = Path(folder)
    arguments = read_t5_config(folder)
    tokenizer = _tokenizer(folder)
    model = t5(**arguments)
    load_t5(model, folder)
    return model, tokenizer


def save_text_to_text(
    model: keras.Model, folder: str | os.PathLike[str], tokenizer: "T5Tokenizer"
) -> None:
    """Writes a T5 in Hugging Face's layout, for `load_text_to_text` and transformers.

    Args:
        model: a model from `keras_transformers.models.encoder_decoders.t5`.
        folder: folder for model.safetensors, config.json, spiece.model and tokenizer_config.json.
        tokenizer: the model's tokenizer.
    """
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    tokenizer.save(folder)
    write_json(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "T5Tokenizer", "extra_ids": tokenizer.num_extra_ids},
    )
    save_t5(model, folder / "model.safetensors")
    save_t5_config(model, folder / "config.json")


def _num_extra_ids(file: Path) -> int:
    found = read_json(file).get("extra_ids", 100) if file.is_file() else 100
    if type(found) is not int or not 0 <= found <= _MOST_EXTRA_IDS:
        raise ValueError(
            f"{file}: extra_ids={found!r:.100}; give an integer from 0 to {_MOST_EXTRA_IDS}"
        )
    return found


def _layers(model: keras.Model) -> dict[str, Any]:
    """Returns the model's layers by name; ValueError unless it is a T5."""
    by_name = {layer.name: layer for layer in model.layers}
    missing = [name for name in _LAYERS if name not in by_name]
    if missing:
        raise ValueError(
            f"model {model.name!r} is not a T5: it has no layer {', '.join(sorted(missing))}"
        )
    # Not by its configuration: Keras imports TensorFlow for one, which JAX does without.
    norm = by_name["decoder_layer_0"].self_attention_norm
    if not isinstance(norm, keras.layers.RMSNormalization):
        raise ValueError(f"model {model.name!r} is not a T5: its norms subtract the mean")
    return by_name


def _variables(model: keras.Model) -> list[NamedVariable]:
    """Returns every variable of the model with its name in the file; tied weights occur once."""
    layers = _layers(model).values()
    return [named for layer in layers if layer.weights for named in _of_layer(layer)]


def _of_layer(layer: Any) -> Iterator[NamedVariable]:
    side, _, rest = layer.name.partition("_")
    if layer.name == "token_embedding":
        yield NamedVariable(layer.embeddings, _TOKENS)
    elif layer.name == "output_projection":
        yield NamedVariable(layer.kernel, _LOGITS, transpose=True)
    elif rest == "position_bias":
        attention = f"{side}.block.0.layer.0.SelfAttention"
        yield NamedVariable(layer.embeddings, f"{attention}.relative_attention_bias.weight")
    elif rest == "norm":
        yield NamedVariable(layer.scale, f"{side}.final_layer_norm.weight")
    elif rest.startswith("layer_"):
        block = f"{side}.block.{rest.removeprefix('layer_')}"
        sublayers = _ENCODER_SUBLAYERS if side == "encoder" else _DECODER_SUBLAYERS
        inner = _FEED_FORWARD[layer.feed_forward.gated]
        for variable in layer.weights:
            part, _, matrix = part_of(variable, layer).partition("/")
            module = f"{block}.{sublayers[part]}"
            if matrix:
                names = inner if part == "feed_forward" else _MATRICES
                yield in_module(variable, f"{module}.{names[matrix]}")
            else:
                yield NamedVariable(variable, f"{module}.weight")
    else:
        raise ValueError(f"layer {layer.name!r} has no place in Hugging Face's T5")


def _load(folder: Path, dropout: float) -> Transformer:
    model = t5(**(read_t5_config(folder) | {"dropout": dropout, "attention_dropout": dropout}))
    load_t5(model, folder)
    return model


def _tokenizer(path: Path, lowercase: bool = False) -> "T5Tokenizer":
    # Imported here because it needs TensorFlow, which the weights do not.
    from keras_transformers.tokenizers import T5Tokenizer

    return T5Tokenizer(
        path / T5Tokenizer.model_file,
        num_extra_ids=_num_extra_ids(path / "tokenizer_config.json"),
        vocabulary_size=read_t5_config(path)["vocabulary_size"],
    )


FAMILY = Family(
    "t5",
    MODELS,
    _load,
    _tokenizer,
    read=read_t5_config,
    build=t5,
    fill=load_t5,
    task="translation",
    trained={"ForConditionalGeneration": ("translation",), "WithLMHeadModel": ("translation",)},
    tokenizer_classes=("T5Tokenizer",),
    pieces_file="spiece.model",
    longest_text=512,  # the longest in pretraining; positions are relative
    writers=(
        Writer(
            accepted_by(_variables),
            {"translation": "T5ForConditionalGeneration"},
            save_t5,
            save_t5_config,
            tokenizer="T5Tokenizer",
            tokenizer_class="T5Tokenizer",
            special_tokens=("eos_token", "unk_token", "pad_token"),
            tokenizer_fields=lambda tokenizers: {
                "extra_ids": tokenizers["tokenizer"].num_extra_ids
            },
            generation_fields=search_fields,
        ),
    ),
)
