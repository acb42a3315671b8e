"""Converts GPT and GPT-2 weights from and to Hugging Face's safetensors."""

import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_transformers.convert.config_map import ConfigMap, arguments_of, read_config
from keras_transformers.convert.families import Family, Writer
from keras_transformers.convert.name_map import part_of, weight_name
from keras_transformers.convert.tensors import (
    NamedVariable,
    assign,
    drop_copies,
    read_safetensors,
    write_safetensors,
)
from keras_transformers.models.gpt import MODELS, CausalLM, gpt

if TYPE_CHECKING:
    from keras_transformers.tokenizers import BytePairTokenizer

__all__ = [
    "load_gpt",
    "load_language_model",
    "read_gpt_config",
    "save_gpt",
    "save_gpt_config",
    "save_language_model",
]

# Only GPT-2 has a norm at the end.
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
# The parts of an `EncoderLayer`. Their matrices are `Conv1D`s, stored (in, out) as in Keras;
# queries, keys and values share one matrix.
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
# Not weights: causal masks, and the positions 0, 1, 2, ... that old versions also saved.
_BUFFERS = ("*.attn.bias", "*.attn.masked_bias", "transformer.position_ids")
_TIED = "lm_head.weight"
_REQUIRED = {
    "vocabulary_size": "vocab_size",
    "num_layers": "n_layer",
    "num_heads": "n_head",
    "hidden_dim": "n_embd",
    "max_sequence_length": "n_positions",
}
_OPTIONAL = {
    "dropout": ("resid_pdrop", 0.1),
    "attention_dropout": ("attn_pdrop", 0.1),
    "norm_epsilon": ("layer_norm_epsilon", 1e-5),
    "initializer_range": ("initializer_range", 0.02),
}
_CONFIGS = {
    "gpt2": ConfigMap(
        "gpt2",
        required=_REQUIRED,
        optional={**_OPTIONAL, "intermediate_dim": ("n_inner", None)},
        activation=("activation_function", "gelu_new"),
        fixed={
            "scale_attn_weights": True,
            "scale_attn_by_inverse_layer_idx": False,
            "add_cross_attention": False,
        },
    ),
    "openai-gpt": ConfigMap(
        "openai-gpt",
        required=_REQUIRED,
        optional=_OPTIONAL,
        activation=("afn", "gelu"),
        # Hugging Face's first GPT means the tanh form by "gelu".
        activations={"gelu": "gelu_approximate", "relu": "relu", "silu": "silu", "swish": "silu"},
    ),
}


def read_gpt_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads Hugging Face's `config.json` as arguments of `keras_transformers.models.gpt.gpt`.

    Args:
        path: the file or its folder.

    Returns:
        Keyword arguments that build the model it describes.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not JSON, describes neither GPT nor GPT-2, lacks a field, or needs
            something that these layers lack.

    Example:
        model = gpt(**read_gpt_config("gpt2"))
    """
    file, config = read_config(path, *_CONFIGS)
    kind = config["model_type"]
    arguments = _CONFIGS[kind].arguments(file, config)
    return {**arguments, "norm_position": "post" if kind == "openai-gpt" else "pre"}


def load_gpt(
    model: keras.Model, path: str | os.PathLike[str], *, ignore: Iterable[str] = ()
) -> list[str]:
    """Loads Hugging Face's GPT or GPT-2 weights into a causal language model.

    It reads the files of OpenAIGPTLMHeadModel, OpenAIGPTModel, GPT2LMHeadModel and GPT2Model.
    Unless every tensor is used or matches `ignore`, loading fails and the model is unchanged.

    Args:
        model: a model from `keras_transformers.models.gpt`, without a head.
        path: a `.safetensors` file, or a folder with `model.safetensors`.
        ignore: wildcards of tensors to leave out, such as "score.*" for a classifier's head. Names
            start with "transformer." here, even if they do not in the file.

    Returns:
        The names of the tensors that `ignore` left out.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is unreadable; tensors are missing, left over or of another shape (the
            message lists them all); or a copy of the tied embeddings differs from them.
    """
    tensors = {_modern(name): tensor for name, tensor in read_safetensors(path).items()}
    embeddings = f"{_TOP_LEVEL[_kind(model)]['token_embedding']}.weight"
    drop_copies(tensors, {_TIED: embeddings}, source=str(path))
    for name in [name for name in tensors if ".attn.c_attn." in name]:
        parts = np.array_split(tensors.pop(name), len(_FUSED), axis=-1)
        tensors |= {f"{name}[{part}]": t for part, t in zip(_FUSED, parts, strict=True)}
    return assign(_variables(model), tensors, source=str(path), ignore=ignore, buffers=_BUFFERS)


def save_gpt(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Writes a causal language model's weights under Hugging Face's names, for `from_pretrained`.

    Args:
        model: a model from `keras_transformers.models.gpt`.
        path: the `.safetensors` file to write.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: Hugging Face's GPT has no counterpart of a layer, such as a classifier's.
    """
    parts: dict[str, list[np.ndarray]] = {}
    for named in _variables(model):
        parts.setdefault(named.name.partition("[")[0], []).append(np.asarray(named.variable))
    fused = {name: np.concatenate(arrays, axis=-1) for name, arrays in parts.items()}
    write_safetensors([NamedVariable(array, name) for name, array in fused.items()], path)


def save_gpt_config(
    model: keras.Model,
    path: str | os.PathLike[str],
    *,
    start_token_id: int | None = None,
    end_token_id: int | None = None,
) -> None:
    """Writes a causal language model's shape as Hugging Face's `config.json`.

    Args:
        model: a model from `keras_transformers.models.gpt`.
        path: the file to write.
        start_token_id: the token before each text (Hugging Face: bos_token_id).
        end_token_id: the token that ends a text (Hugging Face: eos_token_id). Without these two,
            transformers takes those of OpenAI's vocabulary.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: Hugging Face has no name for the activation, the first GPT's `intermediate_dim`
            is not 4 * `hidden_dim`, or a token is outside the vocabulary.
    """
    kind = _kind(model)
    arguments = arguments_of(model, "GPT", _TOP_LEVEL["openai-gpt"], layers="decoder_layer_")
    hidden, inner = arguments["hidden_dim"], arguments["intermediate_dim"]
    if kind == "openai-gpt" and inner != 4 * hidden:
        raise ValueError(
            f"intermediate_dim={inner}: the first GPT's config.json has no field for it, so it "
            f"must be 4 * hidden_dim = {4 * hidden}"
        )
    given = {"bos_token_id": start_token_id, "eos_token_id": end_token_id}
    tokens = {name: token_id for name, token_id in given.items() if token_id is not None}
    for name, token_id in tokens.items():
        if not 0 <= token_id < arguments["vocabulary_size"]:
            raise ValueError(
                f"{name} {token_id} is outside the vocabulary of {arguments['vocabulary_size']}"
            )
    _CONFIGS[kind].write(arguments, path, embd_pdrop=arguments["dropout"], **tokens)


def load_language_model(
    *,
    weights: Path | None = None,
    model: str | None = None,
    vocabulary: Path | None = None,
    dropout: float = 0.1,
) -> tuple[CausalLM, "BytePairTokenizer"]:
    """Loads a GPT and its tokenizer.

    Args:
        weights: folder of a pretrained GPT in Hugging Face's layout: config.json,
            model.safetensors, vocab.json and merges.txt. The `language_model` recipe writes one.
        model: instead of `weights`, a name from `keras-transformers list 'gpt*'`; its weights are
            random.
        vocabulary: the folder with vocab.json and merges.txt for `model`; `weights` have their own.
        dropout: rate in the model and its attention.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: the arguments are neither `weights` alone nor `model` with `vocabulary`, or the
            files do not belong together.
    """
    # Imported here because it needs TensorFlow, which the weights do not.
    from keras_transformers.tokenizers import BytePairTokenizer

    rates = {"dropout": dropout, "attention_dropout": dropout}
    if weights and not model and not vocabulary:
        language_model = gpt(**(read_gpt_config(weights) | rates))
        tokenizer = BytePairTokenizer(weights)
        load_gpt(language_model, weights)
    elif model and vocabulary and not weights:
        if model not in MODELS:
            raise ValueError(f"--model {model}: take one of {', '.join(MODELS)}")
        tokenizer = BytePairTokenizer(vocabulary)
        language_model = MODELS[model].factory(vocabulary_size=tokenizer.vocabulary_size, **rates)
    else:
        raise ValueError("give either --weights FOLDER, or --model NAME and --vocabulary FOLDER")
    if tokenizer.vocabulary_size != language_model.get_layer("token_embedding").input_dim:
        raise ValueError(
            f"{weights}: vocab.json has {tokenizer.vocabulary_size} tokens, but the model embeds "
            f"{language_model.get_layer('token_embedding').input_dim}: use the vocabulary that "
            "belongs to the weights"
        )
    return language_model, tokenizer


def save_language_model(model: CausalLM, folder: Path, tokenizer: "BytePairTokenizer") -> None:
    """Writes a GPT in Hugging Face's layout, for `load_language_model` and transformers.

    Args:
        model: a model from `keras_transformers.models.gpt`.
        folder: folder for model.safetensors, config.json, vocab.json and merges.txt.
        tokenizer: the model's tokenizer.
    """
    folder.mkdir(exist_ok=True)
    tokenizer.save(folder)
    save_gpt(model, folder / "model.safetensors")
    save_gpt_config(
        model,
        folder / "config.json",
        start_token_id=tokenizer.start_token_id,
        end_token_id=tokenizer.end_token_id,
    )


def _kind(model: keras.Model) -> str:
    names = {layer.name for layer in model.layers}
    missing = {"token_embedding", "position_embedding", "decoder_layer_0"} - names
    if missing:
        raise ValueError(
            f"model {model.name!r} is not a GPT: it has no layer {', '.join(sorted(missing))}"
        )
    return "gpt2" if "final_norm" in names else "openai-gpt"


def _modern(name: str) -> str:
    """Returns a tensor's name as models with a head write it."""
    headless = ("wte.", "wpe.", "h.", "ln_f.", "tokens_embed.", "positions_embed.", "position_ids")
    return f"transformer.{name}" if name.startswith(headless) else name


def _variables(model: keras.Model) -> list[NamedVariable]:
    """Returns every variable of the model with its name in the file; tied weights occur once."""
    kind = _kind(model)
    return [named for layer in model.layers if layer.weights for named in _of_layer(layer, kind)]


def _of_layer(layer: keras.layers.Layer, kind: str) -> Iterator[NamedVariable]:
    if layer.name in ("token_embedding", "position_embedding"):
        yield NamedVariable(layer.embeddings, f"{_TOP_LEVEL[kind][layer.name]}.weight")
    elif layer.name in _TOP_LEVEL[kind]:
        for variable in layer.weights:
            name = f"{_TOP_LEVEL[kind][layer.name]}.{weight_name(variable)}"
            yield NamedVariable(variable, name)
    elif layer.name.startswith("decoder_layer_"):
        module = f"transformer.h.{layer.name.removeprefix('decoder_layer_')}"
        for variable in layer.weights:
            part = part_of(variable, layer)
            name = f"{module}.{_PARTS[part]}.{weight_name(variable)}"
            fused = part.rpartition("/")[2]
            yield NamedVariable(variable, f"{name}[{fused}]" if fused in _FUSED else name)
    else:
        raise ValueError(
            f"layer {layer.name!r} has no place in Hugging Face's GPT; load or save the language "
            "model without its head"
        )


def _load(folder: Path, dropout: float) -> CausalLM:
    return load_language_model(weights=folder, dropout=dropout)[0]


def _tokenizer(path: Path, lowercase: bool) -> "BytePairTokenizer":
    from keras_transformers.tokenizers import BytePairTokenizer

    return BytePairTokenizer(path)


def _is(kind: str, model: keras.Model) -> bool:
    """Returns whether a model is a language model of this kind, without another head."""
    try:
        return _kind(model) == kind and bool(_variables(model))
    except ValueError:
        return False


def _generation_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    sampling = {name: options[name] for name in ("temperature", "top_k", "top_p")}
    return {"do_sample": True, "max_new_tokens": options["max_length"], **sampling}


FAMILY = Family(
    "gpt2",
    MODELS,
    _load,
    _tokenizer,
    read=read_gpt_config,
    build=gpt,
    fill=load_gpt,
    parts=("score.*", "classifier.*", "multiple_choice_head.*"),
    task="generation",
    trained={"LMHeadModel": ("generation",)},
    other_types=("openai-gpt",),
    writers=tuple(
        Writer(
            functools.partial(_is, kind),
            {"generation": name},
            save_gpt,
            save_gpt_config,
            tokenizer="BytePairTokenizer",
            tokenizer_class="GPT2Tokenizer",
            special_tokens=("bos_token", "eos_token", "pad_token"),
            # As `pipelines.TextGenerator` does.
            tokenizer_fields=lambda tokenizers: {"add_bos_token": True},
            generation_fields=_generation_fields,
        )
        for kind, name in (("gpt2", "GPT2LMHeadModel"), ("openai-gpt", "OpenAIGPTLMHeadModel"))
    ),
)
