"""Describes T5, 1.0 and 1.1, in Hugging Face's files."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras

from keras_transformers.convert.config_map import ACTIVATIONS, ConfigMap
from keras_transformers.convert.family import Family, Writer, search_fields
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.name_map import Blocks, NameMap
from keras_transformers.families.t5.keras_nlp import BACKBONE
from keras_transformers.families.t5.model import MODELS, t5
from keras_transformers.models.anatomy import anatomy

if TYPE_CHECKING:
    from keras_transformers.tokenizers import T5Tokenizer

__all__ = ["FAMILY"]

Arguments = dict[str, Any]  # of our builder
_GATED = "gated_"
_MOST_EXTRA_IDS = 10_000


def after_read(file: Path, config: Mapping[str, Any], arguments: Arguments) -> Arguments:
    """Returns the arguments of `t5` for those in a file."""
    if arguments["num_decoder_layers"] is None:
        arguments["num_decoder_layers"] = arguments["num_encoder_layers"]
    activation = arguments["activation"]
    for field, implied in (
        ("dense_act_fn", activation.removeprefix(_GATED)),
        ("is_gated_act", activation.startswith(_GATED)),
    ):
        value = config.get(field, implied)
        if ACTIVATIONS.get(value, value) != implied if isinstance(value, str) else value != implied:
            raise ValueError(
                f"{file}: {field}={value!r:.100}, but feed_forward_proj means {implied!r}: leave "
                "one of the two"
            )
    # In files, tied embeddings mean that the logits are scaled; transformers 5 writes a field for
    # it and marks all models as tied.
    tied = config.get("scale_decoder_outputs", config.get("tie_word_embeddings", True))
    return {
        **arguments,
        "attention_dropout": arguments["dropout"],
        "activation": activation.removeprefix(_GATED),
        "gated_feed_forward": activation.startswith(_GATED),
        "tied_logits": tied is not False,
    }


def _before_write(model: keras.Model, arguments: Arguments) -> tuple[Arguments, dict[str, Any]]:
    parts = anatomy(model, "token_embedding", "projection")
    gate = _GATED if arguments["gated_feed_forward"] else ""
    tied = parts.projection is parts.token_embedding
    activation = gate + arguments["activation"]
    return {**arguments, "activation": activation}, {"tie_word_embeddings": tied}


CONFIG: ConfigMap = ConfigMap(
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
        "num_decoder_layers": ("num_decoder_layers", None),  # the same number as in the encoder
        "num_buckets": ("relative_attention_num_buckets", 32),
        "max_distance": ("relative_attention_max_distance", 128),
        "dropout": ("dropout_rate", 0.1),
        "norm_epsilon": ("layer_norm_epsilon", 1e-6),
    },
    activation=("feed_forward_proj", "relu"),
    activations={
        **ACTIVATIONS,
        "gated-gelu": f"{_GATED}gelu_approximate",  # transformers uses the tanh form for this name
        **{
            f"gated-{theirs}": _GATED + ours
            for theirs, ours in ACTIVATIONS.items()
            if theirs != "gelu"
        },
    },
    fixed={
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
        "is_encoder_decoder": True,
    },
    written={"architectures": ["T5ForConditionalGeneration"]},
    after_read=after_read,
    before_write=_before_write,
)


def _blocks(side: str, *sublayers: str) -> Blocks:
    """Returns the names of one side's blocks, whose sub-layers are numbered."""
    theirs = {"self_attention": "SelfAttention", "cross_attention": "EncDecAttention"}
    parts = {}
    for number, name in enumerate(sublayers):
        parts[f"{name}_norm"] = f"layer.{number}.layer_norm"
        for ours, letter in zip(("query", "key", "value", "output"), "qkvo", strict=True):
            if name in theirs:
                parts[f"{name}/{ours}"] = f"layer.{number}.{theirs[name]}.{letter}"
    dense = f"layer.{len(sublayers) - 1}.DenseReluDense"
    parts |= {"feed_forward/intermediate": f"{dense}.wi", "feed_forward/output": f"{dense}.wo"}
    # With a gate, the activated matrix has another name.
    gated = {"feed_forward/intermediate": f"{dense}.wi_0", "feed_forward/gate": f"{dense}.wi_1"}
    return Blocks(f"{side}.block.{{}}", parts, gated)


NAMES: NameMap = NameMap(
    "T5",
    layers={
        "token_embedding": "shared",
        "encoder_position_bias": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
        "decoder_position_bias": "decoder.block.0.layer.0.SelfAttention.relative_attention_bias",
        "encoder_norm": "encoder.final_layer_norm",
        "decoder_norm": "decoder.final_layer_norm",
        "output_projection": "lm_head",
    },
    blocks=_blocks("encoder", "self_attention", "feed_forward"),
    decoder_blocks=_blocks("decoder", "self_attention", "cross_attention", "feed_forward"),
    tied={
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
        "lm_head.weight": "shared.weight",  # unless the model has its own
    },
    # Cross-attention has no positions, but old files have this matrix anyway.
    buffers=("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",),
    required=("token_embedding", "encoder_position_bias", "decoder_position_bias"),
    traits={"block.norm": "rms", "block.norm_position": "pre"},
)


def _num_extra_ids(folder: Folder) -> int:
    name = "tokenizer_config.json"
    count = folder.json(name, missing_ok=True).get("extra_ids", 100)
    if type(count) is not int or not 0 <= count <= _MOST_EXTRA_IDS:
        raise ValueError(
            f"{folder / name}: extra_ids={count!r:.100}; expected an integer from 0 to "
            f"{_MOST_EXTRA_IDS}"
        )
    return count


def tokenizer_of(folder: Folder, fields: ConfigMap, name: str = "T5Tokenizer") -> "T5Tokenizer":
    """Returns the tokenizer of a folder, padded to the model's vocabulary.

    Args:
        folder: the folder with the files.
        fields: the fields of the family's `config.json`.
        name: our class.
    """
    # Imported here because it needs TensorFlow, which the weights do not.
    from keras_transformers import tokenizers

    kind: type[T5Tokenizer] = getattr(tokenizers, name)
    return kind(
        folder / kind.model_file,
        num_extra_ids=_num_extra_ids(folder),
        vocabulary_size=fields.read(folder)["vocabulary_size"],
    )


def writer_of(kind: str, *, tokenizer: str = "T5Tokenizer") -> Writer:
    """Returns the writer of a class of transformers and of our tokenizer."""
    return Writer(
        {"translation": kind},
        tokenizer=tokenizer,
        tokenizer_class="T5Tokenizer",
        special_tokens=("eos_token", "unk_token", "pad_token"),
        tokenizer_fields=lambda tokenizers: {"extra_ids": tokenizers["tokenizer"].num_extra_ids},
        generation_fields=search_fields,
    )


FAMILY: Family = Family(
    "t5",
    MODELS,
    NAMES,
    CONFIG,
    t5,
    lambda folder, lowercase: tokenizer_of(folder, CONFIG),
    writer_of("T5ForConditionalGeneration"),
    task="translation",
    generates=True,
    trained={"ForConditionalGeneration": ("translation",), "WithLMHeadModel": ("translation",)},
    tokenizer_classes=("T5Tokenizer",),
    pieces_file="spiece.model",
    first_pieces=("<pad>", "</s>", "<unk>"),
    longest_text=512,  # the longest in pretraining; positions are relative
    keras_nlp=BACKBONE,
)
