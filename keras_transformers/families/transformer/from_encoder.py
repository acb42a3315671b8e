"""A Transformer that starts with a pretrained encoder: Rothe et al. 2020, BERT2Rnd.

"Leveraging Pre-trained Checkpoints for Sequence Generation Tasks".
"""

import keras

from keras_transformers.dependencies.private_api import run_through_graph
from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.families.transformer.model import (
    Positions,
    check_positions,
    decoded,
)
from keras_transformers.layers import PaddingMask
from keras_transformers.layers.dense import Activation
from keras_transformers.layers.embeddings import WeightTying, token_embeddings
from keras_transformers.layers.norms import NormPosition
from keras_transformers.models.anatomy import anatomy, block_shape
from keras_transformers.models.classes.encoder_decoder import Transformer
from keras_transformers.models.encoder_parts import named_output

__all__ = ["transformer_from_encoder"]


def transformer_from_encoder(
    encoder: keras.Model,
    *,
    vocabulary_size: int,
    num_decoder_layers: int | None = None,
    num_heads: int | None = None,
    intermediate_dim: int | None = None,
    max_sequence_length: int = 512,
    weight_tying: WeightTying = "decoder",
    positions: Positions = "sinusoidal",
    norm_position: NormPosition = "post",
    activation: Activation = "gelu",
    use_output_bias: bool = False,
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    feed_forward_dropout: float = 0.0,
    norm_epsilon: float = 1e-6,
    pad_token_id: int = 0,
    name: str | None = None,
) -> Transformer:
    """Adds a new decoder with cross-attention to an encoder, such as a pretrained BERT.

    Rothe et al. 2020, https://arxiv.org/abs/1907.12461, call this BERT2Rnd. Sources have the
    encoder's vocabulary, targets have their own.

    Args:
        encoder: a model of `models.encoders`, or another with the inputs `token_ids`,
            `padding_mask` and possibly `segment_ids`, and the output `sequence_output`. The new
            model shares its layers, so training one trains both.
        vocabulary_size: number of target tokens.
        num_decoder_layers: number of decoder layers; as many as the encoder has by default.
        num_heads: number of attention heads in the decoder; the encoder's by default.
        intermediate_dim: inner width of the decoder's feed-forward networks; the encoder's by
            default.
        max_sequence_length: the longest target; sources may be as long as the encoder's positions.
        weight_tying: "decoder": targets and logits share one matrix; "none": two matrices.
        positions: the targets' positions; see `transformer`, also for the arguments up to
            `norm_epsilon`.
        norm_position: the position of norms in the decoder.
        activation: the activation in the decoder.
        use_output_bias: whether the logits have a bias.
        dropout: rate in the decoder; the encoder keeps its own.
        attention_dropout: rate on the decoder's attention probabilities.
        feed_forward_dropout: rate inside the decoder's feed-forward networks.
        norm_epsilon: added to the variance in the decoder's norms.
        pad_token_id: id of the padding token of sources; no position attends to it.
        name: the model's name; "transformer_from_<encoder>" by default.

    Returns:
        A functional model with the inputs and the output of `transformer`.

    Raises:
        ValueError: the encoder lacks an input, an output or its blocks, or a choice is
            unknown.

    Example:
        >>> from keras_transformers.families.bert.model import bert
        >>> encoder = bert(vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=8)
        >>> model = transformer_from_encoder(encoder, vocabulary_size=50, num_decoder_layers=1)
        >>> logits = model({"source_token_ids": keras.ops.ones((2, 5), "int32"),
        ...                 "target_token_ids": keras.ops.ones((2, 3), "int32")})["logits"]
        >>> logits.shape
        TensorShape([2, 3, 50])
    """
    check_positions(positions)
    hidden_dim = named_output(encoder, "sequence_output").shape[-1]
    blocks = anatomy(encoder, "blocks").blocks
    if weight_tying == "all":
        raise ValueError("weight_tying='all': the encoder has its own vocabulary; use 'decoder'")
    _, embedding = token_embeddings(weight_tying, vocabulary_size, vocabulary_size, hidden_dim)
    like = block_shape(blocks[0])
    source_token_ids = keras.Input((None,), dtype="int32", name="source_token_ids")
    target_token_ids = keras.Input((None,), dtype="int32", name="target_token_ids")
    mask = PaddingMask(pad_token_id, name="source_padding_mask")(source_token_ids)
    logits = decoded(
        target_token_ids,
        _encoded(encoder, source_token_ids, mask),
        mask,
        embedding,
        num_layers=num_decoder_layers or len(blocks),
        layer_arguments={
            "num_heads": num_heads or like["num_heads"],
            "hidden_dim": hidden_dim,
            "intermediate_dim": intermediate_dim or like["intermediate_dim"],
            "dropout": dropout,
            "attention_dropout": attention_dropout,
            "feed_forward_dropout": feed_forward_dropout,
            "activation": activation,
            "norm_position": norm_position,
            "norm_epsilon": norm_epsilon,
            "positions": positions,
        },
        max_sequence_length=max_sequence_length,
        tied_logits=weight_tying != "none",
        use_output_bias=use_output_bias,
    )
    return Transformer(
        inputs={"source_token_ids": source_token_ids, "target_token_ids": target_token_ids},
        outputs={"logits": logits},
        name=name or f"transformer_from_{encoder.name}",
    )


def _encoded(encoder: keras.Model, source_token_ids: Tensor, padding_mask: Tensor) -> Tensor:
    """Returns the encoder's vectors (batch, source, hidden), at the layer "encoder_output"."""
    inputs = {"token_ids": source_token_ids, "padding_mask": padding_mask}
    if "segment_ids" in encoder.input:
        inputs["segment_ids"] = keras.ops.zeros_like(source_token_ids)
    if encoder.input.keys() != inputs.keys():
        raise ValueError(
            f"model {encoder.name!r} takes {', '.join(encoder.input)}, but a source has only "
            f"{', '.join(inputs)}: use an encoder such as keras_transformers.bert_base()"
        )
    # Not one layer for the whole encoder, so its layers stay visible in summaries and for
    # attention.
    outputs = run_through_graph(encoder, inputs, lambda layer: layer)
    return keras.layers.Identity(name="encoder_output")(outputs["sequence_output"])
