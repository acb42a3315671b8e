"""ELMo: Peters et al. 2018, "Deep contextualized word representations", as in bilm-tf.

A bidirectional language model that reads words by their characters: convolutions and highway layers
over the characters, then two stacks of LSTMs with projections, one forward and one backward. `elmo`
builds the encoder, `language_model` trains it, and `features` turns it into word vectors for the
heads of `keras_transformers.heads`.

Every call starts from zero states. bilm-tf keeps its states from batch to batch, so a sentence's
vectors depend slightly on the batches before it. The weights are the same.
"""

import functools
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_transformers.layers import CharacterMask, MeanOfWords, ScalarMix, WithoutMarkers
from keras_transformers.layers.char_cnn import CharacterCNN, CnnActivation, Highway
from keras_transformers.layers.dense import RowDense
from keras_transformers.layers.recurrent.cells import Recurrent
from keras_transformers.models.entry import Entry, named_factory

__all__ = ["SIZES", "elmo", "features", "language_model", "num_parameters", "split"]

_PAPER = "Peters et al. 2018, https://arxiv.org/abs/1802.05365"

# (width in characters, number of filters); the same in all sizes.
FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
SIZES: dict[str, dict[str, Any]] = {
    "elmo_original": {"lstm_dim": 4096, "projection_dim": 512, "num_highways": 2},
    "elmo_medium": {"lstm_dim": 2048, "projection_dim": 256, "num_highways": 1},
    "elmo_small": {"lstm_dim": 1024, "projection_dim": 128, "num_highways": 1},
}


def elmo(
    *,
    lstm_dim: int,
    projection_dim: int,
    num_highways: int,
    num_layers: int = 2,
    filters: Sequence[Sequence[int]] = FILTERS,
    activation: CnnActivation = "relu",
    num_characters: int = 262,
    max_characters: int = 50,
    character_dim: int = 16,
    use_skip_connections: bool = True,
    cell_clip: float | None = 3.0,
    projection_clip: float | None = 3.0,
    dropout: float = 0.1,
    name: str = "elmo",
) -> keras.Model:
    """Builds the encoder.

    Args:
        lstm_dim: width of the LSTMs' memory.
        projection_dim: width p of their inputs and outputs; if it equals `lstm_dim` there is no
            projection.
        num_highways: number of highway layers between the convolutions and the LSTMs.
        num_layers: number of LSTMs in each direction.
        filters: (width in characters, number of filters) of each convolution.
        activation: activation of the convolutions, "relu" or "tanh".
        num_characters: number of character ids: 256 bytes, five marks, and 0 for padding.
        max_characters: character ids per word, including two marks.
        character_dim: width of the character embeddings.
        use_skip_connections: whether every LSTM but the first adds its inputs to its outputs.
        cell_clip: bound on the LSTMs' memory; None for no bound.
        projection_clip: bound on the projected outputs; None for no bound.
        dropout: rate on the inputs of each LSTM; use 0 if you do not train the encoder.
        name: the model's name.

    Returns:
        A functional model. Input: `character_ids` int32 (batch, tokens, max_characters) from
        `tokenizers.characters.CharacterTokenizer`, with start and end markers, and 0 for padding.
        Output: `layer_outputs` (batch, tokens, num_layers + 1, 2 p): the vector of the word's
        characters, repeated twice, then the forward and backward outputs of each LSTM layer; 0 at
        padding.

    Raises:
        ValueError: an unknown activation, a filter wider than a word, or a projection that widens.

    Example:
        >>> model = elmo(lstm_dim=8, projection_dim=4, num_highways=1, filters=[(1, 3), (2, 5)])
        >>> model({"character_ids": keras.ops.ones((2, 6, 50), "int32")})["layer_outputs"].shape
        TensorShape([2, 6, 3, 8])
    """
    if projection_dim > lstm_dim:
        raise ValueError(
            f"projection_dim={projection_dim} is above lstm_dim={lstm_dim}: use at most lstm_dim"
        )
    character_ids = keras.Input((None, max_characters), dtype="int32", name="character_ids")
    padding_mask = CharacterMask(name="padding_mask")(character_ids)
    words = CharacterCNN(
        filters,
        num_characters=num_characters,
        embedding_dim=character_dim,
        activation=activation,
        name="character_cnn",
    )(character_ids)
    for index in range(num_highways):
        words = Highway(name=f"highway_{index}")(words)
    if words.shape[-1] != projection_dim:
        words = RowDense(
            projection_dim,
            kernel_initializer=keras.initializers.RandomNormal(stddev=words.shape[-1] ** -0.5),
            name="character_projection",
        )(words)

    def stack(direction: str) -> list[Any]:
        """Returns the outputs of each LSTM of one direction."""
        hidden, outputs = words, []
        for index in range(num_layers):
            entering = keras.layers.Dropout(dropout, name=f"{direction}_dropout_{index}")(hidden)
            leaving, _ = Recurrent(
                "lstm",
                lstm_dim,
                reverse=direction == "backward",
                projection_dim=projection_dim if projection_dim < lstm_dim else None,
                cell_clip=cell_clip,
                projection_clip=projection_clip if projection_dim < lstm_dim else None,
                recurrent_initializer="glorot_uniform",
                name=f"{direction}_lstm_{index}",
            )(entering, padding_mask)
            if index and use_skip_connections:
                leaving = keras.layers.Add(name=f"{direction}_skip_{index}")([leaving, entering])
            hidden = leaving
            outputs.append(hidden)
        return outputs

    layers = [(words, words), *zip(stack("forward"), stack("backward"), strict=True)]
    joined = [
        keras.layers.Concatenate(name=f"layer_{index}")(pair) for index, pair in enumerate(layers)
    ]
    return keras.Model(
        inputs={"character_ids": character_ids},
        outputs={"layer_outputs": ops.stack(joined, axis=2)},
        name=name,
    )


def split(encoder: keras.Model) -> tuple[keras.Model, keras.Model]:
    """Splits an encoder into two models of its layers: one reads each word alone, one in context.

    Args:
        encoder: a model from `elmo`.

    Returns:
        The first maps `character_ids` to `words` (batch, tokens, p). The second maps these and
        the padding mask bool (batch, tokens), in a list, to `layer_outputs`.

    Raises:
        ValueError: the encoder is not an ELMo, or has a head.
    """
    inputs: Any = getattr(encoder, "input", None)
    outputs: Any = getattr(encoder, "output", None)
    named = isinstance(inputs, dict) and isinstance(outputs, dict)
    if not (named and set(inputs) == {"character_ids"} and "layer_outputs" in outputs):
        raise ValueError(
            f"model {encoder.name!r} must take character_ids and return layer_outputs, in dicts: "
            "pass the encoder of keras_transformers.families.elmo.model, without a task's layers"
        )
    words = encoder.get_layer("layer_0").input[0]
    padding_mask = encoder.get_layer("padding_mask").output
    in_context = {"layer_outputs": outputs["layer_outputs"]}
    return (
        keras.Model(encoder.input, {"words": words}),
        keras.Model([words, padding_mask], in_context),
    )


def language_model(
    encoder: keras.Model, softmax: keras.layers.Layer, *, name: str | None = None
) -> keras.Model:
    """Adds the training objective: each direction predicts the next word it reads.

    Args:
        encoder: from `elmo`.
        softmax: a layer such as `training.sampled_softmax.SampledSoftmax`, called with vectors
            (batch, tokens, p) and word ids (batch, tokens); both directions share it.
        name: the model's name; "<encoder>_language_model" by default.

    Returns:
        A functional model. Inputs: `character_ids`, and `token_ids` int32 (batch, tokens), the same
        words as ids of the output vocabulary, markers included. Outputs: cross-entropies in nats,
        each (batch, tokens - 1). Position i of `forward_loss` is for word i + 1 given words 0 to i;
        position i of `backward_loss` is for word i given all words after it. Weight both by
        `padding_mask[:, 1:]`: only positions 0 to n - 2 of a row of n tokens count.
    """
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    top = encoder.output["layer_outputs"][:, :, -1]  # (batch, tokens, 2 p)
    width = top.shape[-1] // 2
    dropout = encoder.get_layer("forward_dropout_0").rate
    losses = {}
    for direction, hidden, targets in (
        ("forward", top[:, :-1, :width], token_ids[:, 1:]),
        ("backward", top[:, 1:, width:], token_ids[:, :-1]),
    ):
        hidden = keras.layers.Dropout(dropout, name=f"{direction}_output_dropout")(hidden)
        losses[f"{direction}_loss"] = softmax(hidden, targets)
    return keras.Model(
        inputs={**encoder.input, "token_ids": token_ids},
        outputs=losses,
        name=name or f"{encoder.name}_language_model",
    )


def features(
    encoder: keras.Model, *, dropout: float = 0.5, freeze: bool = True, name: str | None = None
) -> keras.Model:
    """Builds word vectors for a task head: a trained mix of the encoder's layers.

    Args:
        encoder: from `elmo`; the new model shares its layers.
        dropout: rate on the word vectors.
        freeze: whether to freeze the encoder by setting `trainable` on its layers.
        name: the model's name; "<encoder>_features" by default.

    Returns:
        A functional model with the encoder's input and two outputs: `sequence_output` (batch,
        tokens - 2, 2 p), the words without their markers, and `pooled_output` (batch, 2 p), their
        mean before dropout. Both are 0 at padding and for a text without words.
    """
    if freeze:
        for layer in encoder.layers:
            layer.trainable = False
    mixed = ScalarMix(name="scalar_mix")(encoder.output["layer_outputs"])
    padding_mask = encoder.get_layer("padding_mask").output
    words = WithoutMarkers(name="without_markers")(mixed, padding_mask)
    pooled = MeanOfWords(name="mean_of_words")(words, padding_mask)
    return keras.Model(
        inputs=encoder.input,
        outputs={
            "sequence_output": keras.layers.Dropout(dropout, name="features_dropout")(words),
            "pooled_output": pooled,
        },
        name=name or f"{encoder.name}_features",
    )


def num_parameters(
    *,
    lstm_dim: int,
    projection_dim: int,
    num_highways: int,
    num_layers: int = 2,
    filters: Sequence[Sequence[int]] = FILTERS,
    num_characters: int = 262,
    character_dim: int = 16,
) -> int:
    """Computes the parameter count of `elmo` with these arguments, without building it."""
    d, p = lstm_dim, projection_dim
    n = sum(number for _, number in filters)
    convolutions = sum(width * character_dim * number + number for width, number in filters)
    projection = n * p + p if n != p else 0
    lstm = (p + p) * 4 * d + 4 * d + (d * p if p < d else 0)
    return (
        num_characters * character_dim
        + convolutions
        + num_highways * 2 * (n * n + n)
        + projection
        + num_layers * 2 * lstm
    )


# Exact counts with 262 character ids. bilm-tf trains without the padding id: 16 fewer.
_NUM_PARAMETERS = {
    "elmo_original": 93_600_864,
    "elmo_medium": 28_027_744,
    "elmo_small": 13_593_312,
}

MODELS = {
    name: Entry(
        name=name,
        factory=named_factory(
            elmo,
            name,
            size,
            summary=f"ELMo with LSTMs of {size['lstm_dim']} projected to "
            f"{size['projection_dim']} and {size['num_highways']} highways, with random weights.",
        ),
        num_parameters=_NUM_PARAMETERS[name],
        paper=_PAPER,
        symbols={"D": size["lstm_dim"], "H": size["projection_dim"], "F": 2048},
        count=functools.partial(num_parameters, **size),
    )
    for name, size in SIZES.items()
}
