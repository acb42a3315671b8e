"""The model class that encoder-decoder Transformers share, with step-by-step decoding."""

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_transformers.layers.attention import empty_cache
from keras_transformers.layers.dense import PACKAGE
from keras_transformers.layers.embeddings import check_token_ids

Step = Callable[[Any, Any, Any], tuple[Any, Any]]


@keras.saving.register_keras_serializable(PACKAGE)
class Transformer(keras.Model):
    """The functional model that `transformer` and `t5` build; it can also decode step by step.

    It finds its layers by their names. Those that only some models have: the embeddings of
    positions or the biases of relative ones, the norms after the stacks, the scale before the
    logits, the logits' own matrix and their bias. If there is a layer "encoder_output", all that
    leads to it encodes the sources.
    """

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
            how many steps the positions, and `max_length`, allow, if anything limits them.

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
        relative = self._find("decoder_position_bias")

        def step(token_ids: Any, index: Any, cache: Any) -> tuple[Any, Any]:
            num_beams = ops.shape(token_ids)[0] // ops.maximum(batch, 1)
            hidden = self._embed_target(token_ids[:, None], start_index=index)  # (rows, 1, hidden)
            bias = None
            if relative is not None:
                keys = ops.arange(index + 1 if max_length is None else max_length)[None]
                bias = relative(hidden, keys, start_index=index)  # (1, heads, 1, key)
            hidden = ops.reshape(hidden, (batch, num_beams, hidden.shape[-1]))
            extended = []
            for layer, layer_cache, cross in zip(decoder_layers, cache, crosses, strict=True):
                hidden, layer_cache = layer.step(
                    hidden,
                    cache=layer_cache,
                    cross_keys_values=cross,
                    cross_attention_mask=mask,
                    attention_bias=bias,
                    index=None if max_length is None else index,
                )
                extended.append(layer_cache)
            rows = ops.reshape(hidden, (-1, 1, hidden.shape[-1]))
            return self._logits(rows)[:, 0], tuple(extended)

        positions = self._find("target_position_embedding")
        limits = [positions.max_sequence_length] if positions is not None else []
        limits += [] if max_length is None else [max_length]
        step.max_steps = min(limits, default=None)  # type: ignore[attr-defined]
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
        bias = self._find("decoder_position_bias", otherwise=_none)(hidden)
        scores = []
        for layer in self._layers_named("decoder_layer_"):
            hidden, layer_scores = layer(
                hidden,
                encoder_output,
                attention_bias=bias,
                cross_attention_mask=mask,
                return_attention_scores=True,
            )
            scores.append(layer_scores)
        return ops.stack(scores, axis=1)

    def _encode(self, source_token_ids: Any, mask: Any) -> Any:
        encoder_output = self._find("encoder_output")
        if encoder_output is not None:
            encoder = keras.Model(self.input["source_token_ids"], encoder_output.output)
            return encoder(source_token_ids)
        hidden = self._find("source_token_embedding", "token_embedding")(source_token_ids)
        hidden = self._find("source_position_embedding", otherwise=_same)(hidden)
        bias = self._find("encoder_position_bias", otherwise=_none)(hidden)
        for layer in self._layers_named("encoder_layer_"):
            hidden = layer(hidden, attention_mask=mask, attention_bias=bias)
        return self._find("encoder_norm", otherwise=_same)(hidden)

    def _embed_target(self, target_token_ids: Any, start_index: Any = 0) -> Any:
        hidden = self._find("target_token_embedding", "token_embedding")(target_token_ids)
        positions = self._find("target_position_embedding")
        return hidden if positions is None else positions(hidden, start_index=start_index)

    def _logits(self, hidden: Any) -> Any:
        hidden = self._find("decoder_norm", otherwise=_same)(hidden)
        hidden = self._find("logits_scale", otherwise=_same)(hidden)
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


def _none(hidden: Any) -> None:
    return None
