"""Removes the head of a task from a model, by its graph."""

from collections.abc import Sequence

import keras

from keras_transformers.dependencies.private_api import calls
from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.layers.choices_and_spans import ChoicesToRows
from keras_transformers.models.anatomy import anatomy
from keras_transformers.models.classes.causal_lm import CausalLM
from keras_transformers.models.unattended import without_unattended

__all__ = ["headless"]


# The layer, input tensors and output tensors of each call.
_Graph = list[tuple[keras.layers.Layer, Sequence[Tensor], Sequence[Tensor]]]


def headless(model: keras.Model) -> keras.Model:
    """Returns a model without the head of its task, sharing its layers.

    Args:
        model: an encoder of texts or images, or a causal language model, with the head of any task
            or without one. Models that decode, or that embed words, have no head.

    Returns:
        An encoder with the outputs `sequence_output` (batch, length, hidden) and, if it has a
        pooler or reads images, `pooled_output` (batch, hidden); or a `CausalLM`.

    Raises:
        ValueError: the model has no Transformer blocks.

    Example:
        >>> import keras_transformers as kt
        >>> tagger = kt.heads.tagger(kt.bert_tiny(vocabulary_size=9), 3)
        >>> sorted(headless(tagger).output), sorted(headless(tagger).input)
        (['sequence_output'], ['padding_mask', 'segment_ids', 'token_ids'])
    """
    if hasattr(model, "start_decoding") or "character_ids" in model.input:
        return model
    model = without_unattended(model)
    parts = anatomy(model, "blocks")
    graph = calls(model)
    if parts.encoder is None and parts.blocks[0].self_attention.use_causal_mask:
        outputs = {"logits": model.output["token_logits"]}
        return CausalLM(_inputs(model, graph, outputs), outputs, name=model.name)
    sequence = parts.hidden[-1]
    normed = _only(graph, parts.final_norm, [sequence])
    outputs = {"sequence_output": sequence if normed is None else normed}
    if parts.pooler is not None:
        outputs["pooled_output"] = _only(graph, parts.pooler)
    elif "images" in model.input:
        outputs["pooled_output"] = outputs["sequence_output"][:, 0]
    return keras.Model(_inputs(model, graph, outputs), outputs, name=model.name)


def _only(graph: _Graph, layer: keras.layers.Layer, inputs: Sequence[Tensor] = ()) -> Tensor:
    """Returns a layer's output, for these inputs if any are given; None without such a call."""
    for operation, arguments, results in graph:
        if operation is layer and all(any(x is y for y in arguments) for x in inputs):
            return results[0]
    return None


def _inputs(model: keras.Model, graph: _Graph, outputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns the inputs that outputs depend on; for choices, with one choice per row."""
    needed = {id(tensor) for tensor in outputs.values()}
    for _, arguments, results in reversed(graph):
        if not needed.isdisjoint(map(id, results)):
            needed.update(map(id, arguments))
    choices = (call[1:] for call in graph if isinstance(call[0], ChoicesToRows))
    rows = {id(arguments[0]): results[0] for arguments, results in choices}
    return {
        name: rows.get(id(tensor), tensor)
        for name, tensor in model.input.items()
        if id(tensor) in needed
    }
