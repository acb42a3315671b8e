"""A frozen encoder's layers as features, and a BiLSTM that reads them: BERT without fine-tuning.

Devlin et al. 2018, section 5.3 and table 7. The encoder runs once over the data (`layer_features`);
what is trained reads its outputs (`feature_reader`, with any head of tokens on top); `join` makes
one model of both again, to be exported.
"""

import re
from typing import Any, Literal

import keras

from keras_transformers.layers import ScalarMix
from keras_transformers.layers.recurrent import RecurrentEncoder

# The rows of the paper's table 7.
LayerChoice = Literal[
    "embeddings",
    "second_to_last",
    "last",
    "weighted_sum_last_4",
    "concat_last_4",
    "weighted_sum_all",
]


def layer_features(
    encoder: keras.Model, layers: LayerChoice | int = "concat_last_4"
) -> keras.Model:
    """The outputs of some of an encoder's layers.

    Args:
        encoder: with layers `embeddings_dropout` (or `embeddings_norm`) and `encoder_layer_0`, 1,
            ... as `models.bert.bert` has.
        layers: one of table 7's rows, "weighted_sum_all" being all layers but the embeddings; or
            the number of one layer, 0 the embeddings, 1 the first layer.

    Returns:
        A functional model with the encoder's inputs and the output `features`, (batch, length,
        chosen layers, hidden).

    Raises:
        ValueError: a choice that is unknown, or a layer that the encoder does not have.
    """
    outputs = _layer_outputs(encoder)
    last = len(outputs) - 1
    choices: dict[str, list[int]] = {
        "embeddings": [0],
        "second_to_last": [last - 1],
        "last": [last],
        "weighted_sum_last_4": [last - 3, last - 2, last - 1, last],
        "concat_last_4": [last - 3, last - 2, last - 1, last],
        "weighted_sum_all": list(range(1, last + 1)),
    }
    if isinstance(layers, str) and layers not in choices:
        raise ValueError(f"layers={layers!r} is unknown: take {', '.join(choices)}, or a number")
    chosen = choices[layers] if isinstance(layers, str) else [layers]
    if min(chosen) < 0 or max(chosen) > last:
        raise ValueError(
            f"layers={layers!r}: model {encoder.name!r} has the embeddings, 0, and layers 1 to "
            f"{last}"
        )
    stacked = keras.ops.stack([outputs[index] for index in chosen], axis=2)
    return keras.Model(encoder.input, {"features": stacked}, name=f"{encoder.name}_features")


def feature_reader(
    num_layers: int,
    hidden_dim: int,
    *,
    combine: Literal["concat", "weighted_sum"] = "concat",
    units: int = 768,
    num_recurrent_layers: int = 2,
    dropout: float = 0.1,
    name: str = "feature_reader",
) -> keras.Model:
    """A BiLSTM over features: an encoder for the heads of tokens, `heads.tagger` for one.

    Args:
        num_layers: how many layers the features are of.
        hidden_dim: their width.
        combine: the layers' vectors side by side, or their sum with trained weights
            (`layers.ScalarMix`).
        units: of each direction. The paper's "two-layer 768-dimensional BiLSTM".
        num_recurrent_layers: how many BiLSTMs stand on each other.
        dropout: rate on the features and between the BiLSTMs.
        name: of the model.

    Returns:
        A functional model. Inputs: `features` (batch, length, num_layers, hidden_dim) and
        `padding_mask` bool (batch, length). Output: `sequence_output` (batch, length, 2 units).

    Raises:
        ValueError: an unknown way to combine.
    """
    features = keras.Input((None, num_layers, hidden_dim), name="features")
    padding_mask = keras.Input((None,), dtype="bool", name="padding_mask")
    if combine == "weighted_sum":
        vectors = ScalarMix(name="scalar_mix")(features)
    elif combine == "concat":
        vectors = keras.layers.Reshape((-1, num_layers * hidden_dim), name="concat")(features)
    else:
        raise ValueError(f"combine={combine!r}: take 'concat' or 'weighted_sum'")
    vectors = keras.layers.Dropout(dropout, name="features_dropout")(vectors)
    read = RecurrentEncoder(
        "lstm",
        units,
        num_layers=num_recurrent_layers,
        bidirectional=True,
        dropout=dropout,
        name="bilstm",
    )(vectors, padding_mask=padding_mask)
    return keras.Model(
        {"features": features, "padding_mask": padding_mask},
        {"sequence_output": read["memory"]},
        name=name,
    )


def join(features: keras.Model, reader: keras.Model, *, name: str = "feature_based") -> keras.Model:
    """One model, from the encoder's inputs to the outputs of what reads its features.

    Args:
        features: of `layer_features`.
        reader: of `feature_reader`, with a head on top; its layers and weights are shared.
        name: of the model.
    """
    inputs = {
        "features": features.output["features"],
        "padding_mask": features.input["padding_mask"],
    }
    return keras.Model(features.input, reader.call(inputs), name=name)


def _layer_outputs(encoder: keras.Model) -> list[Any]:
    """The output of the embeddings, and of each layer, (batch, length, hidden)."""
    by_name = {layer.name: layer for layer in encoder.layers}
    numbers = [re.fullmatch(r"encoder_layer_(\d+)", name) for name in by_name]
    last = max((int(found[1]) for found in numbers if found), default=-1)
    first = "embeddings_dropout" if "embeddings_dropout" in by_name else "embeddings_norm"
    names = [first, *(f"encoder_layer_{index}" for index in range(last + 1))]
    missing = [name for name in names if name not in by_name]
    if last < 0 or missing:
        raise ValueError(
            f"model {encoder.name!r} has no layers {', '.join(missing or ['encoder_layer_0'])}: "
            "take an encoder such as keras_transformers.bert_base()"
        )
    return [by_name[name].output for name in names]
