"""Makes a smaller BERT from a larger one: some of its layers, and the tokens that texts need."""

from collections.abc import Sequence

import keras
import numpy as np

from keras_transformers.families.bert.model import bert
from keras_transformers.models.anatomy import anatomy, block_shape

__all__ = ["shrink_bert"]

_WITH_ROWS = ("token_embedding", "position_embedding")  # the layers whose rows are chosen


def shrink_bert(
    encoder: keras.Model,
    *,
    token_ids: Sequence[int],
    max_sequence_length: int,
    layers: Sequence[int] | None = None,
) -> keras.Model:
    """Builds a smaller BERT from parts of a trained one, as a student for distillation.

    DistilBERT starts from every other layer of its teacher (Sanh et al. 2019, arXiv:1910.01108);
    most of a small encoder's weights are rows for tokens that its texts rarely contain.

    Args:
        encoder: a model from `bert`, of any size.
        token_ids: the tokens to keep, in the order of their new ids.
        max_sequence_length: how many positions to keep.
        layers: the layers to keep, counted from 0, in the order of the new model; all by default.

    Returns:
        An encoder like those from `bert`, with the dropout of `encoder`.

    Raises:
        ValueError: a layer or token does not exist or occurs twice, there are fewer positions, or
            the encoder is not a BERT.

    Example:
        >>> large = bert(vocabulary_size=100, num_layers=4, num_heads=2, hidden_dim=8)
        >>> small = shrink_bert(large, layers=[0, 2], token_ids=range(50), max_sequence_length=64)
        >>> small.count_params() == large.count_params() - 50 * 8 - 448 * 8 - 2 * 872
        True
    """
    by_name = {layer.name: layer for layer in encoder.layers}
    if not {"segment_embedding", "embeddings_norm", *_WITH_ROWS} <= set(by_name):
        raise ValueError(f"model {encoder.name!r} is not a BERT: pass one that `bert` builds")
    blocks = anatomy(encoder, "blocks").blocks
    layers = range(len(blocks)) if layers is None else layers
    sizes = {
        "layers": len(blocks),
        "token_ids": by_name["token_embedding"].input_dim,
    }
    for name, indices in (("layers", layers), ("token_ids", token_ids)):
        wrong = [i for i in indices if not 0 <= i < sizes[name]]
        if wrong or len(set(indices)) != len(indices) or not len(indices):
            shown = ", ".join(map(str, indices[:8])) + (", ..." if len(indices) > 8 else "")
            raise ValueError(
                f"{name}=[{shown}]: pass different numbers from 0 to {sizes[name] - 1}"
            )
    positions = by_name["position_embedding"].max_sequence_length
    if not 1 <= max_sequence_length <= positions:
        raise ValueError(f"max_sequence_length={max_sequence_length}: expected 1 to {positions}")
    options = block_shape(blocks[0])
    fields = ("num_heads", "hidden_dim", "intermediate_dim", "dropout", "attention_dropout")
    small = bert(
        vocabulary_size=len(token_ids),
        num_layers=len(layers),
        max_sequence_length=max_sequence_length,
        num_segments=by_name["segment_embedding"].input_dim,
        **{name: options[name] for name in (*fields, "activation", "norm_epsilon")},
        name=encoder.name,
    )
    rows = {
        "token_embedding": np.asarray(token_ids),
        "position_embedding": np.arange(max_sequence_length),
    }
    new = anatomy(small).blocks
    for layer in small.layers:
        source = blocks[layers[new.index(layer)]] if layer in new else by_name.get(layer.name)
        if source is None:  # a pooler, if the encoder has none
            continue
        weights = source.get_weights()
        if layer.name in rows:
            weights = [weights[0][rows[layer.name]]]
        layer.set_weights(weights)
    return small
