"""The encoder-decoder Transformer of Vaswani et al. 2017, "Attention Is All You Need"."""

import functools
from collections.abc import Callable
from typing import Any, Literal

import keras
from keras import ops

from keras_transformers.layers import (
    AddBias,
    DecoderLayer,
    EncoderLayer,
    PaddingMask,
    PositionEmbedding,
    RowDense,
    SinusoidalPositionEmbedding,
)
from keras_transformers.layers.attention import empty_cache
from keras_transformers.layers.dense import PACKAGE, Activation
from keras_transformers.layers.embeddings import WeightTying, check_token_ids, token_embeddings
from keras_transformers.layers.residual import NormPosition
from keras_transformers.models.entry import Entry, named_factory

Positions = Literal["sinusoidal", "learned"]
Step = Callable[[Any, Any, Any], tuple[Any, Any]]

_PAPER = "Vaswani et al. 2017, https://arxiv.org/abs/1706.03762"

SIZES: dict[str, dict[str, Any]] = {
    "transformer_base": {
        "num_encoder_layers": 6,
        "num_decoder_layers": 6,
        "num_heads": 8,
        "hidden_dim": 512,
        "intermediate_dim": 2048,
    },
    "transformer_big": {
        "num_encoder_layers": 6,
        "num_decoder_layers": 6,
        "num_heads": 16,
        "hidden_dim": 1024,
        "intermediate_dim": 4096,
    },
    "transformer_tiny": {
        "num_encoder_layers": 4,
        "num_decoder_layers": 4,
        "num_heads": 4,
        "hidden_dim": 128,
        "intermediate_dim": 256,
    },
}


@keras.saving.register_keras_serializable(PACKAGE)
class Transformer(keras.Model):
    """The functional model that `transformer` builds; it can also decode step by step."""

    def start_decoding(
        self, source_token_ids: Any, *, max_length: int | None = None
    ) -> tuple[Step, Any]:
        """Encodes the sources once and returns what `keras_transformers.decoding` needs.

        Args:
            source_token_ids: int32 (batch, source), padded.
            max_length: maximum number of steps, which makes every shape static (XLA). By default
                the cache grows along axis 2 by one position per step, which is less work on a CPU.

        Returns:
            `step(token_ids (rows,), index (), cache) -> (logits (rows, vocabulary), cache)`, where
            rows is a multiple of batch and each sentence's beams are adjacent; and the cache before
            the first step, a structure of tensors whose first axis is batch. `step.max_steps` says
            how many steps the positions, and `max_length`, allow.

        Raises:
            ValueError: a source has an id outside the vocabulary.
        """
        embedding = self._find("source_token_embedding", "token_embedding")
        check_token_ids(source_token_ids, embedding.vocabulary_size, "source_token_ids")
        mask = self.get_layer("source_padding_mask")(source_token_ids)
        encoder_output = self._encode(source_token_ids, mask)
        decoder_layers = self._layers_named("decoder_layer_")
        crosses = [layer.cross_attention.keys_values(encoder_output) for layer in decoder_layers]
        batch, source_length = ops.shape(source_token_ids)

        def step(token_ids: Any, index: Any, cache: Any) -> tuple[Any, Any]:
            num_beams = ops.shape(token_ids)[0] // ops.maximum(batch, 1)
            hidden = self._embed_target(token_ids[:, None], start_index=index)  # (rows, 1, hidden)
            hidden = ops.reshape(hidden, (batch, num_beams, hidden.shape[-1]))
            extended = []
            for layer, layer_cache, cross in zip(decoder_layers, cache, crosses, strict=True):
                hidden, layer_cache = layer.step(
                    hidden,
                    cache=layer_cache,
                    cross_keys_values=cross,
                    cross_attention_mask=mask,
                    index=None if max_length is None else index,
                )
                extended.append(layer_cache)
            rows = ops.reshape(hidden, (-1, 1, hidden.shape[-1]))
            return self._logits(rows)[:, 0], tuple(extended)

        positions = self.get_layer("target_position_embedding").max_sequence_length
        step.max_steps = min(positions, max_length or positions)  # type: ignore[attr-defined]
        # Hides from shape inference that the length is 0, so that a loop can let it grow.
        length = source_length * 0 if max_length is None else max_length
        cache = tuple(
            empty_cache(batch, layer.num_heads, length, layer.head_dim, layer.compute_dtype)
            for layer in decoder_layers
        )
        return step, cache

    def cross_attention_scores(self, source_token_ids: Any, target_token_ids: Any) -> Any:
        """Computes what each target position attends to, in every decoder layer and head.

        Args:
            source_token_ids: int32 (batch, source).
            target_token_ids: int32 (batch, target), the decoder's input.

        Returns:
            Probabilities (batch, layers, heads, target, source).
        """
        mask = self.get_layer("source_padding_mask")(source_token_ids)
        encoder_output = self._encode(source_token_ids, mask)
        hidden = self._embed_target(target_token_ids)
        scores = []
        for layer in self._layers_named("decoder_layer_"):
            hidden, layer_scores = layer(
                hidden, encoder_output, cross_attention_mask=mask, return_attention_scores=True
            )
            scores.append(layer_scores)
        return ops.stack(scores, axis=1)

    def _encode(self, source_token_ids: Any, mask: Any) -> Any:
        hidden = self._find("source_token_embedding", "token_embedding")(source_token_ids)
        hidden = self.get_layer("source_position_embedding")(hidden)
        for layer in self._layers_named("encoder_layer_"):
            hidden = layer(hidden, attention_mask=mask)
        return self._find("encoder_norm", otherwise=_same)(hidden)

    def _embed_target(self, target_token_ids: Any, start_index: Any = 0) -> Any:
        hidden = self._find("target_token_embedding", "token_embedding")(target_token_ids)
        return self.get_layer("target_position_embedding")(hidden, start_index=start_index)

    def _logits(self, hidden: Any) -> Any:
        hidden = self._find("decoder_norm", otherwise=_same)(hidden)
        projection = self._find("output_projection")
        if projection is None:
            embedding = self._find("target_token_embedding", "token_embedding")
            projection = functools.partial(embedding, reverse=True)
        return self._find("logits", otherwise=_same)(projection(hidden))

    def _find(self, *names: str, otherwise: Any = None) -> Any:
        """Returns the first of these layers that this model has, or `otherwise`."""
        by_name = {layer.name: layer for layer in self.layers}
        return next((by_name[name] for name in names if name in by_name), otherwise)

    def _layers_named(self, prefix: str) -> list[Any]:
        layers = [layer for layer in self.layers if layer.name.startswith(prefix)]
        return sorted(layers, key=lambda layer: int(layer.name.removeprefix(prefix)))


def _same(hidden: Any) -> Any:
    return hidden


def transformer(
    *,
    vocabulary_size: int,
    target_vocabulary_size: int | None = None,
    num_encoder_layers: int,
    num_decoder_layers: int,
    num_heads: int,
    hidden_dim: int,
    intermediate_dim: int,
    max_sequence_length: int = 1024,
    weight_tying: WeightTying = "all",
    positions: Positions = "sinusoidal",
    norm_position: NormPosition = "post",
    activation: Activation = "relu",
    use_attention_bias: bool = True,
    use_output_bias: bool = False,
    dropout: float = 0.1,
    attention_dropout: float = 0.1,
    feed_forward_dropout: float = 0.1,
    norm_epsilon: float = 1e-6,
    pad_token_id: int = 0,
    name: str = "transformer",
) -> Transformer:
    """Builds an encoder-decoder Transformer.

    Args:
        vocabulary_size: number of source tokens, V.
        target_vocabulary_size: number of target tokens; `vocabulary_size` by default.
        num_encoder_layers: number of encoder layers, the paper's N.
        num_decoder_layers: number of decoder layers, the paper's N.
        num_heads: number of attention heads, the paper's h.
        hidden_dim: width, the paper's d_model.
        intermediate_dim: inner width of the feed-forward networks, the paper's d_ff.
        max_sequence_length: the longest source or target.
        weight_tying: "all": one matrix for source embeddings, target embeddings and logits (the
            paper); "decoder": targets and logits share one; "none": three matrices.
        positions: "sinusoidal" (the paper) or "learned".
        norm_position: "post" (the paper), or "pre", which adds a norm after each stack.
        activation: activation of the feed-forward networks.
        use_attention_bias: whether the attention projections have biases; tensor2tensor's do not.
        use_output_bias: whether the logits have a bias.
        dropout: rate on the embeddings and on each sub-layer's output (the paper's P_drop).
        attention_dropout: rate on the attention probabilities.
        feed_forward_dropout: rate inside the feed-forward networks.
        norm_epsilon: added to the variance in every norm.
        pad_token_id: id of the padding token of sources; no position attends to it.
        name: the model's name.

    Returns:
        A functional model. Inputs: `source_token_ids` int32 (batch, source) and
        `target_token_ids` int32 (batch, target), the targets shifted right. Output: `logits`
        float32 (batch, target, target vocabulary), position i for the token after input i.

    Raises:
        ValueError: an unknown choice, a `hidden_dim` that is not a multiple of `num_heads`, or
            `weight_tying="all"` with vocabularies of different sizes.

    Example:
        >>> model = transformer(vocabulary_size=50, num_encoder_layers=1, num_decoder_layers=1,
        ...                     num_heads=2, hidden_dim=8, intermediate_dim=16)
        >>> logits = model({"source_token_ids": keras.ops.ones((2, 5), "int32"),
        ...                 "target_token_ids": keras.ops.ones((2, 3), "int32")})["logits"]
        >>> logits.shape
        TensorShape([2, 3, 50])
    """
    target_vocabulary_size = target_vocabulary_size or vocabulary_size
    if positions not in ("sinusoidal", "learned"):
        raise ValueError(f"positions={positions!r} is unknown: use 'sinusoidal' or 'learned'")
    source_embedding, target_embedding = token_embeddings(
        weight_tying, vocabulary_size, target_vocabulary_size, hidden_dim
    )
    layer_arguments: dict[str, Any] = {
        "num_heads": num_heads,
        "hidden_dim": hidden_dim,
        "intermediate_dim": intermediate_dim,
        "dropout": dropout,
        "attention_dropout": attention_dropout,
        "feed_forward_dropout": feed_forward_dropout,
        "activation": activation,
        "norm_position": norm_position,
        "norm_epsilon": norm_epsilon,
        "use_attention_bias": use_attention_bias,
    }

    def embed(side: str, token_ids: Any, embedding: Any) -> Any:
        position_class = (
            SinusoidalPositionEmbedding if positions == "sinusoidal" else PositionEmbedding
        )
        hidden = position_class(max_sequence_length, name=f"{side}_position_embedding")(
            embedding(token_ids)
        )
        return keras.layers.Dropout(dropout, name=f"{side}_embeddings_dropout")(hidden)

    def final_norm(name: str, hidden: Any) -> Any:
        if norm_position == "post":
            return hidden
        return keras.layers.LayerNormalization(epsilon=norm_epsilon, name=name)(hidden)

    source_token_ids = keras.Input((None,), dtype="int32", name="source_token_ids")
    target_token_ids = keras.Input((None,), dtype="int32", name="target_token_ids")
    source_padding_mask = PaddingMask(pad_token_id, name="source_padding_mask")(source_token_ids)

    encoded = embed("source", source_token_ids, source_embedding)
    for index in range(num_encoder_layers):
        layer = EncoderLayer(**layer_arguments, name=f"encoder_layer_{index}")
        encoded = layer(encoded, attention_mask=source_padding_mask)
    encoded = final_norm("encoder_norm", encoded)

    hidden = embed("target", target_token_ids, target_embedding)
    for index in range(num_decoder_layers):
        layer = DecoderLayer(**layer_arguments, name=f"decoder_layer_{index}")
        hidden = layer(hidden, encoded, cross_attention_mask=source_padding_mask)
    hidden = final_norm("decoder_norm", hidden)

    if weight_tying == "none":
        logits = RowDense(
            target_vocabulary_size, use_bias=False, dtype="float32", name="output_projection"
        )(hidden)
    else:
        logits = target_embedding(hidden, reverse=True)
    if use_output_bias:
        logits = AddBias(dtype="float32", name="logits")(logits)
    return Transformer(
        inputs={"source_token_ids": source_token_ids, "target_token_ids": target_token_ids},
        outputs={"logits": logits},
        name=name,
    )


def num_parameters(
    *,
    vocabulary_size: int = 37000,
    num_encoder_layers: int,
    num_decoder_layers: int,
    hidden_dim: int,
    intermediate_dim: int,
    norm_position: NormPosition = "post",
    use_attention_bias: bool = True,
    use_output_bias: bool = False,
    weight_tying: WeightTying = "all",
) -> int:
    """Computes the parameter count of `transformer` with these arguments, without building it."""
    d, f = hidden_dim, intermediate_dim
    attention = 4 * d * d + (4 * d if use_attention_bias else 0)
    feed_forward = 2 * d * f + f + d
    encoder_layer = attention + feed_forward + 2 * (2 * d)
    decoder_layer = 2 * attention + feed_forward + 3 * (2 * d)
    matrices = {"all": 1, "decoder": 2, "none": 3}[weight_tying]
    return (
        num_encoder_layers * encoder_layer
        + num_decoder_layers * decoder_layer
        + (4 * d if norm_position == "pre" else 0)
        + matrices * vocabulary_size * d
        + (vocabulary_size if use_output_bias else 0)
    )


# Exact counts for V = 37,000, one shared matrix, attention biases, post-norm.
_NUM_PARAMETERS = {
    "transformer_base": 63_082_496,
    "transformer_big": 214_245_376,
    "transformer_tiny": 6_061_056,
}
_PAPER_FIGURES = {"transformer_base": "65M", "transformer_big": "213M"}

MODELS = {
    name: Entry(
        name=name,
        factory=named_factory(
            transformer,
            name,
            {**size, "vocabulary_size": 37000},
            summary=f"A Transformer with {size['num_encoder_layers']} + "
            f"{size['num_decoder_layers']} layers and width {size['hidden_dim']}, with random "
            "weights.",
        ),
        num_parameters=_NUM_PARAMETERS[name],
        paper=_PAPER,
        paper_figure=_PAPER_FIGURES.get(name, ""),
        paper_note=(
            "no vocabulary of about 37,000 with one shared matrix gives the printed figure"
            if name in _PAPER_FIGURES
            else ""
        ),
        symbols={"V": 37000, "H": size["hidden_dim"], "I": size["intermediate_dim"]},
        count=functools.partial(
            num_parameters, **{key: size[key] for key in size if key != "num_heads"}
        ),
    )
    for name, size in SIZES.items()
}
