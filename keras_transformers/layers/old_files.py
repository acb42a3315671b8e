"""Loads files from when layers made their parts themselves.

Models then consisted of `EncoderLayer` and `DecoderLayer`, and a `RecurrentDecoder` made its own
cells. A .keras file names the classes of its layers and their modules, and Keras names the groups
in a file of weights after these classes. The two classes therefore remain for loading, as blocks;
models are built from `TransformerBlock`. `load_weights` reads files of weights of either kind.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import keras

from keras_transformers.layers.attention import MultiHeadAttention
from keras_transformers.layers.block import TransformerBlock
from keras_transformers.layers.dense import PACKAGE
from keras_transformers.layers.feed_forward import FeedForward
from keras_transformers.layers.recurrent.attention import RnnAttention
from keras_transformers.layers.recurrent.cells import make_cell
from keras_transformers.layers.recurrent.choices import Readout

_OLD = ("encoder_layer", "decoder_layer")  # Keras' names for their groups in files of weights


class _OldBlock(TransformerBlock):
    crosses = False

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> TransformerBlock:
        """Makes a block from the configuration of an old layer, or of a block."""
        if "num_heads" not in config:
            return super().from_config(config)
        return super(TransformerBlock, cls).from_config(_with_parts(config, crosses=cls.crosses))


@keras.saving.register_keras_serializable(PACKAGE)
class EncoderLayer(_OldBlock):
    """A block without cross-attention, from an old file."""


@keras.saving.register_keras_serializable(PACKAGE)
class DecoderLayer(_OldBlock):
    """A block with cross-attention, from an old file."""

    crosses = True


def _with_parts(config: dict[str, Any], *, crosses: bool) -> dict[str, Any]:
    """Returns the arguments of a block, from the configuration of an old layer."""
    old = dict(config)
    common = {"kernel_initializer": old.pop("kernel_initializer"), "dtype": old.get("dtype")}
    num_heads, hidden_dim = old.pop("num_heads"), old.pop("hidden_dim")
    attention = {
        "head_dim": old.pop("head_dim"),
        "scale_scores": old.pop("scale_scores"),
        "attention_dropout": old.pop("attention_dropout"),
        "use_bias": old.pop("use_attention_bias"),
        **common,
    }
    feed_forward = {
        "activation": old.pop("activation"),
        "dropout": old.pop("feed_forward_dropout"),
        "gated": old.pop("gated_feed_forward"),
        "use_bias": old.pop("use_feed_forward_bias"),
        **common,
    }
    intermediate_dim = old.pop("intermediate_dim")
    is_causal = old.pop("use_causal_mask", crosses)
    return {
        "attention": MultiHeadAttention(
            num_heads, hidden_dim, use_causal_mask=is_causal, **attention
        ),
        "cross_attention": MultiHeadAttention(num_heads, hidden_dim, **attention)
        if crosses
        else None,
        "feed_forward": FeedForward(intermediate_dim, hidden_dim, **feed_forward),
        **old,
    }


def decoder_parts(config: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a `RecurrentDecoder`, from its configuration in an old file."""
    old = dict(config)
    dtype: dict[str, Any] = {"dtype": old.get("dtype")}
    kind, units, feed_tokens = old.pop("cell"), old.pop("units"), old.pop("feed_tokens")
    cells = [
        make_cell(kind, units, has_inputs=feed_tokens or index > 0, **dtype)
        for index in range(old.pop("num_layers"))
    ]
    options: dict[str, Any] = {
        name: old.pop(name) for name in ("attention_dim", "max_sequence_length")
    }
    attention = old.pop("attention")
    dim, activation = old.pop("readout_dim"), old.pop("readout_activation")
    return {
        "cells": cells,
        "attention": RnnAttention(attention, **options, **dtype) if attention else None,
        "readout": Readout(dim, activation) if dim else None,
        **old,
    }


def load_weights(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Loads the weights in a file into a model, like `model.load_weights`, even from an old file.

    Args:
        model: a built model.
        path: the file, whose name ends in ".weights.h5".

    Raises:
        OSError: the file cannot be read.
        ValueError: it has another model's weights.
    """
    with h5py.File(path, "r") as file:
        is_old = any(name.startswith(_OLD) for name in file.get("layers", ()))
    if not is_old or any(type(layer) in (EncoderLayer, DecoderLayer) for layer in model.layers):
        model.load_weights(path)
        return
    with TemporaryDirectory() as folder:
        renamed = Path(folder, Path(path).name)
        shutil.copyfile(path, renamed)
        with h5py.File(renamed, "r+") as file:
            for before, after in _new_names(model):
                if f"layers/{before}" in file:
                    file.move(f"layers/{before}", f"layers/{after}")
        model.load_weights(renamed)


def _new_names(model: keras.Model) -> Iterator[tuple[str, str]]:
    """Yields the groups of a model's blocks in old files and in today's."""
    counts = {"encoder_layer": 0, "decoder_layer": 0}
    blocks = [layer for layer in model.layers if isinstance(layer, TransformerBlock)]
    for number, block in enumerate(blocks):
        kind = "encoder_layer" if block.cross_attention is None else "decoder_layer"
        yield _numbered(kind, counts[kind]), _numbered("transformer_block", number)
        counts[kind] += 1


def _numbered(name: str, number: int) -> str:
    return f"{name}_{number}" if number else name
