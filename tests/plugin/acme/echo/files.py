"""Describes Echo's files in Hugging Face's layout."""

from typing import Any

import keras

from acme.echo.model import MODELS, PassEmbedding, echo
from keras_transformers.convert import Blocks, ConfigMap, Family, Folder, NameMap, Writer

_NAMES = NameMap(
    "Echo",
    layers={
        "token_embedding": "echo.words",
        "position_embedding": "echo.positions",
        "pass_embedding": "echo.passes",
        "pooler": "echo.pooler",
        "logits": "classifier",
        "order_logits": "order",
    },
    blocks=Blocks(
        "echo.layer.{}",
        {
            "self_attention/query": "attention.query",
            "self_attention/key": "attention.key",
            "self_attention/value": "attention.value",
            "self_attention/output": "attention.output",
            "self_attention_norm": "attention.norm",
            "feed_forward/intermediate": "feed_forward.inner",
            "feed_forward/output": "feed_forward.outer",
            "feed_forward_norm": "feed_forward.norm",
        },
    ),
    required=("token_embedding", "pass_embedding"),
)


def _num_passes(model: keras.Model) -> int:
    (layer,) = (layer for layer in model.layers if isinstance(layer, PassEmbedding))
    return layer.num_passes


def _before_write(model: keras.Model, arguments: dict[str, Any]) -> tuple[dict, dict]:
    """Returns the arguments with the passes, which the blocks alone do not tell."""
    passes = _num_passes(model)
    return {
        **arguments,
        "num_passes": passes,
        "num_layers": arguments["num_layers"] // passes,
    }, {}


_CONFIG = ConfigMap(
    "acme-echo",
    required={
        "vocabulary_size": "vocab_size",
        "num_layers": "num_hidden_layers",
        "num_passes": "num_passes",
        "num_heads": "num_attention_heads",
        "hidden_dim": "hidden_size",
        "intermediate_dim": "intermediate_size",
        "max_sequence_length": "max_position_embeddings",
    },
    optional={
        "dropout": ("hidden_dropout_prob", 0.1),
        "attention_dropout": ("attention_probs_dropout_prob", 0.1),
    },
    before_write=_before_write,
)


def _tokenizer(folder: Folder, lowercase: bool) -> Any:
    """Makes the tokenizer from a folder with vocab.txt, or from that file."""
    from acme.echo.tokenizer import EchoTokenizer

    return EchoTokenizer(folder.file("vocab.txt"), lowercase=lowercase)


FAMILY = Family(
    "acme-echo",
    MODELS,
    _NAMES,
    _CONFIG,
    echo,
    _tokenizer,
    Writer("AcmeEcho", tokenizer="EchoTokenizer", tokenizer_class="EchoTokenizer"),
    parts=("echo.pooler.*", "classifier.*", "order.*"),
    tokenizer_classes=("EchoTokenizer",),
)
