"""Turns decoders and encoder-decoders into encoders of texts, for embeddings and heads."""

from collections.abc import Callable
from typing import Any

import keras

from keras_transformers.dependencies.private_api import run_through_graph
from keras_transformers.layers import EndTokenPooler, PaddingMask, ShiftRight, TransformerBlock
from keras_transformers.models import encoder_parts
from keras_transformers.models.anatomy import anatomy

__all__ = ["as_encoder", "as_end_pooled_encoder"]


def as_encoder(model: keras.Model) -> keras.Model:
    """Returns a decoder without its projection, with a mask of its padding, sharing its layers.

    The vector of a position has seen the real tokens up to it, so the last real token's has seen
    the whole text. With rotary positions, padding on the left changes as little as on the right.

    Args:
        model: a causal language model without cross-attention, such as one from `models.llama`.

    Returns:
        A functional model with the inputs `token_ids` int32 and `padding_mask` bool
        (batch, length), True at real tokens, and the output `sequence_output`
        (batch, length, hidden), the vectors that the projection reads.

    Raises:
        ValueError: the model does not predict tokens.

    Example:
        >>> from keras_transformers.families.llama.model import llama
        >>> encoder = as_encoder(llama(vocabulary_size=9, num_layers=1, num_heads=2, hidden_dim=8,
        ...                            intermediate_dim=8))
        >>> sorted(encoder.input), encoder.output["sequence_output"].shape
        (['padding_mask', 'token_ids'], (None, None, 8))
    """
    parts = anatomy(model, "blocks", "projection")
    headless = keras.Model(model.input, {"sequence_output": parts.projected})
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in model.input}
    mask = keras.Input((None,), dtype="bool", name="padding_mask")

    def with_mask(layer: Any) -> Callable[..., Any]:
        if isinstance(layer, TransformerBlock):
            return lambda hidden, **others: layer(hidden, **{**others, "attention_mask": mask})
        return layer

    outputs = run_through_graph(headless, inputs, with_mask)
    return keras.Model({**inputs, "padding_mask": mask}, outputs, name=model.name)


def as_end_pooled_encoder(
    model: keras.Model, *, end_token_id: int, start_token_id: int | None = None
) -> keras.Model:
    """Returns an encoder-decoder that reads one text with both halves, for heads on whole texts.

    The decoder reads the text too, moved one position to the right, and a new dense layer with tanh
    pools its vector at the last end token. Lewis et al. 2019, arXiv:1910.13461, section 3.1;
    Hugging Face: BartForSequenceClassification.

    Args:
        model: an encoder-decoder with one vocabulary, such as one from `models.bart`. Its layers
            are shared; its projection is left out.
        end_token_id: the token that ends every text.
        start_token_id: the token that the decoder reads first; by default the text's last one.

    Returns:
        A functional model with the inputs `token_ids` int32 and `padding_mask` bool
        (batch, length), True at real tokens, which come first. Outputs: `sequence_output`
        (batch, length, hidden), the decoder's vectors, and `pooled_output` (batch, hidden).

    Raises:
        ValueError: the model is not an encoder-decoder.

    Example:
        >>> from keras_transformers.families.bart.model import bart
        >>> model = bart(vocabulary_size=9, num_encoder_layers=1, num_decoder_layers=1, num_heads=2,
        ...              hidden_dim=8, intermediate_dim=8)
        >>> encoder = as_end_pooled_encoder(model, end_token_id=2, start_token_id=2)
        >>> sorted(encoder.input), encoder.output["pooled_output"].shape
        (['padding_mask', 'token_ids'], (None, 8))
    """
    parts = anatomy(model, "blocks", "projection", "encoder")
    headless = keras.Model(model.input, {"sequence_output": parts.projected})
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    real = keras.Input((None,), dtype="bool", name="padding_mask")

    def with_mask(layer: Any) -> Callable[..., Any]:
        if isinstance(layer, PaddingMask):
            return lambda ids: keras.ops.logical_and(layer(ids), real)
        return layer

    targets = ShiftRight(start_token_id, name="shift_right")(token_ids, real)
    sides = {"source_token_ids": token_ids, "target_token_ids": targets}
    outputs = run_through_graph(headless, sides, with_mask)
    hidden = outputs["sequence_output"]
    pooled = EndTokenPooler(
        hidden.shape[-1],
        end_token_id=end_token_id,
        activation="tanh",
        kernel_initializer=encoder_parts.initializer(),
        name="pooler",
    )(hidden, token_ids, real)
    outputs = {"sequence_output": hidden, "pooled_output": pooled}
    return keras.Model({"token_ids": token_ids, "padding_mask": real}, outputs, name=model.name)
