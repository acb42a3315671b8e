"""GPT and GPT-2 weights from and to Hugging Face's safetensors."""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers.convert.tensors import (
    Entry,
    assign,
    read_safetensors,
    write_safetensors,
)
from keras_transformers.files import write_json

__all__ = ["load_gpt", "read_gpt_config", "save_gpt", "save_gpt_config"]

# Which of the two a model is, its end tells: only GPT-2 has a norm there.
_TOP_LEVEL = {
    "gpt2": {
        "token_embedding": "transformer.wte",
        "position_embedding": "transformer.wpe",
        "final_norm": "transformer.ln_f",
    },
    "openai-gpt": {
        "token_embedding": "transformer.tokens_embed",
        "position_embedding": "transformer.positions_embed",
    },
}
# A layer's parts, in the order of an EncoderLayer's attributes. Their matrices are `Conv1D`s, which
# are stored as Keras stores them, (in, out); queries, keys and values are one matrix.
_PARTS = {
    "self_attention/query": "attn.c_attn",
    "self_attention/key": "attn.c_attn",
    "self_attention/value": "attn.c_attn",
    "self_attention/output": "attn.c_proj",
    "self_attention_norm": "ln_1",
    "feed_forward/intermediate": "mlp.c_fc",
    "feed_forward/output": "mlp.c_proj",
    "feed_forward_norm": "ln_2",
}
_FUSED = ("query", "key", "value")  # in the order of the columns of `c_attn`
_WEIGHTS = {"kernel": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}
# Not weights: causal masks, and 0, 1, 2, ... stored by old versions.
_BUFFERS = ("*.attn.bias", "*.attn.masked_bias", "transformer.position_ids")
_TIED = "lm_head.weight"

_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_approximate",
    "gelu_pytorch_tanh": "gelu_approximate",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
# The first GPT's "gelu" is the tanh form there.
_GPT_ACTIVATIONS = {"gelu": "gelu_approximate", "relu": "relu", "silu": "silu", "swish": "silu"}


def read_gpt_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads Hugging Face's `config.json` as arguments of `keras_transformers.models.gpt.gpt`.

    Args:
        path: the file, or the folder that holds it.

    Returns:
        Keyword arguments that build the model which the configuration describes.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not JSON, describes neither GPT nor GPT-2, lacks a field, or asks for
            something that these layers do not do.

    Example:
        model = gpt(**read_gpt_config("gpt2"))
    """
    path = Path(path)
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise FileNotFoundError(f"{file} does not exist: a Hugging Face GPT folder has config.json")
    try:
        config = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{file}: not a JSON object ({error})") from error
    kind = config.get("model_type") if isinstance(config, dict) else None
    if kind not in _TOP_LEVEL:
        known = " or ".join(map(repr, _TOP_LEVEL))
        raise ValueError(f"{file}: model_type is {kind!r}; known are {known}")
    if not config.get("scale_attn_weights", True) or config.get("scale_attn_by_inverse_layer_idx"):
        raise ValueError(f"{file}: attention scores are scaled by 1 / sqrt(head_dim) alone here")
    names = _GPT_ACTIVATIONS if kind == "openai-gpt" else _ACTIVATIONS
    default = "gelu" if kind == "openai-gpt" else "gelu_new"
    activation = config.get("afn" if kind == "openai-gpt" else "activation_function", default)
    if activation not in names:
        raise ValueError(f"{file}: activation {activation!r}; known are {', '.join(names)}")
    try:
        return {
            "vocabulary_size": config["vocab_size"],
            "num_layers": config["n_layer"],
            "num_heads": config["n_head"],
            "hidden_dim": config["n_embd"],
            "intermediate_dim": config.get("n_inner"),
            "max_sequence_length": config["n_positions"],
            "norm_position": "post" if kind == "openai-gpt" else "pre",
            "dropout": config.get("resid_pdrop", 0.1),
            "attention_dropout": config.get("attn_pdrop", 0.1),
            "activation": names[activation],
            "norm_epsilon": config.get("layer_norm_epsilon", 1e-5),
            "initializer_range": config.get("initializer_range", 0.02),
        }
    except KeyError as error:
        raise ValueError(f"{file}: has no field {error}") from error


def load_gpt(
    model: keras.Model, path: str | os.PathLike[str], *, ignore: Iterable[str] = ()
) -> None:
    """Fills a causal language model with weights of Hugging Face's OpenAIGPT or GPT-2.

    Reads what OpenAIGPTLMHeadModel, OpenAIGPTModel, GPT2LMHeadModel and GPT2Model save. Every
    tensor is used, or named in `ignore`, or the load fails and the model stays as it was.

    Args:
        model: from `keras_transformers.models.gpt`, before a head is put on.
        path: a `.safetensors` file or the folder that holds `model.safetensors`.
        ignore: wildcards of tensors to leave out, such as "score.*" for a classifier's head. They
            are given with the prefix "transformer.".

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not readable; or tensors are missing, of another shape or left
            over, all of them listed; or a copy of the tied embeddings differs from them.
    """
    tensors = {_modern(name): tensor for name, tensor in read_safetensors(path).items()}
    embeddings = f"{_TOP_LEVEL[_kind(model)]['token_embedding']}.weight"
    copy = tensors.pop(_TIED, None)
    if copy is not None and not np.array_equal(copy, tensors.setdefault(embeddings, copy)):
        raise ValueError(f"{path}: {_TIED} differs from {embeddings}, to which it is tied here")
    for name in [name for name in tensors if ".attn.c_attn." in name]:
        parts = np.array_split(tensors.pop(name), len(_FUSED), axis=-1)
        tensors |= {f"{name}[{part}]": t for part, t in zip(_FUSED, parts, strict=True)}
    assign(_entries(model), tensors, source=str(path), ignore=[*_BUFFERS, *ignore])


def save_gpt(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Writes a causal language model's weights under Hugging Face's names, for `from_pretrained`.

    Args:
        model: from `keras_transformers.models.gpt`.
        path: the `.safetensors` file to write.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: the model has a layer that has no place there, a classifier's for one.
    """
    parts: dict[str, list[np.ndarray]] = {}
    for entry in _entries(model):
        parts.setdefault(entry.name.partition("[")[0], []).append(np.asarray(entry.variable))
    write_safetensors([Entry(np.concatenate(p, axis=-1), name) for name, p in parts.items()], path)


def save_gpt_config(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Writes a causal language model's shape as Hugging Face's `config.json`.

    Args:
        model: from `keras_transformers.models.gpt`.
        path: the file to write.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: the activation has no name there, or the inner width of the first GPT is not
            four times the outer one.
    """
    kind, layers = _kind(model), {layer.name: layer for layer in model.layers}
    tokens, layer = layers["token_embedding"], layers["decoder_layer_0"].get_config()
    ours = _GPT_ACTIVATIONS if kind == "openai-gpt" else _ACTIVATIONS
    foreign = {name: theirs for theirs, name in reversed(ours.items())}
    if layer["activation"] not in foreign:
        raise ValueError(f"activation={layer['activation']!r} has no name in {kind}")
    inner = layer["intermediate_dim"]
    if kind == "openai-gpt" and inner != 4 * layer["hidden_dim"]:
        raise ValueError(f"intermediate_dim={inner} is not 4 * {layer['hidden_dim']}, as in GPT")
    config = {
        "model_type": kind,
        "vocab_size": tokens.vocabulary_size,
        "n_layer": sum(name.startswith("decoder_layer_") for name in layers),
        "n_head": layer["num_heads"],
        "n_embd": layer["hidden_dim"],
        "n_positions": layers["position_embedding"].max_sequence_length,
        "embd_pdrop": layer["dropout"],
        "resid_pdrop": layer["dropout"],
        "attn_pdrop": layer["attention_dropout"],
        "layer_norm_epsilon": layer["norm_epsilon"],
        "initializer_range": tokens.embeddings_initializer.stddev,
        "afn" if kind == "openai-gpt" else "activation_function": foreign[layer["activation"]],
    } | ({} if kind == "openai-gpt" else {"n_inner": inner})
    write_json(path, config)


def _kind(model: keras.Model) -> str:
    names = {layer.name for layer in model.layers}
    missing = {"token_embedding", "position_embedding", "decoder_layer_0"} - names
    if missing:
        raise ValueError(f"model {model.name!r} is no GPT: no layer {', '.join(sorted(missing))}")
    return "gpt2" if "final_norm" in names else "openai-gpt"


def _modern(name: str) -> str:
    """A tensor's name as models with a head on top write it."""
    headless = ("wte.", "wpe.", "h.", "ln_f.", "tokens_embed.", "positions_embed.", "position_ids")
    return f"transformer.{name}" if name.startswith(headless) else name


def _entries(model: keras.Model) -> list[Entry]:
    """Every variable of the model with its foreign name; tied weights once."""
    kind = _kind(model)
    return [
        entry for layer in model.layers if layer.weights for entry in _layer_entries(layer, kind)
    ]


def _layer_entries(layer: keras.layers.Layer, kind: str) -> Iterator[Entry]:
    if layer.name in ("token_embedding", "position_embedding"):
        yield Entry(layer.embeddings, f"{_TOP_LEVEL[kind][layer.name]}.weight")
    elif layer.name in _TOP_LEVEL[kind]:
        for variable in layer.weights:
            yield Entry(variable, f"{_TOP_LEVEL[kind][layer.name]}.{_weight(variable)}")
    elif layer.name.startswith("decoder_layer_"):
        module = f"transformer.h.{layer.name.removeprefix('decoder_layer_')}"
        for variable in layer.weights:
            part = variable.path.split(f"{layer.name}/", 1)[1].rsplit("/", 1)[0]
            name = f"{module}.{_PARTS[part]}.{_weight(variable)}"
            fused = part.rpartition("/")[2]
            yield Entry(variable, f"{name}[{fused}]" if fused in _FUSED else name)
    else:
        raise ValueError(
            f"layer {layer.name!r} has no place in Hugging Face's GPT; load or save the language "
            "model alone, before its head is put on"
        )


def _weight(variable: Any) -> str:
    return _WEIGHTS[variable.path.rsplit("/", 1)[1]]
