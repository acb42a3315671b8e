"""Uses a frozen encoder's layers as features for a BiLSTM, without fine-tuning the encoder.

Devlin et al. 2018, section 5.3 and table 7. Run `layer_features` once over the data, train a
`feature_reader` with a token head on its outputs, and `join` the two models for export.
"""

from typing import Literal

import keras

from keras_transformers.layers import ScalarMix
from keras_transformers.layers.recurrent import RecurrentEncoder
from keras_transformers.models.anatomy import anatomy

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
    """Builds a model that outputs some of an encoder's layers.

    Args:
        encoder: a model of Transformer blocks, such as those of `models.encoders`.
        layers: a row of table 7, where "weighted_sum_all" means every layer except the embeddings;
            or the number of one layer: 0 for the embeddings, which the first layer reads, 1 for the
            first layer's vectors.

    Returns:
        A functional model with the encoder's inputs and the output `features` (batch, length,
        chosen layers, hidden).

    Raises:
        ValueError: an unknown choice, or a layer that the encoder lacks.
    """
    outputs = anatomy(encoder, "blocks").hidden
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
        raise ValueError(f"layers={layers!r} is unknown: use {', '.join(choices)} or a number")
    chosen = choices[layers] if isinstance(layers, str) else [layers]
    if min(chosen) < 0 or max(chosen) > last:
        raise ValueError(
            f"layers={layers!r}: model {encoder.name!r} has layer 0, the embeddings, and layers 1 "
            f"to {last}"
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
    """Builds a BiLSTM over features: an encoder for token heads such as `heads.tagger`.

    Args:
        num_layers: number of layers in the features.
        hidden_dim: width of the features.
        combine: "concat" puts the layers' vectors side by side, "weighted_sum" adds them with
            trained weights (`layers.ScalarMix`).
        units: width of each direction. The paper has a "two-layer 768-dimensional BiLSTM".
        num_recurrent_layers: number of BiLSTMs.
        dropout: rate on the features and between the BiLSTMs.
        name: the model's name.

    Returns:
        A functional model. Inputs: `features` (batch, length, num_layers, hidden_dim) and
        `padding_mask` bool (batch, length). Output: `sequence_output` (batch, length, 2 units).

    Raises:
        ValueError: `combine` is unknown.
    """
    features = keras.Input((None, num_layers, hidden_dim), name="features")
    padding_mask = keras.Input((None,), dtype="bool", name="padding_mask")
    if combine == "weighted_sum":
        vectors = ScalarMix(name="scalar_mix")(features)
    elif combine == "concat":
        vectors = keras.layers.Reshape((-1, num_layers * hidden_dim), name="concat")(features)
    else:
        raise ValueError(f"combine={combine!r} is unknown: use 'concat' or 'weighted_sum'")
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
    """Joins an encoder and a reader of its features into one model, which shares their weights.

    Args:
        features: from `layer_features`.
        reader: from `feature_reader`, with a head on top.
        name: the model's name.

    Returns:
        A functional model with the encoder's inputs and the reader's outputs.
    """
    inputs = {
        "features": features.output["features"],
        "padding_mask": features.input["padding_mask"],
    }
    return keras.Model(features.input, reader.call(inputs), name=name)
