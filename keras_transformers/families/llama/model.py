"""Llama and decoders with its structure: Mistral, Qwen, SmolLM, Phi-3, OLMo 2, Gemma 3.

Touvron et al. 2023, "LLaMA: Open and Efficient Foundation Language Models". GPT-2's decoder with
rotary positions, RMS norms, gated feed-forward networks, fewer key heads than query heads, and
without most biases.
"""

import functools
import inspect
from collections.abc import Sequence
from typing import Any, Literal

import keras

from keras_transformers.layers import (
    DocumentMask,
    DocumentPositions,
    FeedForward,
    MultiHeadAttention,
    RotaryPositions,
    RotaryScaling,
    RowDense,
    TokenEmbedding,
    TransformerBlock,
)
from keras_transformers.layers.dense import Activation
from keras_transformers.layers.norms import norm_layer
from keras_transformers.models.classes.causal_lm import CausalLM
from keras_transformers.models.entry import Entry, named_factory

__all__ = ["SIZES", "llama", "num_parameters"]

_LLAMA_3_1 = RotaryScaling(kind="llama3", factor=8.0, original_length=8192)
_LLAMA_3_2 = RotaryScaling(kind="llama3", factor=32.0, original_length=8192)
_SMOL = {"vocabulary_size": 49152, "rotary_base": 100_000.0, "tied_embeddings": True}
_SMOL |= {"max_sequence_length": 8192, "norm_epsilon": 1e-5}
_OLMO_2: dict[str, Any] = {
    "vocabulary_size": 100_352,
    "max_sequence_length": 4096,
    "rotary_base": 500_000.0,
    "norm_position": "output",
    "query_key_norm": True,
    "query_key_norm_over": "width",
}
_GEMMA_3: dict[str, Any] = {
    "vocabulary_size": 262_144,
    "num_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "max_sequence_length": 32768,
    "rotary_base": 1_000_000.0,
    "local_rotary_base": 10_000.0,
    "query_key_norm": True,
    "norm_position": "both",
    "tied_embeddings": True,
    "activation": "gelu_approximate",
}

SIZES: dict[str, dict[str, Any]] = {
    "smollm2_135m": _SMOL
    | {
        "num_layers": 30,
        "num_heads": 9,
        "num_key_value_heads": 3,
        "hidden_dim": 576,
        "intermediate_dim": 1536,
    },
    "smollm2_360m": _SMOL
    | {
        "num_layers": 32,
        "num_heads": 15,
        "num_key_value_heads": 5,
        "hidden_dim": 960,
        "intermediate_dim": 2560,
    },
    "smollm2_1_7b": _SMOL
    | {
        "num_layers": 24,
        "num_heads": 32,
        "num_key_value_heads": 32,
        "hidden_dim": 2048,
        "intermediate_dim": 8192,
        "rotary_base": 130_000.0,
    },
    "smollm3_3b": {
        "vocabulary_size": 128_256,
        "num_layers": 36,
        "num_heads": 16,
        "num_key_value_heads": 4,
        "hidden_dim": 2048,
        "intermediate_dim": 11008,
        "max_sequence_length": 65536,
        "rotary_base": 5_000_000.0,
        "rotary_layers": (True, True, True, False) * 9,
        "tied_embeddings": True,
    },
    "llama_2_7b": {
        "vocabulary_size": 32000,
        "num_layers": 32,
        "num_heads": 32,
        "num_key_value_heads": 32,
        "hidden_dim": 4096,
        "intermediate_dim": 11008,
        "max_sequence_length": 4096,
        "norm_epsilon": 1e-5,
    },
    "llama_3_1_8b": {
        "vocabulary_size": 128_256,
        "num_layers": 32,
        "num_heads": 32,
        "num_key_value_heads": 8,
        "hidden_dim": 4096,
        "intermediate_dim": 14336,
        "max_sequence_length": 131_072,
        "rotary_base": 500_000.0,
        "rotary_scaling": _LLAMA_3_1,
        "norm_epsilon": 1e-5,
    },
    "llama_3_2_1b": {
        "vocabulary_size": 128_256,
        "num_layers": 16,
        "num_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "hidden_dim": 2048,
        "intermediate_dim": 8192,
        "max_sequence_length": 131_072,
        "rotary_base": 500_000.0,
        "rotary_scaling": _LLAMA_3_2,
        "tied_embeddings": True,
        "norm_epsilon": 1e-5,
    },
    "mistral_7b": {
        "vocabulary_size": 32000,
        "num_layers": 32,
        "num_heads": 32,
        "num_key_value_heads": 8,
        "hidden_dim": 4096,
        "intermediate_dim": 14336,
        "max_sequence_length": 32768,
        "windows": (4096,) * 32,
        "norm_epsilon": 1e-5,
    },
    "phi3_mini": {
        "vocabulary_size": 32064,
        "num_layers": 32,
        "num_heads": 32,
        "hidden_dim": 3072,
        "intermediate_dim": 8192,
        "max_sequence_length": 4096,
        "windows": (2047,) * 32,
        "norm_epsilon": 1e-5,
    },
    "olmo2_1b": _OLMO_2
    | {
        "num_layers": 16,
        "num_heads": 16,
        "hidden_dim": 2048,
        "intermediate_dim": 8192,
    },
    "olmo2_7b": _OLMO_2
    | {
        "num_layers": 32,
        "num_heads": 32,
        "hidden_dim": 4096,
        "intermediate_dim": 11008,
    },
    "gemma3_270m": _GEMMA_3
    | {
        "num_layers": 18,
        "hidden_dim": 640,
        "intermediate_dim": 2048,
        "windows": ((512,) * 5 + (None,)) * 3,
        "embedding_scale": 640**0.5,
    },
    "gemma3_1b": _GEMMA_3
    | {
        "num_layers": 26,
        "hidden_dim": 1152,
        "intermediate_dim": 6912,
        "windows": ((512,) * 5 + (None,)) * 4 + (512, 512),
        "embedding_scale": 1152**0.5,
    },
    "qwen2_5_0_5b": {
        "vocabulary_size": 151_936,
        "num_layers": 24,
        "num_heads": 14,
        "num_key_value_heads": 2,
        "hidden_dim": 896,
        "intermediate_dim": 4864,
        "max_sequence_length": 32768,
        "rotary_base": 1_000_000.0,
        "use_attention_bias": True,
        "use_output_bias": False,
        "tied_embeddings": True,
    },
    "qwen3_0_6b": {
        "vocabulary_size": 151_936,
        "num_layers": 28,
        "num_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "hidden_dim": 1024,
        "intermediate_dim": 3072,
        "max_sequence_length": 40960,
        "rotary_base": 1_000_000.0,
        "query_key_norm": True,
        "tied_embeddings": True,
    },
}


def llama(
    *,
    vocabulary_size: int,
    num_layers: int,
    num_heads: int,
    num_key_value_heads: int | None = None,
    hidden_dim: int,
    intermediate_dim: int,
    head_dim: int | None = None,
    max_sequence_length: int | None = None,
    rotary_base: float = 10_000.0,
    rotary_scaling: RotaryScaling | None = None,
    local_rotary_base: float | None = None,
    rotary_layers: Sequence[bool] = (),
    windows: Sequence[int | None] = (),
    use_attention_bias: bool = False,
    use_output_bias: bool | None = None,
    use_feed_forward_bias: bool = False,
    query_key_norm: bool = False,
    query_key_norm_over: Literal["head", "width"] = "head",
    norm_position: Literal["pre", "output", "both"] = "pre",
    scale_dim: float | None = None,
    embedding_scale: float = 1.0,
    tied_embeddings: bool = False,
    separate_documents: bool = False,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    activation: Activation = "silu",
    norm_epsilon: float = 1e-6,
    initializer_range: float = 0.02,
    name: str = "llama",
) -> CausalLM:
    """Builds a decoder with rotary positions.

    Args:
        vocabulary_size: number of tokens, V.
        num_layers: number of layers, L (Hugging Face: num_hidden_layers).
        num_heads: number of query heads (Hugging Face: num_attention_heads).
        num_key_value_heads: number of key and value heads; `num_heads` by default.
        hidden_dim: width, H (Hugging Face: hidden_size).
        intermediate_dim: inner width of the gated feed-forward networks, I.
        head_dim: width of a head; H / num_heads by default.
        max_sequence_length: the longest text in training (Hugging Face: max_position_embeddings).
            Longer texts are accepted.
        rotary_base: see `RotaryPositions` (Hugging Face: rope_theta).
        rotary_scaling: see `RotaryScaling`.
        local_rotary_base: the base of layers with a window, which then have no scaling (Gemma 3;
            Hugging Face: rope_local_base_freq); None for the same positions everywhere.
        rotary_layers: for each layer, whether it has rotary positions, or only the order that its
            causal mask gives (SmolLM3); () for all layers (Hugging Face: no_rope_layers).
        windows: for each layer, how many tokens each position sees, itself included, or None for
            all before it (Mistral); () for all in every layer (Hugging Face: sliding_window).
        use_attention_bias: whether queries, keys and values have biases (Qwen 2).
        use_output_bias: whether the attention's output has a bias; like the others by default.
        use_feed_forward_bias: whether the feed-forward networks have biases.
        query_key_norm: whether each head's queries and keys go through an RMS norm (Qwen 3).
        query_key_norm_over: "width" for one norm over all heads together (OLMo 2).
        norm_position: where each layer's two norms are: "pre" before attention and feed-forward
            network, "output" after them (OLMo 2), "both" for four norms, before and after (Gemma
            3); see `TransformerBlock`.
        scale_dim: see `MultiHeadAttention`.
        embedding_scale: factor on the embeddings, sqrt(H) in Gemma.
        tied_embeddings: whether the token embeddings also project to the logits.
        separate_documents: whether the model also takes `document_ids`; see `gpt.gpt`.
        dropout: rate on the embeddings and on each sub-layer's output; the papers have none.
        attention_dropout: rate on the attention probabilities.
        activation: activation of the gate in the feed-forward networks.
        norm_epsilon: added to the mean square in every norm.
        initializer_range: standard deviation of the matrices' initial normal distribution.
        name: the model's name.

    Returns:
        A functional model with the inputs and the output of `gpt.gpt`. Padding at the end needs no
        mask, because no earlier position sees it.

    Raises:
        ValueError: heads do not divide the width or each other, or `windows` or `rotary_layers`
            does not have one entry per layer.

    Example:
        >>> model = llama(vocabulary_size=50, num_layers=1, num_heads=2, num_key_value_heads=1,
        ...               hidden_dim=8, intermediate_dim=16)
        >>> model({"token_ids": keras.ops.ones((2, 5), "int32")})["logits"].shape
        TensorShape([2, 5, 50])
    """
    if len(windows) not in (0, num_layers) or any(w is not None and w < 1 for w in windows):
        raise ValueError(
            f"windows={tuple(windows)}: pass None or a number of tokens, at least 1, for each of "
            f"the {num_layers} layers"
        )
    if rotary_layers and (len(rotary_layers) != num_layers or not any(rotary_layers)):
        raise ValueError(
            f"rotary_layers={tuple(rotary_layers)}: pass True or False for each of the "
            f"{num_layers} layers, and True at least once"
        )
    initializer = keras.initializers.RandomNormal(stddev=initializer_range)
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    inputs = {"token_ids": token_ids}
    documents: dict[str, Any] = {}
    if separate_documents:
        document_ids = keras.Input((None,), dtype="int32", name="document_ids")
        inputs["document_ids"] = document_ids
        mask = DocumentMask(name="document_mask")(document_ids)
        positions = DocumentPositions(name="document_positions")(mask)
        documents = {"attention_mask": mask, "positions": positions}
    embedding = TokenEmbedding(
        vocabulary_size,
        hidden_dim,
        scale=embedding_scale,
        embeddings_initializer=initializer.clone(),
        name="token_embedding",
    )
    hidden = embedding(token_ids)
    if dropout:
        hidden = keras.layers.Dropout(dropout, name="embeddings_dropout")(hidden)
    windows, rotary_layers = windows or [None] * num_layers, rotary_layers or [True] * num_layers
    globally = functools.partial(
        RotaryPositions,
        rotary_base,
        scaling=rotary_scaling,
        max_sequence_length=max_sequence_length,
    )
    locally = globally
    if local_rotary_base is not None:
        locally = functools.partial(
            RotaryPositions, local_rotary_base, max_sequence_length=max_sequence_length
        )
    for index, (window, is_rotary) in enumerate(zip(windows, rotary_layers, strict=True)):
        hidden = TransformerBlock(
            MultiHeadAttention(
                num_heads,
                hidden_dim,
                num_key_value_heads=num_key_value_heads,
                head_dim=head_dim,
                positions=(globally if window is None else locally)() if is_rotary else None,
                use_causal_mask=True,
                window=None if window is None else window - 1,  # to one side, not counting itself
                query_key_norm_epsilon=norm_epsilon if query_key_norm else None,
                query_key_norm_over=query_key_norm_over,
                scale_dim=scale_dim,
                attention_dropout=attention_dropout,
                use_bias=use_attention_bias,
                use_output_bias=use_output_bias,
                kernel_initializer=initializer,
            ),
            FeedForward(
                intermediate_dim,
                hidden_dim,
                activation=activation,
                gated=True,
                use_bias=use_feed_forward_bias,
                kernel_initializer=initializer,
            ),
            norm="rms",
            norm_position=norm_position,
            norm_epsilon=norm_epsilon,
            dropout=dropout,
            name=f"decoder_layer_{index}",
        )(hidden, **documents)
    hidden = norm_layer("rms", norm_epsilon, name="final_norm")(hidden)
    if tied_embeddings:
        logits = embedding(hidden, reverse=True)
    else:
        logits = RowDense(
            vocabulary_size,
            use_bias=False,
            kernel_initializer=initializer.clone(),
            dtype="float32",
            name="output_projection",
        )(hidden)
    return CausalLM(inputs=inputs, outputs={"logits": logits}, name=name)


def num_parameters(
    *,
    vocabulary_size: int,
    num_layers: int,
    num_heads: int,
    num_key_value_heads: int | None = None,
    hidden_dim: int,
    intermediate_dim: int,
    head_dim: int | None = None,
    use_attention_bias: bool = False,
    use_output_bias: bool | None = None,
    use_feed_forward_bias: bool = False,
    query_key_norm: bool = False,
    query_key_norm_over: Literal["head", "width"] = "head",
    norm_position: Literal["pre", "output", "both"] = "pre",
    tied_embeddings: bool = False,
) -> int:
    """Computes the parameter count of `llama` with these arguments, without building it."""
    h, i, d = hidden_dim, intermediate_dim, head_dim or hidden_dim // num_heads
    queries, keys = num_heads * d, (num_key_value_heads or num_heads) * d
    attention = 2 * h * queries + 2 * h * keys
    if use_attention_bias:
        attention += queries + 2 * keys
    if use_output_bias if use_output_bias is not None else use_attention_bias:
        attention += h
    norms = (4 if norm_position == "both" else 2) * h
    if query_key_norm:
        norms += queries + keys if query_key_norm_over == "width" else 2 * d
    matrices = 1 if tied_embeddings else 2
    layer = attention + norms + 3 * h * i + (2 * i + h) * use_feed_forward_bias
    return matrices * vocabulary_size * h + num_layers * layer + h


# Exact counts; tied matrices count once.
_NUM_PARAMETERS = {
    "smollm2_135m": 134_515_008,
    "smollm2_360m": 361_821_120,
    "smollm2_1_7b": 1_711_376_384,
    "smollm3_3b": 3_075_098_624,
    "llama_2_7b": 6_738_415_616,
    "llama_3_1_8b": 8_030_261_248,
    "llama_3_2_1b": 1_235_814_400,
    "mistral_7b": 7_241_732_096,
    "phi3_mini": 3_821_079_552,
    "olmo2_1b": 1_484_916_736,
    "olmo2_7b": 7_298_617_344,
    "gemma3_270m": 268_098_176,
    "gemma3_1b": 999_885_952,
    "qwen2_5_0_5b": 494_032_768,
    "qwen3_0_6b": 596_049_920,
}
_PAPERS = {
    "smollm3": "Bakouch et al. 2025, https://hf.co/blog/smollm3",
    "smollm2": "Allal et al. 2025, https://arxiv.org/abs/2502.02737",
    "llama_2": "Touvron et al. 2023, https://arxiv.org/abs/2307.09288",
    "llama_3": "Dubey et al. 2024, https://arxiv.org/abs/2407.21783",
    "mistral": "Jiang et al. 2023, https://arxiv.org/abs/2310.06825",
    "phi3": "Abdin et al. 2024, https://arxiv.org/abs/2404.14219",
    "olmo2": "OLMo team 2025, https://arxiv.org/abs/2501.00656",
    "gemma3": "Gemma team 2025, https://arxiv.org/abs/2503.19786",
    "qwen2": "Yang et al. 2024, https://arxiv.org/abs/2412.15115",
    "qwen3": "Yang et al. 2025, https://arxiv.org/abs/2505.09388",
}
_PAPER_FIGURES = {"smollm2_135m": "135M", "smollm2_360m": "360M", "smollm2_1_7b": "1.7B"}
_PAPER_FIGURES |= {"smollm3_3b": "3B", "phi3_mini": "3.8B", "olmo2_1b": "1B", "olmo2_7b": "7B"}
_PAPER_FIGURES |= {"gemma3_270m": "270M", "gemma3_1b": "1B"}
_COUNTED = inspect.signature(num_parameters).parameters

MODELS = {
    name: Entry(
        name=name,
        factory=named_factory(
            llama,
            name,
            size,
            summary=f"A causal language model with {size['num_layers']} layers, "
            f"{size['num_heads']} heads and width {size['hidden_dim']}, with random weights.",
        ),
        num_parameters=_NUM_PARAMETERS[name],
        paper=next(paper for start, paper in _PAPERS.items() if name.startswith(start)),
        paper_figure=_PAPER_FIGURES.get(name, ""),
        symbols={
            "V": size["vocabulary_size"],
            "H": size["hidden_dim"],
            "I": size["intermediate_dim"],
        },
        count=functools.partial(
            num_parameters, **{key: value for key, value in size.items() if key in _COUNTED}
        ),
    )
    for name, size in SIZES.items()
}
