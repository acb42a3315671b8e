"""Describes ModernBERT in Hugging Face's files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert.config_map import ConfigMap, check_flag, check_number, check_size
from keras_transformers.convert.family import Family, Writer
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.name_map import Blocks, NameMap, prefixed
from keras_transformers.families.llama.files import check_heads, read_rotary
from keras_transformers.families.modern_bert.model import MODELS, modern_bert, with_head
from keras_transformers.models.anatomy import anatomy

__all__ = ["FAMILY"]

Arguments = dict[str, Any]

_NAMES = NameMap(
    "ModernBERT",
    layers={
        "token_embedding": "model.embeddings.tok_embeddings",
        "embeddings_norm": "model.embeddings.norm",
        "final_norm": "model.final_norm",
        "head_dense": "head.dense",
        "head_norm": "head.norm",
        "mask_logits": "decoder",
        "logits": "classifier",
        "score_dense": "classifier",
        "span_logits": "classifier",
    },
    blocks=Blocks(
        "model.layers.{}",
        {
            "self_attention/query": "attn.Wqkv",
            "self_attention/key": "attn.Wqkv",
            "self_attention/value": "attn.Wqkv",
            "self_attention/output": "attn.Wo",
            "self_attention_norm": "attn_norm",
            "feed_forward/intermediate": "mlp.Wi",  # the activated half
            "feed_forward/gate": "mlp.Wi",
            "feed_forward/output": "mlp.Wo",
            "feed_forward_norm": "mlp_norm",
        },
    ),
    rewritten=(prefixed("model", "embeddings", "layers", "final_norm"),),
    tied={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
    buffers=("*.rotary_emb.*inv_freq",),
    required=("token_embedding", "embeddings_norm", "final_norm"),
    traits={"block.norm_position": "pre"},
)
# The kind of layer there -> our argument, the field in old files and its default.
_LAYERS = {
    "full_attention": ("global_rotary_base", "global_rope_theta", 160_000.0),
    "sliding_attention": ("local_rotary_base", "local_rope_theta", 10_000.0),
}
_BIASES = {
    "use_attention_bias": "attention_bias",
    "use_feed_forward_bias": "mlp_bias",
    "use_norm_bias": "norm_bias",
    "head_bias": "classifier_bias",
}
_POOLINGS = ("cls", "mean")


def _after_read(file: Path, config: Mapping[str, Any], arguments: Arguments) -> Arguments:
    check_heads(file, arguments)
    pooling = config.get("classifier_pooling", "cls")
    if pooling not in _POOLINGS:
        raise ValueError(f"{file}: classifier_pooling={pooling!r:.100}; expected cls or mean")
    activation = config.get("classifier_activation", "gelu")
    if not isinstance(activation, str) or activation not in _CONFIG.activations:
        names = ", ".join(sorted(_CONFIG.activations))
        raise ValueError(
            f"{file}: classifier_activation={activation!r:.100}; expected one of {names}"
        )
    # There, the window counts both sides, without the token itself.
    window = check_size(file, "local_attention", config.get("local_attention", 128), least=2) // 2
    return {
        **arguments,
        **_rotary_bases(file, config, arguments["max_sequence_length"]),
        **{ours: check_flag(file, config, theirs) for ours, theirs in _BIASES.items()},
        "global_every": _global_every(file, config, arguments["num_layers"]),
        "local_window": window,
        "head_pooling": pooling,
        "head_activation": _CONFIG.activations[activation],
    }


def _rotary_bases(file: Path, config: Mapping[str, Any], longest: int) -> Arguments:
    """Returns both bases, from the fields of transformers 4 or 5."""
    by_kind = config.get("rope_parameters") or {}
    if not isinstance(by_kind, dict) or config.get("rope_scaling"):
        raise ValueError(
            f"{file}: rope_parameters={by_kind!r:.100}; expected those of both kinds of layers"
        )
    bases = {}
    for kind, (ours, old, default) in _LAYERS.items():
        base = config.get(old) or default
        base = check_number(file, old, base, least=1.0 + 1e-6, below=1e12)
        parameters = by_kind.get(kind) or {}
        if not isinstance(parameters, dict):
            raise ValueError(f"{file}: rope_parameters.{kind}={parameters!r:.100}; not an object")
        read = read_rotary(file, {"rope_parameters": {"rope_theta": base, **parameters}}, longest)
        if "rotary_scaling" in read:
            raise ValueError(
                f"{file}: rope_parameters.{kind} has the type {parameters['rope_type']!r}; only "
                "'default' is supported in this family"
            )
        bases[ours] = read["rotary_base"]
    return bases


def _global_every(file: Path, config: Mapping[str, Any], num_layers: int) -> int:
    """Returns n if layers 0, n, 2n and so on attend to all tokens."""
    kinds = config.get("layer_types")
    if kinds is None:
        every = config.get("global_attn_every_n_layers", 3)
        return check_size(file, "global_attn_every_n_layers", every)
    for every in range(1, num_layers + 1):
        if kinds == _layer_types(num_layers, every):
            return every
    raise ValueError(
        f"{file}: layer_types={kinds!r:.200}; expected full_attention in the first of the "
        f"{num_layers} layers and in every n-th after it, and sliding_attention between"
    )


def _layer_types(num_layers: int, every: int) -> list[str]:
    full, sliding = _LAYERS
    return [sliding if index % every else full for index in range(num_layers)]


def _before_write(model: keras.Model, arguments: Arguments) -> tuple[Arguments, dict[str, Any]]:
    """Returns the arguments to write, and the fields of layers, positions, biases and head.

    Raises:
        ValueError: the layers do not alternate as one in n.
    """
    blocks = anatomy(model, "blocks").blocks
    attentions: list[Any] = [block.self_attention for block in blocks]
    kinds = ["full_attention" if a.window is None else "sliding_attention" for a in attentions]
    every = next((i for i, kind in enumerate(kinds) if i and kind == kinds[0]), len(kinds))
    windows = {a.window for a in attentions if a.window is not None}
    bases = {
        kind: {a.positions.base for a, its in zip(attentions, kinds, strict=True) if its == kind}
        for kind in _LAYERS
    }
    if kinds != _layer_types(len(kinds), every) or any(
        len(x) > 1 for x in (windows, *bases.values())
    ):
        raise ValueError(f"model {model.name!r}: config.json has no field for layers like {kinds}")
    names = {layer.name: layer for layer in model.layers}
    rotary = {kind: next(iter(bases[kind]), default) for kind, (_, _, default) in _LAYERS.items()}
    fields: dict[str, Any] = {
        "local_attention": 2 * next(iter(windows), 64),
        "global_attn_every_n_layers": every,
        "layer_types": kinds,
        "global_rope_theta": rotary["full_attention"],
        "local_rope_theta": rotary["sliding_attention"],
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": base} for kind, base in rotary.items()
        },
        "attention_bias": attentions[0].use_bias,
        "mlp_bias": blocks[0].feed_forward.use_bias,
        "norm_bias": names["final_norm"].center,
    }
    if "head_dense" in names:
        dense = names["head_dense"]
        ours = dense.activation.__name__
        theirs = next(
            (theirs for theirs, name in _CONFIG.activations.items() if name == ours), ours
        )
        fields |= {"classifier_bias": dense.use_bias, "classifier_activation": theirs}
    if "head_pooling" in names:
        fields["classifier_pooling"] = names["head_pooling"].modes[0]
    length = attentions[0].positions.max_sequence_length
    return {**arguments, "max_sequence_length": length}, fields


_CONFIG: ConfigMap = ConfigMap(
    "modernbert",
    required={
        "vocabulary_size": "vocab_size",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "hidden_dim": "hidden_size",
        "intermediate_dim": "intermediate_size",
    },
    optional={
        "max_sequence_length": ("max_position_embeddings", 8192),
        "dropout": ("embedding_dropout", 0.0),
        "attention_dropout": ("attention_dropout", 0.0),
        "feed_forward_dropout": ("mlp_dropout", 0.0),
        "norm_epsilon": ("norm_eps", 1e-5),
        "initializer_range": ("initializer_range", 0.02),
    },
    activation=("hidden_activation", "gelu"),
    fixed={"decoder_bias": True, "tie_word_embeddings": True},
    after_read=_after_read,
    before_write=_before_write,
)


def _build(
    *,
    head_pooling: Any = "cls",
    head_activation: Any = "gelu",
    head_bias: bool = False,
    **arguments: Any,
) -> keras.Model:
    encoder = modern_bert(**arguments)
    return with_head(encoder, pooling=head_pooling, activation=head_activation, use_bias=head_bias)


def _tokenizer(folder: Folder, lowercase: bool) -> Any:
    # Imported here because it needs TensorFlow, which the weights do not.
    from keras_transformers.families.llama.tokenizers import language_tokenizer

    special = {
        "start_token": "cls",
        "end_token": "sep",
        "pad_token": "pad",
        "unknown_token": "unk",
        "mask_token": "mask",
    }
    place = folder if folder.path.is_dir() else folder.directory
    return language_tokenizer(place, special=special)


FAMILY: Family = Family(
    "modernbert",
    MODELS,
    _NAMES,
    _CONFIG,
    _build,
    _tokenizer,
    Writer(
        "ModernBert",
        tokenizer="DescribedTokenizer",
        tokenizer_class="PreTrainedTokenizerFast",
        special_tokens=("unk_token", "sep_token", "pad_token", "cls_token", "mask_token"),
    ),
    parts=("head.*", "decoder.*", "classifier.*"),
    vocabulary_file="tokenizer.json",
)
