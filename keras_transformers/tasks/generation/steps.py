"""Makes the signatures with which a server writes texts step by step; see `step_names`."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from keras_transformers.decoding.rows import ROW_OPTIONS
from keras_transformers.decoding.step import Cache
from keras_transformers.tasks.generation.decoding import Decoder
from keras_transformers.tasks.generation.step_names import CACHE, READ, STEP, TEXT
from keras_transformers.tasks.pipeline import Signature

__all__: list[str] = []

Specs = Mapping[str, tf.TensorSpec]
Graph = Callable[..., dict[str, tf.Tensor]]  # of tensors by name

_COUNTS = tf.TensorSpec([None], tf.int32)
_NUMBERS = tf.TensorSpec([None], tf.float32)
_TOKENS = tf.TensorSpec([None, None], tf.int32)
_BEGUN = {
    "token_ids": _TOKENS,
    "num_tokens": _COUNTS,
    "max_length": _COUNTS,
    "uniform": tf.TensorSpec([None, None], tf.float32),
}
# The options that a step takes; the others have become `max_length` and `uniform`.
_OPTIONS = ("temperature", "top_k", "top_p", "repetition_penalty")


def step_signatures(
    decoder: Decoder, begins: Mapping[str, tuple[Graph, Specs]]
) -> dict[str, Signature]:
    """Returns the signatures by name; none if the model cannot read a prompt in parts.

    Args:
        decoder: the pipeline's.
        begins: name -> (a function that makes the rows of `Prompts.rows`, its inputs).
    """
    cache = decoder.empty_cache(1)
    if cache is None:
        return {}
    leaves = tf.nest.flatten(cache)
    width = len(str(len(leaves) - 1))  # so that the names sort like the leaves
    names = [f"{CACHE}{number:0{width}}" for number in range(len(leaves))]
    specs = {
        name: tf.TensorSpec([None, leaf.shape[1], None, leaf.shape[3]], leaf.dtype)
        for name, leaf in zip(names, leaves, strict=True)
    }

    def packed(tensors: dict[str, tf.Tensor]) -> Cache:
        return tf.nest.pack_sequence_as(cache, [tensors.pop(name) for name in names])

    def flat(cache: Cache) -> dict[str, tf.Tensor]:
        return dict(zip(names, tf.nest.flatten(cache), strict=True))

    def read(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return flat(decoder.read(cache=packed(inputs), **inputs))

    def step(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs, longer = decoder.step(cache=packed(inputs), **inputs)
        return outputs | flat(longer)

    drawn = {"had": _TOKENS, "uniform": _NUMBERS}
    drawn |= {name: tf.TensorSpec([None], ROW_OPTIONS[name]) for name in _OPTIONS}
    stepped = {
        "token_ids": _COUNTS,
        "log_probability": _NUMBERS,
        "is_end": tf.TensorSpec([None], tf.bool),
    }
    texts = {"token_ids": _TOKENS, "num_tokens": _COUNTS}
    texts["stop"] = tf.TensorSpec([None, None], tf.string)
    written = {"text": tf.TensorSpec([None], tf.string), "is_stopped": stepped["is_end"]}
    written |= dict.fromkeys(("token_bytes", "tokens"), texts["stop"])
    signatures = {
        name: _signature(lambda rows=rows, **inputs: decoder.begin(**rows(**inputs)), specs, _BEGUN)
        for name, (rows, specs) in begins.items()
    }
    return signatures | {
        READ: _signature(read, {"token_ids": _TOKENS, "num_empty": _COUNTS, **specs}, specs),
        STEP: _signature(
            step, {"token_ids": _COUNTS, "num_empty": _COUNTS, **drawn, **specs}, stepped | specs
        ),
        TEXT: _signature(decoder.texts, texts, written),
    }


def _signature(function: Any, inputs: Specs, outputs: Specs) -> Signature:
    return Signature(function, inputs, outputs, examples=[])
