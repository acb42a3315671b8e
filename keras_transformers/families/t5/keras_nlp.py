"""Reads T5 in presets of keras-nlp, by attributes, because its variables' paths are not unique."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert.config_map import check_number, check_size
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.keras_backbones import SIZES, Arguments, Arrays, Backbone

_ACTIVATIONS = ("relu", "gelu", "gelu_approximate", "silu")
_MATRICES = ("query", "key", "value", "output")
_FEED_FORWARD = {"intermediate": "input", "output": "output"}


def _arguments(folder: Folder, sizes: Arguments, config: Mapping[str, Any]) -> Arguments:
    """Returns the arguments of our builder.

    Args:
        folder: the preset.
        sizes: the fields with the same meaning there and here.
        config: the fields of T5Backbone.

    Raises:
        ValueError: a field is missing, out of range or of the wrong type.
    """
    file, arguments = folder / "config.json", dict(sizes)
    layers, heads = arguments.pop("num_layers"), arguments["num_heads"]
    dim = arguments["hidden_dim"]
    width, activation = config.get("key_value_dim"), config.get("activation")
    if isinstance(activation, dict):  # one of keras-nlp's own functions
        activation = activation.get("config")
    name = str(activation).rpartition(">")[2]
    if name not in _ACTIVATIONS:
        raise ValueError(
            f"{file}: activation={activation!r}; expected one of {', '.join(_ACTIVATIONS)}"
        )
    flags = {}
    for field in ("use_gated_activation", "tie_embedding_weights"):
        flags[field] = config.get(field)
        if not isinstance(flags[field], bool):
            raise ValueError(f"{file}: {field}={flags[field]!r}; expected true or false")
    if width is None and dim < heads:
        raise ValueError(f"{file}: hidden_dim={dim} is too small for num_heads={heads}")
    epsilon = config.get("layer_norm_epsilon", 1e-6)
    return {
        **arguments,
        "num_encoder_layers": layers,
        "num_decoder_layers": layers,
        "head_dim": dim // heads if width is None else check_size(file, "key_value_dim", width),
        "norm_epsilon": check_number(file, "layer_norm_epsilon", epsilon),
        "attention_dropout": arguments["dropout"],
        "activation": name,
        "gated_feed_forward": flags["use_gated_activation"],
        "tied_logits": flags["tie_embedding_weights"],
    }


def _arrays(backbone: Any) -> Arrays:
    """Returns the variables of a T5Backbone under our paths."""
    return {path: keras.ops.convert_to_numpy(value) for path, value in _variables(backbone)}


def _tokenizers(assets: Path, config: Mapping[str, Any]) -> tuple[Any, ...]:
    """Makes the tokenizer of a preset, without extra ids, which keras-nlp's lacks too.

    Raises:
        FileNotFoundError: the folder has no vocabulary.spm.
        ValueError: it is not a SentencePiece model of T5, or has more tokens than the model.
    """
    # Imported here because it needs TensorFlow, which the weights do not.
    from keras_transformers.tokenizers import T5Tokenizer

    file, size = assets / "vocabulary.spm", config["vocabulary_size"]
    return (T5Tokenizer(file, num_extra_ids=0, vocabulary_size=size),)


def _variables(backbone: Any) -> Iterator[tuple[str, Any]]:
    yield "token_embedding/embeddings", backbone.token_embedding.embeddings
    if not backbone.tie_embedding_weights:
        yield "output_projection/kernel", backbone.token_embedding.reverse_embeddings
    for side in ("encoder", "decoder"):
        layers = getattr(backbone, f"{side}_transformer_layers")
        bias = layers[0].self_attention.relative_attention_bias
        yield f"{side}_position_bias/embeddings", bias
        yield f"{side}_norm/scale", getattr(backbone, f"{side}_layer_norm").weight
        for number, layer in enumerate(layers):
            for part, kernel in _of_layer(layer):
                yield f"{side}_layer_{number}/{part}", kernel


def _of_layer(layer: Any) -> Iterator[tuple[str, Any]]:
    for name in ("self_attention", "cross_attention") if layer.is_decoder else ("self_attention",):
        attention = getattr(layer, name)
        for matrix in _MATRICES:
            yield f"{name}/{matrix}/kernel", getattr(attention, f"{matrix}_projector").kernel
        yield f"{name}_norm/scale", getattr(layer, f"{name}_layer_norm").weight
    for ours, theirs in _FEED_FORWARD.items():
        yield f"feed_forward/{ours}/kernel", getattr(layer, f"{theirs}_projector").kernel
    if layer.use_gated_activation:
        yield "feed_forward/gate/kernel", layer.gate_projector.kernel
    yield "feed_forward_norm/scale", layer.layer_norm.weight


BACKBONE = Backbone(
    name="T5Backbone",
    fields=(*SIZES, "dropout"),
    arguments=_arguments,
    arrays=_arrays,
    tokenizers=_tokenizers,
)
