"""Describes GPT-2 in Hugging Face's files."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras

from keras_transformers.convert.config_map import ConfigMap
from keras_transformers.convert.family import Family, Writer
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.keras_backbones import Backbone
from keras_transformers.convert.name_map import Blocks, NameMap, prefixed
from keras_transformers.convert.tensors import PLAIN
from keras_transformers.families.gpt.model import MODELS, gpt

if TYPE_CHECKING:
    from keras_transformers.tokenizers import BytePairTokenizer

__all__ = ["FAMILY"]

NAMES: NameMap = NameMap(
    "GPT-2",
    layers={
        "token_embedding": "transformer.wte",
        "position_embedding": "transformer.wpe",
        "final_norm": "transformer.ln_f",
    },
    blocks=Blocks(
        "transformer.h.{}",
        {
            "self_attention/query": "attn.c_attn",
            "self_attention/key": "attn.c_attn",
            "self_attention/value": "attn.c_attn",
            "self_attention/output": "attn.c_proj",
            "self_attention_norm": "ln_1",
            "feed_forward/intermediate": "mlp.c_fc",
            "feed_forward/output": "mlp.c_proj",
            "feed_forward_norm": "ln_2",
        },
    ),
    kernel=PLAIN,  # `Conv1D`s, stored (in, out) as in Keras
    rewritten=(prefixed("transformer", "wte", "wpe", "h", "ln_f"),),
    tied={"lm_head.weight": "transformer.wte.weight"},
    buffers=("*.attn.bias", "*.attn.masked_bias"),  # causal masks
    required=("token_embedding", "position_embedding", "final_norm"),
    traits={"block.norm_position": "pre"},
)


def _after_read(file: Path, config: Mapping[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    return {**arguments, "norm_position": "pre"}


def before_write(
    model: keras.Model, arguments: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the arguments, and the embeddings' dropout, which is the same as everywhere."""
    return arguments, {"embd_pdrop": arguments["dropout"]}


CONFIG: ConfigMap = ConfigMap(
    "gpt2",
    required={
        "vocabulary_size": "vocab_size",
        "num_layers": "n_layer",
        "num_heads": "n_head",
        "hidden_dim": "n_embd",
        "max_sequence_length": "n_positions",
    },
    optional={
        "dropout": ("resid_pdrop", 0.1),
        "attention_dropout": ("attn_pdrop", 0.1),
        "norm_epsilon": ("layer_norm_epsilon", 1e-5),
        "initializer_range": ("initializer_range", 0.02),
        "intermediate_dim": ("n_inner", None),
    },
    activation=("activation_function", "gelu_new"),
    fixed={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    },
    after_read=_after_read,
    before_write=before_write,
)


def settle(folder: Folder, arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments with the activation used by the class that wrote the weights.

    TensorFlow's classes used the exact GELU, regardless of the configuration: GPT-2's in
    transformers 3.3 to 4.10, GPT's since 4.1.
    """
    config = folder.json("config.json")
    version = re.match(r"(\d+)\.(\d+)", str(config.get("transformers_version")))
    if config["model_type"] == "openai-gpt":
        ignored = version is not None
    else:  # the field appeared and disappeared with the bug
        is_new = version is not None and tuple(map(int, version.groups())) >= (4, 11)
        ignored = "gradient_checkpointing" in config and not is_new
    if ignored and folder.arrays.architecture:
        return {**arguments, "activation": "gelu"}
    return arguments


PARTS: tuple[str, ...] = ("score.*", "classifier.*", "multiple_choice_head.*")


def byte_pairs(folder: Folder, lowercase: bool) -> "BytePairTokenizer":
    """Makes the tokenizer from a folder with vocab.json and merges.txt."""
    from keras_transformers.tokenizers import BytePairTokenizer

    return BytePairTokenizer(folder)


def writer(kind: str) -> Writer:
    """Returns how to write a language model for this class of transformers."""
    return Writer(
        {"generation": kind},
        tokenizer="BytePairTokenizer",
        tokenizer_class="GPT2Tokenizer",
        special_tokens=("bos_token", "eos_token", "pad_token"),
        tokenizer_fields=lambda tokenizers: {"add_bos_token": True},  # as `TextGenerator` does
        generation_fields=sampling_fields,
    )


def sampling_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of `generation_config.json` for the options of `TextGenerator`."""
    names = ("temperature", "top_k", "top_p")
    sampling = {name: options[name] for name in names if name in options}
    samples = bool(sampling)
    more = {"repetition_penalty": "repetition_penalty", "stop": "stop_strings"}
    sampling |= {theirs: options[ours] for ours, theirs in more.items() if ours in options}
    return {"do_sample": samples, "max_new_tokens": options["max_length"], **sampling}


FAMILY: Family = Family(
    "gpt2",
    {name: entry for name, entry in MODELS.items() if name.startswith("gpt2")},
    NAMES,
    CONFIG,
    gpt,
    byte_pairs,
    writer("GPT2LMHeadModel"),
    parts=PARTS,
    task="generation",
    generates=True,
    trained={"LMHeadModel": ("generation",)},
    settle=settle,
    keras_nlp=Backbone(
        name="GPT2Backbone",
        fixed={"activation": "gelu_approximate", "norm_epsilon": 1e-5, "norm_position": "pre"},
        our_blocks="decoder_layer_{}",
    ),
)
