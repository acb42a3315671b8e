"""ModernBERT: Warner et al. 2024, "Smarter, Better, Faster, Longer".

An encoder with Llama's parts: the norm before each sub-layer, rotary positions and gated
feed-forward networks, all without biases. Every third layer attends to the whole text, the others
to 64 tokens on each side. There are no segments and no pooler; `with_head` adds the layers that
Hugging Face puts between the encoder and every task's last layer.
"""

import functools
import inspect
from typing import Any, Literal

import keras

from keras_transformers.layers import (
    FeedForward,
    MultiHeadAttention,
    RotaryPositions,
    RowDense,
    TokenEmbedding,
    TokenPooling,
    TransformerBlock,
)
from keras_transformers.layers.dense import Activation, activation_function
from keras_transformers.layers.norms import norm_layer
from keras_transformers.models.entry import Entry, named_factory

__all__ = ["SIZES", "modern_bert", "num_parameters", "with_head"]

_PAPER = "Warner et al. 2024, https://arxiv.org/abs/2412.13663"

SIZES: dict[str, dict[str, Any]] = {
    "modern_bert_base": {
        "num_layers": 22,
        "num_heads": 12,
        "hidden_dim": 768,
        "intermediate_dim": 1152,
    },
    "modern_bert_large": {
        "num_layers": 28,
        "num_heads": 16,
        "hidden_dim": 1024,
        "intermediate_dim": 2624,
    },
    # This package's own: as many parameters as a BERT of its width with 4 layers, for small
    # corpora.
    "modern_bert_tiny": {
        "num_layers": 6,
        "num_heads": 2,
        "hidden_dim": 128,
        "intermediate_dim": 192,
    },
}


def modern_bert(
    *,
    vocabulary_size: int,
    num_layers: int,
    num_heads: int,
    hidden_dim: int,
    intermediate_dim: int,
    max_sequence_length: int | None = 8192,
    global_every: int = 3,
    local_window: int = 64,
    global_rotary_base: float = 160_000.0,
    local_rotary_base: float = 10_000.0,
    use_attention_bias: bool = False,
    use_feed_forward_bias: bool = False,
    use_norm_bias: bool = False,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    feed_forward_dropout: float = 0.0,
    activation: Activation = "gelu",
    norm_epsilon: float = 1e-5,
    initializer_range: float = 0.02,
    name: str = "modern_bert",
) -> keras.Model:
    """Builds a ModernBERT encoder.

    Args:
        vocabulary_size: number of tokens, V.
        num_layers: number of encoder layers, L (Hugging Face: num_hidden_layers).
        num_heads: number of attention heads (Hugging Face: num_attention_heads).
        hidden_dim: width, H (Hugging Face: hidden_size).
        intermediate_dim: inner width of the gated feed-forward networks, I.
        max_sequence_length: the longest text in training, in tokens (Hugging Face:
            max_position_embeddings). Longer texts are accepted.
        global_every: layers 0, n, 2 n and so on attend to all tokens, the others to nearby tokens
            (Hugging Face: global_attn_every_n_layers).
        local_window: how many tokens to each side a local layer sees (Hugging Face:
            local_attention, which counts both sides).
        global_rotary_base: see `RotaryPositions`, in global layers.
        local_rotary_base: the same in local layers.
        use_attention_bias: whether the projections of the attention have biases.
        use_feed_forward_bias: whether the feed-forward networks have biases.
        use_norm_bias: whether the norms have biases.
        dropout: rate on the embeddings and on each sub-layer's output; the paper has none.
        attention_dropout: rate on the attention probabilities.
        feed_forward_dropout: rate inside the feed-forward networks.
        activation: activation of the gate in the feed-forward networks.
        norm_epsilon: added to the variance in every norm.
        initializer_range: standard deviation of the matrices' initial truncated normal.
        name: the model's name.

    Returns:
        A functional model. Inputs: `token_ids` int32 and `padding_mask` bool (batch, length), True
        at real tokens. Output: `sequence_output` (batch, length, H).

    Raises:
        ValueError: `hidden_dim` is not a multiple of `num_heads`, or `global_every` or
            `local_window` is below 1.

    Example:
        >>> model = modern_bert(
        ...     vocabulary_size=50, num_layers=2, num_heads=2, hidden_dim=8, intermediate_dim=12
        ... )
        >>> model.count_params() == 50 * 8 + 8 + 2 * (4 * 8 * 8 + 3 * 8 * 12 + 2 * 8)
        True
    """
    for argument, value in (("global_every", global_every), ("local_window", local_window)):
        if value < 1:
            raise ValueError(f"{argument}={value}: expected a number, at least 1")
    initializer = keras.initializers.TruncatedNormal(stddev=initializer_range)
    norm: Literal["layer", "layer_without_bias"] = (
        "layer" if use_norm_bias else "layer_without_bias"
    )
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    padding_mask = keras.Input((None,), dtype="bool", name="padding_mask")
    hidden = TokenEmbedding(
        vocabulary_size,
        hidden_dim,
        embeddings_initializer=initializer.clone(),
        name="token_embedding",
    )(token_ids)
    hidden = norm_layer(norm, norm_epsilon, name="embeddings_norm")(hidden)
    hidden = keras.layers.Dropout(dropout, name="embeddings_dropout")(hidden)
    for index in range(num_layers):
        is_global = index % global_every == 0
        hidden = TransformerBlock(
            MultiHeadAttention(
                num_heads,
                hidden_dim,
                positions=RotaryPositions(
                    global_rotary_base if is_global else local_rotary_base,
                    max_sequence_length=max_sequence_length,
                ),
                window=None if is_global else local_window,
                attention_dropout=attention_dropout,
                use_bias=use_attention_bias,
                kernel_initializer=initializer,
            ),
            FeedForward(
                intermediate_dim,
                hidden_dim,
                activation=activation,
                gated=True,
                dropout=feed_forward_dropout,
                use_bias=use_feed_forward_bias,
                kernel_initializer=initializer,
            ),
            norm=norm,
            norm_position="pre",
            norm_epsilon=norm_epsilon,
            attention_norm=index > 0,  # the embeddings have a norm
            dropout=dropout,
            name=f"encoder_layer_{index}",
        )(hidden, attention_mask=padding_mask)
    hidden = norm_layer(norm, norm_epsilon, name="final_norm")(hidden)
    return keras.Model(
        inputs={"token_ids": token_ids, "padding_mask": padding_mask},
        outputs={"sequence_output": hidden},
        name=name,
    )


def with_head(
    encoder: keras.Model,
    *,
    pooling: Literal["cls", "mean"] = "cls",
    activation: Activation = "gelu",
    use_bias: bool = False,
) -> keras.Model:
    """Adds a dense layer and a norm, which every task's last layer reads.

    Hugging Face: ModernBertPredictionHead.

    Args:
        encoder: a model from `modern_bert`.
        pooling: the vector of a whole text, before the dense layer: the first token's, or the mean
            of the real tokens (Hugging Face: classifier_pooling).
        activation: activation of the dense layer (Hugging Face: classifier_activation).
        use_bias: whether the dense layer has a bias (Hugging Face: classifier_bias).

    Returns:
        The encoder with the outputs `token_output` (batch, length, H), for tasks on tokens, and
        `pooled_output` (batch, H), for tasks on texts.
    """
    final_norm = encoder.get_layer("final_norm")
    vectors = encoder.output["sequence_output"]
    mask = encoder.input["padding_mask"]
    # A row that is all padding has no mean; the mean of its padding has a gradient that is not NaN.
    is_empty = keras.ops.logical_not(keras.ops.any(mask, axis=1, keepdims=True))
    mask = keras.ops.logical_or(mask, is_empty) if pooling == "mean" else mask
    pooled = TokenPooling(pooling, name="head_pooling")(vectors, padding_mask=mask)
    dense = RowDense(
        vectors.shape[-1],
        activation=activation_function(activation),
        use_bias=use_bias,
        kernel_initializer=keras.initializers.TruncatedNormal(stddev=0.02),
        name="head_dense",
    )
    norm = norm_layer(
        "layer" if final_norm.center else "layer_without_bias",
        final_norm.epsilon,
        name="head_norm",
    )
    outputs = {"token_output": norm(dense(vectors)), "pooled_output": norm(dense(pooled))}
    return keras.Model(encoder.input, {**encoder.output, **outputs}, name=encoder.name)


def num_parameters(
    *,
    vocabulary_size: int = 50368,
    num_layers: int,
    hidden_dim: int,
    intermediate_dim: int,
    use_attention_bias: bool = False,
    use_feed_forward_bias: bool = False,
    use_norm_bias: bool = False,
) -> int:
    """Computes the parameter count of `modern_bert` with these arguments, without building it."""
    h, i = hidden_dim, intermediate_dim
    layer = 4 * h * h + 3 * h * i
    layer += 4 * h * use_attention_bias + (2 * i + h) * use_feed_forward_bias
    num_norms = 2 * num_layers + 1  # two per layer, minus one; the embeddings' and the last
    norms = num_norms * h * (1 + use_norm_bias)
    return vocabulary_size * h + num_layers * layer + norms


# Exact counts for V = 50,368.
_NUM_PARAMETERS = {
    "modern_bert_base": 149_014_272,
    "modern_bert_large": 394_781_696,
    "modern_bert_tiny": 7_284_352,
}
_PAPER_FIGURES = {"modern_bert_base": "149M", "modern_bert_large": "395M"}
_COUNTED = inspect.signature(num_parameters).parameters

MODELS = {
    name: Entry(
        name=name,
        factory=named_factory(
            modern_bert,
            name,
            {**size, "vocabulary_size": 50368},
            summary=f"ModernBERT with {size['num_layers']} layers, {size['num_heads']} heads and "
            f"width {size['hidden_dim']}, with random weights.",
        ),
        num_parameters=_NUM_PARAMETERS[name],
        paper=_PAPER,
        paper_figure=_PAPER_FIGURES.get(name, ""),
        symbols={"V": 50368, "H": size["hidden_dim"], "I": size["intermediate_dim"]},
        count=functools.partial(
            num_parameters, **{key: value for key, value in size.items() if key in _COUNTED}
        ),
    )
    for name, size in SIZES.items()
}
