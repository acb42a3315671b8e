"""Describes Marian (Opus-MT) in Hugging Face's files."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import keras
import numpy as np

from keras_transformers.convert.config_map import ACTIVATIONS, ConfigMap
from keras_transformers.convert.containers.arrays import Arrays
from keras_transformers.convert.family import Family, Writer, search_fields
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.name_map import Blocks, NameMap
from keras_transformers.convert.tensors import Form
from keras_transformers.families.marian.model import MODELS, marian
from keras_transformers.layers.embeddings import PositionEmbedding, sinusoids
from keras_transformers.models.anatomy import anatomy

if TYPE_CHECKING:
    from keras_transformers.tokenizers import MarianTokenizer

__all__ = ["FAMILY"]

# Field -> another field that must agree with it: those of BART and its relatives, then Marian's.
SAME: dict[str, str] = {
    "encoder_attention_heads": "decoder_attention_heads",
    "encoder_ffn_dim": "decoder_ffn_dim",
}
_SAME = {**SAME, "vocab_size": "decoder_vocab_size", "pad_token_id": "decoder_start_token_id"}
ENCODER_BLOCK: dict[str, str] = {
    "self_attention/query": "self_attn.q_proj",
    "self_attention/key": "self_attn.k_proj",
    "self_attention/value": "self_attn.v_proj",
    "self_attention/output": "self_attn.out_proj",
    "self_attention_norm": "self_attn_layer_norm",
    "feed_forward/intermediate": "fc1",
    "feed_forward/output": "fc2",
    "feed_forward_norm": "final_layer_norm",
}
DECODER_BLOCK: dict[str, str] = {
    **ENCODER_BLOCK,
    "cross_attention/query": "encoder_attn.q_proj",
    "cross_attention/key": "encoder_attn.k_proj",
    "cross_attention/value": "encoder_attn.v_proj",
    "cross_attention/output": "encoder_attn.out_proj",
    "cross_attention_norm": "encoder_attn_layer_norm",
}
BIAS: str = "final_logits_bias"
TIED: dict[str, str] = {
    "model.encoder.embed_tokens.weight": "model.shared.weight",
    "model.decoder.embed_tokens.weight": "model.shared.weight",
    "lm_head.weight": "model.shared.weight",
}
REQUIRED: dict[str, str] = {
    "vocabulary_size": "vocab_size",
    "num_encoder_layers": "encoder_layers",
    "num_decoder_layers": "decoder_layers",
    "num_heads": "encoder_attention_heads",
    "hidden_dim": "d_model",
    "intermediate_dim": "encoder_ffn_dim",
    "max_sequence_length": "max_position_embeddings",
    "pad_token_id": "pad_token_id",
}
OPTIONAL: dict[str, tuple[str, Any]] = {
    "dropout": ("dropout", 0.1),
    "attention_dropout": ("attention_dropout", 0.0),
    "feed_forward_dropout": ("activation_dropout", 0.0),
}
_ENCODER_POSITIONS = "model.encoder.embed_positions.weight"
_DECODER_POSITIONS = "model.decoder.embed_positions.weight"
_NO_LOGIT = -1e4
_NAMES = NameMap(
    "Marian",
    layers={
        "token_embedding": "model.shared",
        "source_position_embedding": _ENCODER_POSITIONS.removesuffix(".weight"),
        "target_position_embedding": _DECODER_POSITIONS.removesuffix(".weight"),
    },
    blocks=Blocks("model.encoder.layers.{}", ENCODER_BLOCK),
    decoder_blocks=Blocks("model.decoder.layers.{}", DECODER_BLOCK),
    stored={"logits/bias": (BIAS, Form(ones=1))},
    tied=TIED,
    required=("token_embedding", "target_position_embedding", "logits"),
    traits={"target_position_embedding.interleaved": False, "block.norm_position": "post"},
)


def _after_read(file: Path, config: Mapping[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    if config.get("scale_embedding", False) is not True:
        raise ValueError(f"{file}: scale_embedding must be true; nothing else is supported")
    check_same(file, config, _SAME)
    return arguments


def check_same(file: Path, config: Mapping[str, Any], same: Mapping[str, str]) -> None:
    """Raises ValueError if two fields that must agree differ."""
    for first, other in same.items():
        value = config.get(first)
        if config.get(other, value) not in (value, None):
            raise ValueError(
                f"{file}: {other}={config[other]!r} and {first}={value!r}; they must be the same"
            )


def _before_write(
    model: keras.Model, arguments: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    same = {other: arguments[ours] for ours, other in _WRITTEN.items()}
    return arguments, {**same, "bad_words_ids": [[arguments["pad_token_id"]]]}


_CONFIG = ConfigMap(
    "marian",
    required=REQUIRED,
    optional=OPTIONAL,
    activation=("activation_function", "gelu"),
    activations={"swish": "silu", **ACTIVATIONS},  # the name that saving writes
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
    written={"scale_embedding": True, "architectures": ["MarianMTModel"]},
    after_read=_after_read,
    before_write=_before_write,
)
_WRITTEN = {ours: _SAME[theirs] for ours, theirs in _CONFIG.required.items() if theirs in _SAME}


def _settle(folder: Folder, arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments with the kind of positions found in the weights; no field has it."""
    shape = (arguments["max_sequence_length"], arguments["hidden_dim"])
    arrays = _NAMES.today(folder.arrays)
    tensors = [arrays[name] for name in (_ENCODER_POSITIONS, _DECODER_POSITIONS) if name in arrays]
    if all(_are_sinusoids(tensor, shape) for tensor in tensors):
        return arguments
    return {**arguments, "positions": "learned"}


def _adapt(model: keras.Model, arrays: Arrays) -> Arrays:
    """Returns the weights adapted to the model's positions, and so that searches skip padding.

    A model that computes sinusoids does not need them from the file; one with learned positions
    gets sinusoids if the file has none. Searches must not predict padding, which these models leave
    to the search (Hugging Face: bad_words_ids): the bias of its logit becomes -10,000.

    Raises:
        ValueError: the file's positions differ from the model's sinusoids.
    """
    decoder = anatomy(model, "token_embedding", "encoder")
    assert decoder.encoder is not None
    assert decoder.encoder.padding is not None
    for side, name in ((decoder.encoder, _ENCODER_POSITIONS), (decoder, _DECODER_POSITIONS)):
        layer = side.positions[0]
        shape = (layer.max_sequence_length, decoder.token_embedding.hidden_dim)
        if isinstance(layer, PositionEmbedding):
            if name not in arrays:
                arrays = arrays.including(name, sinusoids(*shape, interleaved=False))
        elif name in arrays:
            if not _are_sinusoids(arrays[name], shape):
                raise ValueError(
                    f"{arrays.source}: {name} has other values than the sinusoids of model "
                    f"{model.name!r}, or another shape than {shape}: build the model with "
                    "positions='learned', or load the folder with keras_transformers.load"
                )
            arrays = arrays.without(name)
    pad = decoder.encoder.padding.pad_token_id
    if arrays.shapes.get(BIAS, ())[-1:] == (decoder.token_embedding.input_dim,):
        bias = arrays[BIAS].copy()
        bias[..., pad] = _NO_LOGIT
        arrays = arrays.including(BIAS, bias)
    return arrays


def _are_sinusoids(tensor: np.ndarray, shape: tuple[int, int]) -> bool:
    """Returns whether a tensor equals the sinusoids, rounded to its own precision."""
    if tensor.shape != shape:
        return False
    table = sinusoids(*shape, interleaved=False).astype(tensor.dtype)
    difference = np.abs(tensor.astype("float64") - table.astype("float64"))
    return bool(np.all(difference <= 1e-6))  # also false for NaN


def _side(folder: Folder, side: Literal["source", "target"]) -> "MarianTokenizer":
    # Imported here because it needs TensorFlow, which the weights do not.
    from keras_transformers.tokenizers import MarianTokenizer

    arguments = _CONFIG.read(folder)
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
            "target's: pass both to the pipeline"
        )
    return {"separate_vocabs": False}


FAMILY: Family = Family(
    "marian",
    MODELS,
    _NAMES,
    _CONFIG,
    marian,
    lambda path, lowercase: _side(path, "source"),
    Writer(
        {"translation": "MarianMTModel"},
        tokenizer="MarianTokenizer",
        tokenizer_class="MarianTokenizer",
        special_tokens=("eos_token", "unk_token", "pad_token"),
        tokenizer_fields=_tokenizer_fields,
        generation_fields=search_fields,
    ),
    task="translation",
    generates=True,
    trained={"MTModel": ("translation",)},
    target_tokenizer=lambda path: _side(path, "target"),
    tokenizer_classes=("MarianTokenizer",),
    settle=_settle,
    adapt=_adapt,
)
