"""Models for packed rows: several short texts per row, instead of padding."""

from collections.abc import Callable
from typing import Any

import keras

from keras_transformers.dependencies.private_api import run_through_graph
from keras_transformers.layers import (
    DocumentMask,
    DocumentPositions,
    FirstTokenPooler,
    IndexedPositionEmbedding,
    TransformerBlock,
)
from keras_transformers.models.anatomy import POSITIONS

__all__ = ["packed"]

_INPUTS = {"token_ids", "segment_ids", "padding_mask", "mask_positions"}
_PACKED_INPUTS = ("token_ids", "segment_ids", "document_ids", "mask_positions", "start_positions")


def packed(model: keras.Model, *, name: str | None = None) -> keras.Model:
    """Returns a pretraining model for rows that hold several examples.

    The examples of a row cannot see each other: attention is block-diagonal, positions count from
    each example's start, and each has its own [CLS] to pool. The outputs therefore equal those of
    `model` for the separate examples. Krell et al. 2021, https://arxiv.org/abs/2107.02027.

    Args:
        model: BERT with both heads, from `pretrainer`.
        name: the new model's name; "packed_<model>" by default.

    Returns:
        A functional model of the same layers, so training one trains both. Inputs: `token_ids`,
        `segment_ids` and `document_ids` int32 (batch, length), with the number of the example from
        1, and 0 at padding; `mask_positions` int32 (batch, masked) and `start_positions` int32
        (batch, examples), where each example starts. Outputs: `mask_logits` (batch, masked,
        vocabulary) and `next_sentence_logits` (batch, examples, 2), both float32.

    Raises:
        ValueError: the model is not such a BERT.
    """
    names = set(model.input) if isinstance(model.input, dict) else set()
    if names != _INPUTS or not any(isinstance(x, IndexedPositionEmbedding) for x in model.layers):
        raise ValueError(
            f"model {model.name!r}: only an encoder with segments and both pretraining heads reads "
            "packed rows; pass one from keras_transformers.heads.pretrainer"
        )
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in _PACKED_INPUTS}
    mask = DocumentMask(name="document_mask")(inputs["document_ids"])
    positions = DocumentPositions(name="document_positions")(mask)

    def on_packed_rows(layer: Any) -> Callable[..., Any]:
        if isinstance(layer, IndexedPositionEmbedding):
            return lambda hidden: layer(hidden, positions=positions)
        if isinstance(layer, TransformerBlock):
            return lambda hidden, attention_mask: layer(hidden, attention_mask=mask)
        if isinstance(layer, FirstTokenPooler):
            return lambda hidden: layer(hidden, inputs["start_positions"])
        return layer

    # No layer is called on this mask, because the encoder layers get another.
    outputs = run_through_graph(
        model,
        {**{name: inputs[name] for name in _INPUTS & inputs.keys()}, "padding_mask": mask},
        on_packed_rows,
    )
    return keras.Model(inputs=inputs, outputs=outputs, name=name or f"packed_{model.name}")


def with_documents(model: keras.Model) -> keras.Model:
    """Returns a decoder for rows that hold several texts, which do not see each other.

    Its outputs equal those of `model` for the separate texts: each position sees only its own text,
    and positions count from the start of each.

    Args:
        model: a `CausalLM`, such as one from `models.gpt` or `models.llama`.

    Returns:
        A functional model of the same layers, so training one trains both, that also takes
        `document_ids` int32 (batch, length), the same number throughout a text; or `model` itself,
        if it already does (`separate_documents`).
    """
    if "document_ids" in model.input:
        return model
    inputs = {
        name: keras.Input((None,), dtype="int32", name=name)
        for name in (*model.input, "document_ids")
    }
    mask = DocumentMask(name="document_mask")(inputs["document_ids"])
    positions = DocumentPositions(name="document_positions")(mask)

    def on_packed_rows(layer: Any) -> Callable[..., Any]:
        if isinstance(layer, POSITIONS):
            return lambda hidden: layer(hidden, positions=positions)
        if isinstance(layer, TransformerBlock):
            return lambda hidden, **other: layer(
                hidden, **other, attention_mask=mask, positions=positions
            )
        return layer

    read = {name: inputs[name] for name in model.input}
    outputs = run_through_graph(model, read, on_packed_rows)
    return keras.Model(inputs=inputs, outputs=outputs, name=model.name)
