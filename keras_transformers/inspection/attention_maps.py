"""Returns what every layer and head of a pipeline's model attends to, for one text."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import keras
import numpy as np

from keras_transformers.layers import RecurrentDecoder, ScalarMix, TransformerBlock
from keras_transformers.layers.dense import softmax
from keras_transformers.layers.scopes import WATCHERS, Attended

__all__ = ["AttentionMap", "attention", "layer_weights"]

Kind = Literal["encoder", "decoder", "cross", "layers"]


@dataclass(frozen=True)
class AttentionMap:
    """Holds one kind of attention for all layers and heads.

    Attributes:
        probabilities: float32 (layers, heads, queries, keys); each row adds up to 1.
        queries: a name for each query's position, such as its token.
        keys: a name for each key's position.
    """

    probabilities: np.ndarray
    queries: list[str]
    keys: list[str]

    def rollout(self) -> np.ndarray:
        """Follows self-attention through all layers, with the residual connections.

        Abnar & Zuidema 2020, "Quantifying Attention Flow in Transformers": the product over the
        layers of (mean over the heads + identity) / 2.

        Returns:
            How much of each position's vector comes from each input token, (queries, keys); each
            row adds up to 1.

        Raises:
            ValueError: queries and keys are not the same positions.
        """
        if self.queries != self.keys:
            raise ValueError("rollout is for self-attention: queries and keys differ here")
        identity = np.eye(len(self.keys))
        flow = identity
        for layer in self.probabilities.mean(axis=1):
            flow = (layer + identity) / 2 @ flow
        return flow


def attention(pipeline: Any, *texts: str | bytes) -> dict[Kind, AttentionMap]:
    """Returns what each position attends to, in every layer and head of a pipeline's model.

    Args:
        pipeline: any pipeline whose model has attention.
        *texts: one row of its inputs: a text, a text and its second text, or an encoded image. For
            translation, a text and a translation, by default the model's own.

    Returns:
        Kind -> map: `encoder` and `decoder` for self-attention, and `cross` for a decoder's
        attention to the source. A recurrent model's alignment is a `cross` of one layer and one
        head. `decoder` has the decoder's inputs as positions; the queries of `cross` are the tokens
        that it predicts there. `layers`: see `layer_weights`, for a model that mixes layers.

    Raises:
        ValueError: the model has no attention, or the number of texts is wrong.

    Example:
        kt.inspection.attention(kt.load("minilm"), "the river bank")["encoder"].probabilities
    """
    mixed = layer_weights(pipeline.model)
    others: dict[Kind, AttentionMap] = {} if mixed is None else {"layers": mixed}
    if others and not any(True for _ in attention_layers(pipeline.model)):
        return others
    seen = watched(pipeline, *texts, keep=lambda attended: np.asarray(attended.probabilities[0]))
    maps = {
        kind: AttentionMap(np.stack(layers), queries, keys)
        for kind, (layers, queries, keys) in seen.items()
    }
    return maps | others


class Watched(NamedTuple):
    """What was kept of one kind of attention, layer by layer, and its positions' names."""

    layers: list[Any]
    queries: list[str]
    keys: list[str]


def watched(
    pipeline: Any, *texts: str | bytes, keep: Callable[[Attended], Any]
) -> dict[Kind, Watched]:
    """Runs a pipeline's model on one row of texts and watches its attention; see `attention`.

    Args:
        pipeline: see `attention`.
        *texts: see `attention`.
        keep: called with what each layer's attention computes; returns what to keep of it.

    Raises:
        ValueError: the model has no attention, or the number of texts is wrong.
    """
    seen: dict[Kind, list[Any]] = {"encoder": [], "decoder": [], "cross": []}

    def watcher(kind: Kind) -> Callable[[Attended], None]:
        return lambda attended: seen[kind].append(keep(attended))

    with WATCHERS.use({layer: watcher(kind) for layer, kind in attention_layers(pipeline.model)}):
        names = pipeline.read(*texts)
    sides: dict[Kind, tuple[str, str]] = {
        "encoder": ("source", "source"),
        "decoder": ("target", "target"),
        "cross": ("predicted", "source"),
    }
    return {
        kind: Watched(seen[kind], *(names[side] for side in sides[kind]))
        for kind in sides
        if seen[kind]
    }


def layer_weights(model: keras.Model) -> AttentionMap | None:
    """Returns how a task mixes the layers of an encoder such as ELMo's; None if it mixes none.

    Peters et al. 2018, equation 1: the softmax of the trained weights of a `layers.ScalarMix`.

    Args:
        model: a model such as `models.elmo.features`, or any model on top of it.

    Returns:
        A map with one layer, one head and one query, the mix; the keys are the encoder's layers,
        lowest first.
    """
    for layer in model.layers:
        if isinstance(layer, ScalarMix):
            shares = softmax(keras.ops.convert_to_tensor(layer.weights_before_softmax))
            names = [f"layer {number}" for number in range(len(shares))]
            return AttentionMap(
                keras.ops.convert_to_numpy(shares)[None, None, None], ["mix"], names
            )
    return None


def attention_layers(model: keras.Model) -> Iterator[tuple[keras.layers.Layer, Kind]]:
    """Yields the layers of a model that have attention, each with its kind."""
    for layer in model.layers:
        if isinstance(layer, TransformerBlock):
            is_causal = layer.self_attention.use_causal_mask
            yield layer.self_attention, "decoder" if is_causal else "encoder"
            if layer.cross_attention is not None:
                yield layer.cross_attention, "cross"
        elif isinstance(layer, RecurrentDecoder) and layer.attention:
            yield layer, "cross"
