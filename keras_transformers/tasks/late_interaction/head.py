"""Late interaction: one vector per token."""

from collections.abc import Sequence
from dataclasses import dataclass

import keras

from keras_transformers.dependencies.private_api import calls
from keras_transformers.layers import ChoicesToRows, MaxSim
from keras_transformers.models import encoder_parts
from keras_transformers.models.unattended import without_unattended

__all__ = ["in_batch_scorer", "token_embedder"]

WIDTH = 128  # ColBERT's
VECTORS = "token_vectors"


def token_embedder(
    encoder: keras.Model,
    *,
    width: int | None = None,
    projections: Sequence[keras.layers.Dense] | None = None,
    normalize: bool = True,
    name: str | None = None,
) -> keras.Model:
    """Maps each token to one vector; after training, those of answers are near the questions'.

    Khattab & Zaharia 2020, "ColBERT", arXiv:2004.12832, section 3.2.

    Args:
        encoder: a model with the input `padding_mask` and the output `sequence_output`.
        width: the width of a new projection without bias, 128 by default.
        projections: dense layers to use instead, in their order; () for none.
        normalize: whether to scale vectors to length 1, so that a dot product is a cosine.
        name: the model's name; "<encoder>_token_embedder" by default.

    Returns:
        A functional model with the encoder's inputs and the output `token_vectors` (batch, length,
        width) in float32.

    Raises:
        ValueError: the encoder lacks that input or output, `width` is below 1, or there are both
            `width` and `projections`.

    Example:
        >>> import keras_transformers as kt
        >>> token_embedder(kt.bert_tiny(vocabulary_size=11), width=32).output["token_vectors"].shape
        (None, None, 32)
    """
    vectors = encoder_parts.named_output(encoder, "sequence_output")
    encoder_parts.padding_mask(encoder)
    if projections is None:
        width = WIDTH if width is None else width
        if width < 1:
            raise ValueError(f"width={width}: must be 1 or more")
        projections = [
            keras.layers.Dense(width, use_bias=False, dtype="float32", name="token_projection")
        ]
    elif width is not None:
        raise ValueError(f"width={width}: the last of projections has it: leave it out")
    for layer in projections:
        takes = layer.kernel.shape[0] if layer.built else vectors.shape[-1]
        if takes != vectors.shape[-1]:
            raise ValueError(
                f"projection {layer.name!r} takes {takes} dimensions, but gets "
                f"{vectors.shape[-1]} in model {encoder.name!r}: use the projection that belongs "
                "to it"
            )
        vectors = layer(vectors)
    last = keras.layers.UnitNormalization if normalize else keras.layers.Identity
    return keras.Model(
        inputs=encoder.input,
        outputs={VECTORS: last(dtype="float32", name=VECTORS)(vectors)},
        name=name or f"{encoder.name}_token_embedder",
    )


def in_batch_scorer(model: keras.Model) -> keras.Model:
    """Returns a model with the same layers that scores a batch's documents, for training.

    An example is a query and a group of documents, the first of which answers it. Every query of a
    batch is compared with the documents of all.

    Args:
        model: a model from `token_embedder`.

    Returns:
        A functional model. Its inputs are those of `model` for the documents (batch, group,
        length) and, with names that start with "query_", for the queries (batch, length); and
        `scored_mask` bool (batch, group, length), True at the documents' tokens that count. Its
        output is `scores` (batch, batch * group).

    Example:
        >>> import keras_transformers as kt
        >>> model = in_batch_scorer(token_embedder(kt.bert_tiny(vocabulary_size=11)))
        >>> len(model.input), model.output["scores"].shape
        (7, (None, None))
    """
    queries = {
        name: keras.Input((None,), dtype=tensor.dtype, name=f"query_{name}")
        for name, tensor in model.input.items()
    }
    documents = {
        name: keras.Input((None, None), dtype=tensor.dtype, name=name)
        for name, tensor in model.input.items()
    }
    scored = keras.Input((None, None), dtype="bool", name="scored_mask")
    rows = {name: ChoicesToRows(name=f"{name}_rows")(tensor) for name, tensor in documents.items()}
    scores = MaxSim(dtype="float32", name="scores")(
        model(queries)[VECTORS],
        model(rows)[VECTORS],
        queries["padding_mask"],
        ChoicesToRows(name="scored_mask_rows")(scored),
    )
    inputs = {f"query_{name}": tensor for name, tensor in queries.items()}
    return keras.Model(
        {**inputs, **documents, "scored_mask": scored},
        {"scores": scores},
        name=f"{model.name}_scorer",
    )


@dataclass(frozen=True)
class TokenEmbedderParts:
    """The arguments of `token_embedder`, recovered from the model that it built.

    Attributes:
        encoder: the model below, with the output `sequence_output`.
        projections: the dense layers between it and the last one.
        normalize: whether vectors have length 1.
    """

    encoder: keras.Model
    projections: tuple[keras.layers.Dense, ...]
    normalize: bool


def token_embedder_parts(model: keras.Model) -> TokenEmbedderParts:
    """Takes apart a model from `token_embedder`."""
    model = without_unattended(model)
    made_by = {id(outputs[0]): (layer, inputs) for layer, inputs, outputs in calls(model)}
    last, inputs = made_by[id(model.output[VECTORS])]
    projections: list[keras.layers.Dense] = []
    layer, before = made_by[id(inputs[0])]
    while isinstance(layer, keras.layers.Dense):
        projections.insert(0, layer)
        inputs = before
        layer, before = made_by[id(inputs[0])]
    encoder = keras.Model(model.input, {"sequence_output": inputs[0]}, name=model.name)
    return TokenEmbedderParts(
        encoder, tuple(projections), isinstance(last, keras.layers.UnitNormalization)
    )
