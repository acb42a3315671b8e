"""GPT and GPT-2: Transformers that read from left to right and predict the next token.

GPT: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", with norms
after the sub-layers. GPT-2: Radford et al. 2019, "Language Models are Unsupervised Multitask
Learners", with norms before them and one more at the end. `gpt` builds any other size.
"""

import functools
from typing import Any

import keras

from keras_transformers.layers import (
    DocumentMask,
    DocumentPositions,
    FeedForward,
    IndexedPositionEmbedding,
    MultiHeadAttention,
    TokenEmbedding,
    TransformerBlock,
)
from keras_transformers.layers.dense import Activation
from keras_transformers.layers.norms import NormPosition, check_norm_position
from keras_transformers.models.classes.causal_lm import CausalLM
from keras_transformers.models.entry import Entry, named_factory

__all__ = ["SIZES", "gpt", "num_parameters"]

_GPT_PAPER = "Radford et al. 2018, https://openai.com/research/language-unsupervised"
_GPT2_PAPER = "Radford et al. 2019, https://openai.com/research/better-language-models"

_GPT2: dict[str, Any] = {
    "vocabulary_size": 50257,
    "max_sequence_length": 1024,
    "norm_position": "pre",
}
SIZES: dict[str, dict[str, Any]] = {
    "gpt_base": {
        "vocabulary_size": 40478,
        "max_sequence_length": 512,
        "norm_position": "post",
        "num_layers": 12,
        "num_heads": 12,
        "hidden_dim": 768,
    },
    "gpt2_small": _GPT2 | {"num_layers": 12, "num_heads": 12, "hidden_dim": 768},
    "gpt2_medium": _GPT2 | {"num_layers": 24, "num_heads": 16, "hidden_dim": 1024},
    "gpt2_large": _GPT2 | {"num_layers": 36, "num_heads": 20, "hidden_dim": 1280},
    "gpt2_xl": _GPT2 | {"num_layers": 48, "num_heads": 25, "hidden_dim": 1600},
}


def gpt(
    *,
    vocabulary_size: int,
    num_layers: int,
    num_heads: int,
    hidden_dim: int,
    intermediate_dim: int | None = None,
    max_sequence_length: int = 1024,
    norm_position: NormPosition = "pre",
    separate_documents: bool = False,
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    activation: Activation = "gelu_approximate",
    norm_epsilon: float = 1e-5,
    initializer_range: float = 0.02,
    name: str = "gpt",
) -> CausalLM:
    """Builds a decoder-only Transformer whose token embeddings also project to the logits.

    Args:
        vocabulary_size: number of tokens, V.
        num_layers: number of layers, L (Hugging Face: n_layer).
        num_heads: number of attention heads (Hugging Face: n_head).
        hidden_dim: width, H (Hugging Face: n_embd).
        intermediate_dim: inner width of the feed-forward networks; 4 H by default.
        max_sequence_length: number of learned positions, P (Hugging Face: n_positions).
        norm_position: "pre", with a norm at the end, is GPT-2; "post", without one, is GPT.
        separate_documents: whether the model also takes `document_ids`, so that documents packed
            into one row do not see each other; positions then restart with each document.
        dropout: rate on the embeddings and on each sub-layer's output.
        attention_dropout: rate on the attention probabilities.
        activation: activation of the feed-forward networks; both papers use "gelu_approximate".
        norm_epsilon: added to the variance in every norm.
        initializer_range: standard deviation of the matrices' initial normal distribution. With
            "pre", it is divided by sqrt(2 L) for projections into the residual sums.
        name: the model's name.

    Returns:
        A functional model. Inputs: `token_ids` int32 (batch, length), and with
        `separate_documents` also `document_ids` int32 (batch, length), the same number throughout
        a document. Output: `logits` float32 (batch, length, V), position i for the token after
        input i. Padding at the end needs no mask, because no earlier position sees it.

    Raises:
        ValueError: an unknown choice, or a `hidden_dim` that is not a multiple of `num_heads`.

    Example:
        >>> model = gpt(vocabulary_size=50, num_layers=1, num_heads=2, hidden_dim=8,
        ...             max_sequence_length=16)
        >>> model({"token_ids": keras.ops.ones((2, 5), "int32")})["logits"].shape
        TensorShape([2, 5, 50])
    """
    check_norm_position(norm_position)
    initializer = keras.initializers.RandomNormal(stddev=initializer_range)
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    inputs = {"token_ids": token_ids}
    documents: dict[str, Any] = {}
    positions: dict[str, Any] = {}
    if separate_documents:
        document_ids = keras.Input((None,), dtype="int32", name="document_ids")
        inputs["document_ids"] = document_ids
        mask = DocumentMask(name="document_mask")(document_ids)
        documents = {"attention_mask": mask}
        positions = {"positions": DocumentPositions(name="document_positions")(mask)}
    embedding = TokenEmbedding(
        vocabulary_size,
        hidden_dim,
        embeddings_initializer=initializer.clone(),
        name="token_embedding",
    )
    hidden = IndexedPositionEmbedding(
        max_sequence_length, embeddings_initializer=initializer.clone(), name="position_embedding"
    )(embedding(token_ids), **positions)
    hidden = keras.layers.Dropout(dropout, name="embeddings_dropout")(hidden)
    layers = [
        TransformerBlock(
            MultiHeadAttention(
                num_heads,
                hidden_dim,
                use_causal_mask=True,
                attention_dropout=attention_dropout,
                kernel_initializer=initializer,
            ),
            FeedForward(
                intermediate_dim or 4 * hidden_dim,
                hidden_dim,
                activation=activation,
                kernel_initializer=initializer,
            ),
            norm_position=norm_position,
            norm_epsilon=norm_epsilon,
            dropout=dropout,
            name=f"decoder_layer_{index}",
        )
        for index in range(num_layers)
    ]
    for layer in layers:
        hidden = layer(hidden, **documents)
    if norm_position == "pre":
        hidden = keras.layers.LayerNormalization(epsilon=norm_epsilon, name="final_norm")(hidden)
        for layer in layers:
            for dense in (
                layer.self_attention.output_projection,
                layer.feed_forward.output_projection,
            ):
                dense.kernel.assign(dense.kernel * (2 * num_layers) ** -0.5)
    return CausalLM(inputs=inputs, outputs={"logits": embedding(hidden, reverse=True)}, name=name)


def num_parameters(
    *,
    vocabulary_size: int,
    num_layers: int,
    hidden_dim: int,
    intermediate_dim: int | None = None,
    max_sequence_length: int = 1024,
    norm_position: NormPosition = "pre",
) -> int:
    """Computes the parameter count of `gpt` with these arguments, without building it."""
    h, i = hidden_dim, intermediate_dim or 4 * hidden_dim
    layer = (4 * h * h + 4 * h) + 2 * h + (2 * h * i + i + h) + 2 * h
    final_norm = 2 * h if norm_position == "pre" else 0
    return (vocabulary_size + max_sequence_length) * h + num_layers * layer + final_norm


# Exact counts; embeddings and logits share one matrix.
_NUM_PARAMETERS = {
    "gpt_base": 116_534_784,
    "gpt2_small": 124_439_808,
    "gpt2_medium": 354_823_168,
    "gpt2_large": 774_030_080,
    "gpt2_xl": 1_557_611_200,
}
_PAPER_FIGURES = {
    "gpt2_small": "117M",
    "gpt2_medium": "345M",
    "gpt2_large": "762M",
    "gpt2_xl": "1542M",
}

MODELS = {
    name: Entry(
        name=name,
        factory=named_factory(
            gpt,
            name,
            size,
            summary=f"A causal language model with {size['num_layers']} layers, "
            f"{size['num_heads']} heads and width {size['hidden_dim']}, with random weights.",
        ),
        num_parameters=_NUM_PARAMETERS[name],
        paper=_GPT_PAPER if name == "gpt_base" else _GPT2_PAPER,
        paper_figure=_PAPER_FIGURES.get(name, ""),
        paper_note=(
            "the paper miscounted; its released weights have the exact count"
            if name in _PAPER_FIGURES
            else ""
        ),
        symbols={
            "V": size["vocabulary_size"],
            "P": size["max_sequence_length"],
            "H": size["hidden_dim"],
            "I": 4 * size["hidden_dim"],
        },
        count=functools.partial(
            num_parameters, **{key: size[key] for key in size if key != "num_heads"}
        ),
    )
    for name, size in SIZES.items()
}
