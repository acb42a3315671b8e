"""Defines the residual block of every Transformer here."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_transformers.layers.attention import KeysValues, MultiHeadAttention
from keras_transformers.layers.composite import part_config
from keras_transformers.layers.dense import PACKAGE
from keras_transformers.layers.feed_forward import FeedForward
from keras_transformers.layers.layouts import PADDED, Padded, Selected
from keras_transformers.layers.memory.recomputation import RecomputableLayer
from keras_transformers.layers.norms import (
    BlockNormPosition,
    Norm,
    check_block_norm_position,
    norm_layer,
)
from keras_transformers.layers.scopes import KERNELS, SELECTIONS
from keras_transformers.layers.shared import calls_are_shared, shared_call
from keras_transformers.layers.tensors import Shape, Tensor

__all__ = ["TransformerBlock"]

_PARTS = ("attention", "feed_forward", "cross_attention")  # arguments that are layers


@keras.saving.register_keras_serializable(PACKAGE)
class TransformerBlock(RecomputableLayer):
    """Applies attention and feed-forward, each with dropout, a residual sum and a norm.

    It is the encoder layer of "Attention Is All You Need", section 3.1; with cross-attention, the
    decoder layer; and with only causal attention, GPT's and Llama's layer. All positions (`call`),
    new positions with a cache (`step`) and only real tokens (`layout`) share one path.

    Args:
        attention: self-attention. The block names it "self_attention".
        feed_forward: the feed-forward network; named "feed_forward".
        cross_attention: attention to an encoder's output, between those two; None for none.
        norm: "layer", "layer_without_bias" (ModernBERT), or "rms", without mean and bias (T5,
            Llama).
        norm_position: "post" is the paper's `norm(x + sublayer(x))`; "pre" is
            `x + sublayer(norm(x))` and needs one more norm after the last block, as the other two
            do: "output" is `x + norm(sublayer(x))` (OLMo 2), and "both" is
            `x + output_norm(sublayer(norm(x)))` (Gemma 2 and 3).
        norm_epsilon: added to the variance in every norm.
        attention_norm: whether self-attention has a norm. ModernBERT's first block has none,
            because its embeddings have one.
        dropout: rate on the output of each sub-layer, before the residual sum.

    Raises:
        ValueError: an unknown choice, or a layer that is already built.

    Example:
        >>> from keras_transformers.layers import FeedForward
        >>> block = TransformerBlock(MultiHeadAttention(2, 8), FeedForward(32, 8))
        >>> block(keras.ops.ones((1, 3, 8))).shape
        TensorShape([1, 3, 8])
    """

    def __init__(
        self,
        attention: MultiHeadAttention,
        feed_forward: FeedForward,
        *,
        cross_attention: MultiHeadAttention | None = None,
        norm: Norm = "layer",
        norm_position: BlockNormPosition = "post",
        norm_epsilon: float = 1e-6,
        attention_norm: bool = True,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_block_norm_position(norm_position)
        for part in (attention, feed_forward, cross_attention):
            if part is not None and part.built:
                raise ValueError(
                    f"layer {part.name!r} already has weights: pass new layers, whose weights then "
                    "get names inside the block"
                )
        self.norm, self.norm_position, self.norm_epsilon = norm, norm_position, norm_epsilon
        self.attention_norm = attention_norm
        self.dropout = dropout
        attention.name, feed_forward.name = "self_attention", "feed_forward"
        # The order of these assignments is that of the variables in checkpoints.
        self.self_attention = attention
        self.cross_attention_norm: keras.layers.Layer = None
        if cross_attention is None:
            self.cross_attention: keras.layers.Layer = None
            self.self_attention_norm = self._norm("self_attention_norm")
            self.feed_forward = feed_forward
            self.feed_forward_norm = self._norm("feed_forward_norm")
        else:
            cross_attention.name = "cross_attention"
            self.cross_attention = cross_attention
            self.feed_forward = feed_forward
            self.self_attention_norm = self._norm("self_attention_norm")
            self.cross_attention_norm = self._norm("cross_attention_norm")
            self.feed_forward_norm = self._norm("feed_forward_norm")
        self.self_attention_output_norm = self._output_norm("self_attention")
        self.cross_attention_output_norm = self._output_norm("cross_attention")
        self.feed_forward_output_norm = self._output_norm("feed_forward")
        self.self_attention_dropout = self._dropout("self_attention_dropout")
        if cross_attention is not None:
            self.cross_attention_dropout = self._dropout("cross_attention_dropout")
        self.feed_forward_dropout = self._dropout("feed_forward_dropout")

    def _norm(self, name: str) -> keras.layers.Layer:
        if name == "self_attention_norm" and not self.attention_norm:
            return keras.layers.Identity(dtype=self.dtype_policy, name=name)
        return norm_layer(self.norm, self.norm_epsilon, dtype=self.dtype_policy, name=name)

    def _output_norm(self, part: str) -> keras.layers.Layer:
        """Returns the norm of a part's output beside that of its input, or None."""
        if self.norm_position != "both" or getattr(self, part) is None:
            return None
        return self._norm(f"{part}_output_norm")

    def _dropout(self, name: str) -> keras.layers.Dropout:
        return keras.layers.Dropout(self.dropout, dtype=self.dtype_policy, name=name)

    def sublayers(self) -> list[tuple[keras.layers.Layer, list[keras.layers.Layer]]]:
        """Returns the residual sub-layers in the order of computation, each with its norms."""
        ends = ("_norm", "_output_norm") if self.norm_position == "both" else ("_norm",)
        return [
            (part, [getattr(self, f"{name}{end}") for end in ends])
            for name in ("self_attention", "cross_attention", "feed_forward")
            if (part := getattr(self, name)) is not None
        ]

    def build(self, inputs_shape: Shape, encoder_output_shape: Shape | None = None) -> None:
        """Builds the sub-layers."""
        self.self_attention.build(inputs_shape)
        self.self_attention_norm.build(inputs_shape)
        self.self_attention_dropout.build(inputs_shape)
        if self.cross_attention is not None:
            self.cross_attention.build(inputs_shape, encoder_output_shape)
            self.cross_attention_norm.build(inputs_shape)
            self.cross_attention_dropout.build(inputs_shape)
        self.feed_forward.build(inputs_shape)
        self.feed_forward_norm.build(inputs_shape)
        self.feed_forward_dropout.build(inputs_shape)
        if self.norm_position == "both":
            for _, (_, output_norm) in self.sublayers():
                output_norm.build(inputs_shape)

    def call(
        self,
        inputs: Tensor,
        encoder_output: Tensor | None = None,
        *,
        layout: Padded = PADDED,
        attention_mask: Tensor | None = None,
        attention_bias: Tensor | None = None,
        cross_attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        distance_vectors: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Tensor:
        """Computes all positions at once.

        Args:
            inputs: (batch, length, hidden), or in the form of `layout`.
            encoder_output: (batch, source, hidden), for cross-attention.
            layout: how the inputs lie in memory; see `layouts`.
            attention_mask: True where a query may attend, in self-attention; see
                `MultiHeadAttention.call`. Padding at the end needs no mask if the attention is
                causal, because no earlier position sees it.
            attention_bias: added to the scores of self-attention (batch, heads, length, length);
                axes of size 1 broadcast.
            cross_attention_mask: True at source positions that may be seen; usually the source's
                padding mask (batch, source).
            positions: see `MultiHeadAttention.call`.
            distance_vectors: see `DisentangledAttention.scores_bias`.
            return_attention_scores: also return the attention probabilities, those of
                cross-attention if there is one.
            training: whether to apply dropout.

        Returns:
            (batch, length, hidden); with `return_attention_scores`, also the probabilities
            (batch, heads, length, length or source).
        """
        tensors = {
            "inputs": inputs,
            "encoder_output": encoder_output,
            "attention_mask": attention_mask,
            "attention_bias": attention_bias,
            "cross_attention_mask": cross_attention_mask,
            "positions": positions,
            "distance_vectors": distance_vectors,
        }
        if calls_are_shared() and layout is PADDED and not (training or return_attention_scores):
            return shared_call(self, self._all_positions, **tensors)
        return self._all_positions(
            **tensors,
            layout=layout,
            return_attention_scores=return_attention_scores,
            training=training,
        )

    def _all_positions(
        self,
        *,
        inputs: Tensor,
        encoder_output: Tensor | None,
        layout: Padded = PADDED,
        attention_mask: Tensor | None,
        attention_bias: Tensor | None,
        cross_attention_mask: Tensor | None,
        positions: Tensor | None,
        distance_vectors: Tensor | None,
        return_attention_scores: bool = False,
        training: bool | None = False,
    ) -> Tensor:
        """Computes `call`."""
        if (selection := SELECTIONS.of(self)) is not None:
            layout = Selected(layout, selection)
        shows_own = return_attention_scores and self.cross_attention is None
        shows_cross = return_attention_scores and self.cross_attention is not None

        def run(
            inputs: Tensor,
            encoder_output: Tensor,
            attention_bias: Tensor,
            distance_vectors: Tensor,
        ) -> tuple[Tensor, Tensor]:
            def attend(x: Tensor) -> tuple[Tensor, Tensor]:
                attended = self.self_attention(
                    x,
                    layout=layout,
                    attention_mask=attention_mask,
                    attention_bias=attention_bias,
                    positions=positions,
                    distance_vectors=distance_vectors,
                    return_attention_scores=shows_own,
                    training=training,
                )
                return attended if shows_own else (attended, None)

            def attend_to_source(x: Tensor) -> tuple[Tensor, Tensor]:
                attended = self.cross_attention(
                    x,
                    encoder_output,
                    attention_mask=cross_attention_mask,
                    return_attention_scores=shows_cross,
                    training=training,
                )
                return attended if shows_cross else (attended, None)

            return self._sublayers(inputs, attend, attend_to_source, training, layout)

        tensors = inputs, encoder_output, attention_bias, distance_vectors
        if self.recomputes and training and not return_attention_scores:
            return self.recomputed(lambda *tensors: run(*tensors)[0], *tensors)
        output, scores = run(*tensors)
        return (output, scores) if return_attention_scores else output

    def step(
        self,
        inputs: Tensor,
        *,
        cache: KeysValues,
        index: Tensor | None = None,
        attention_mask: Tensor | None = None,
        attention_bias: Tensor | None = None,
        positions: Tensor | None = None,
        cross_keys_values: KeysValues | None = None,
        cross_attention_mask: Tensor | None = None,
    ) -> tuple[Tensor, KeysValues]:
        """Computes new positions as `call` would, from cached keys and values.

        Args:
            inputs: vectors of the new positions (rows, new, hidden). With cross-attention, those of
                one position in each beam (batch, beams, hidden): a sentence's beams share its
                cross-attention keys and values without copying them.
            cache: self-attention keys and values of the earlier positions, each
                (rows or batch * beams, key heads, length, head_dim); see `empty_cache`.
            index: the position, if the cache has a fixed length; None if it grows.
            attention_mask: see `MultiHeadAttention.step`.
            attention_bias: added to the scores of self-attention (1, heads, new, length), where the
                length is the cache's with the new positions.
            positions: see `MultiHeadAttention.step`.
            cross_keys_values: `cross_attention.keys_values(encoder_output)`, each
                (batch, heads, source, head_dim).
            cross_attention_mask: (batch, source), True at real tokens.

        Returns:
            The inputs' shape, and the cache with the new positions.
        """
        return shared_call(
            self,
            self._step,
            inputs=inputs,
            cache=cache,
            index=index,
            attention_mask=attention_mask,
            attention_bias=attention_bias,
            positions=positions,
            cross_keys_values=cross_keys_values,
            cross_attention_mask=cross_attention_mask,
        )

    def _step(
        self,
        inputs: Tensor,
        *,
        cache: KeysValues,
        index: Tensor | None,
        attention_mask: Tensor | None,
        attention_bias: Tensor | None,
        positions: Tensor | None,
        cross_keys_values: KeysValues | None,
        cross_attention_mask: Tensor | None,
    ) -> tuple[Tensor, KeysValues]:
        """Computes `step`."""
        extended = cache

        def attend(x: Tensor) -> tuple[Tensor, Tensor]:
            nonlocal extended
            rows = x
            if self.cross_attention is not None:
                rows = ops.reshape(x, (-1, 1, x.shape[-1]))  # (batch * beams, 1, hidden)
            attended, extended = self.self_attention.step(
                rows,
                cache=cache,
                index=index,
                attention_mask=attention_mask,
                attention_bias=attention_bias,
                positions=positions,
            )
            return attended if rows is x else ops.reshape(attended, ops.shape(x)), None

        def attend_to_source(x: Tensor) -> tuple[Tensor, Tensor]:
            attended = self.cross_attention(
                x, keys_values=cross_keys_values, attention_mask=cross_attention_mask
            )
            return attended, None

        output, _ = self._sublayers(inputs, attend, attend_to_source, False)
        return output, extended

    def _sublayers(
        self,
        hidden: Tensor,
        attend: Callable[[Tensor], tuple[Tensor, Tensor]],
        attend_to_source: Callable[[Tensor], tuple[Tensor, Tensor]],
        training: bool | None,
        layout: Padded = PADDED,
    ) -> tuple[Tensor, Tensor]:
        """Runs the residual sub-layers; also returns the attention probabilities, if requested."""
        hidden, scores = self._residual("self_attention", hidden, attend, training, layout)
        if self.cross_attention is not None:
            hidden, scores = self._residual("cross_attention", hidden, attend_to_source, training)
        output, _ = self._residual(
            "feed_forward",
            hidden,
            lambda x: (self.feed_forward(x, training=training), None),
            training,
        )
        return output, scores

    def _residual(
        self,
        name: str,
        inputs: Tensor,
        sublayer: Callable[[Tensor], tuple[Tensor, Tensor]],
        training: bool | None,
        layout: Padded = PADDED,
    ) -> tuple[Tensor, Tensor]:
        """Computes a sub-layer, its norms and the residual sum; see `norm_position`.

        Args:
            name: the sub-layer's name, whose norm and dropout to use.
            inputs: (..., hidden).
            sublayer: maps (..., hidden) to the same shape and an extra result.
            training: whether to apply dropout.
            layout: of the inputs and the sub-layer's result.

        Returns:
            (..., hidden), and the sub-layer's extra result.
        """
        norm, dropout = getattr(self, f"{name}_norm"), getattr(self, f"{name}_dropout")
        norm = KERNELS.of(norm) or norm
        outputs, extra = sublayer(norm(inputs) if self.norm_position in ("pre", "both") else inputs)
        if self.norm_position in ("output", "both"):
            outputs = (getattr(self, f"{name}_output_norm") or norm)(outputs)
        hidden = layout.residual(inputs) + dropout(outputs, training=training)
        return norm(hidden) if self.norm_position == "post" else hidden, extra

    def compute_output_spec(
        self,
        inputs: Tensor,
        encoder_output: Tensor | None = None,
        *,
        return_attention_scores: bool = False,
        **others: Any,
    ) -> Tensor:
        """Returns the shapes and dtypes of `call`'s results; tracing `call` for them is slow."""
        batch, length, width = inputs.shape
        if (selection := SELECTIONS.of(self)) is not None:
            length = selection.size
        output = keras.KerasTensor((batch, length, width), dtype=self.compute_dtype)
        if not return_attention_scores:
            return output
        if self.cross_attention is None:
            return output, self.self_attention.scores_spec(inputs, inputs)
        return output, self.cross_attention.scores_spec(inputs, encoder_output)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        parts = (self.self_attention, self.feed_forward, self.cross_attention)
        return super().get_config() | {
            **{name: part_config(part) for name, part in zip(_PARTS, parts, strict=True)},
            "norm": self.norm,
            "norm_position": self.norm_position,
            "norm_epsilon": self.norm_epsilon,
            "attention_norm": self.attention_norm,
            "dropout": self.dropout,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "TransformerBlock":
        """Makes a block from the result of `get_config`."""
        parts = {name: keras.saving.deserialize_keras_object(config.get(name)) for name in _PARTS}
        return super().from_config({**config, **parts})
