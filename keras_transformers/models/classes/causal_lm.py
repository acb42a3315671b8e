"""The model class that `keras_transformers.models.gpt` builds, with step-by-step decoding."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_transformers.layers.attention import KeysValues, empty_cache, extend_cache
from keras_transformers.layers.dense import PACKAGE
from keras_transformers.layers.embeddings import check_token_ids, known_values
from keras_transformers.layers.masks import with_causal_mask
from keras_transformers.layers.residual import residual

Step = Callable[[Any, Any, Any], tuple[Any, Any]]


@keras.saving.register_keras_serializable(PACKAGE)
class CausalLM(keras.Model):
    """The functional model that `gpt.gpt` builds; it can also continue a text step by step."""

    def start_decoding(
        self, token_ids: Any, padding_mask: Any = None, *, max_length: int | None = None
    ) -> tuple[Step, Any, Any]:
        """Reads prompts in one pass and returns what `keras_transformers.decoding` needs.

            greedy_search(*model.start_decoding(prompts), end_token_id=0, max_length=20,
                          growing_axis=2)

        Args:
            token_ids: int32 (batch, prompt), at least one token per row; without a prompt, give the
                token that starts documents.
            padding_mask: bool (batch, prompt), True at real tokens, which come first in each row;
                by default all tokens are real.
            max_length: maximum number of steps, which makes every shape static (XLA). By default
                the cache grows along axis 2 by one position per step, which is less work on a CPU.

        Returns:
            `step(token_ids (rows,), index (), cache) -> (logits (rows, vocabulary), cache)`, where
            rows is a multiple of batch, each prompt's beams are adjacent, and the first index is 0;
            each prompt's last token (batch,), the input of the first step; and the cache of the
            tokens before it, a structure of tensors whose first axis is batch. `step.max_steps`
            says how many steps the positions, and `max_length`, leave to each prompt.

        Raises:
            ValueError: a prompt has an id outside the vocabulary, or is longer than the model's
                positions. Inside a graph, the searches of `decoding` check the length.
        """
        check_token_ids(token_ids, self.get_layer("token_embedding").vocabulary_size, "token_ids")
        layers = self.decoder_layers()
        last_position = self.get_layer("position_embedding").max_sequence_length - 1
        batch, length = ops.shape(token_ids)
        if padding_mask is None:
            padding_mask = ops.ones_like(token_ids, dtype="bool")
        # Prompts are aligned on the right, so that all end in the same column and their caches grow
        # together. The columns before a prompt are never seen and take no positions.
        num_empty = length - ops.sum(ops.cast(padding_mask, "int32"), axis=1)  # (batch,)
        positions = ops.arange(length)[None, :] - num_empty[:, None]  # (batch, prompt)
        max_steps = _steps_left(last_position + 1, length, num_empty, max_length)
        token_ids = ops.take_along_axis(token_ids, ops.maximum(positions, 0), axis=1)

        def step(token_ids: Any, index: Any, cache: Any) -> tuple[Any, Any]:
            num_beams = ops.shape(token_ids)[0] // ops.maximum(batch, 1)
            by_prompt = ops.reshape(token_ids, (batch, num_beams))
            first = ops.reshape(ops.zeros_like(by_prompt) + num_empty[:, None], (-1,))  # (rows,)
            column = index + length - 1  # of the input token
            columns = ops.arange(column + 1 if max_length is None else length - 1 + max_length)
            visible = ops.logical_and(columns[None] >= first[:, None], columns[None] <= column)
            # Finished rows continue until the longest one ends, maybe past the last position.
            position = ops.minimum(column - first, last_position)
            hidden = self._embed(token_ids[:, None], position[:, None])  # (rows, 1, hidden)
            write_at = None if max_length is None else column
            hidden, cache = _run(layers, hidden, cache, visible, write_at)
            return self._logits(hidden)[:, 0], cache

        step.max_steps = max_steps  # type: ignore[attr-defined]
        visible = with_causal_mask(positions[:, :-1] >= 0, length - 1)  # (batch, query, key)
        hidden = self._embed(token_ids[:, :-1], ops.maximum(positions[:, :-1], 0))
        nothing = tuple(
            empty_cache(
                batch,
                layer.self_attention.num_heads,
                0,
                layer.self_attention.head_dim,
                layer.compute_dtype,
            )
            for layer in layers
        )
        _, cache = _run(layers, hidden, nothing, visible)
        if max_length is not None:
            room = ((0, 0), (0, 0), (0, max_length), (0, 0))
            cache = tuple((ops.pad(keys, room), ops.pad(values, room)) for keys, values in cache)
        return step, token_ids[:, -1], cache

    def _embed(self, token_ids: Any, positions: Any) -> Any:
        vectors = self.get_layer("token_embedding")(token_ids)
        return self.get_layer("position_embedding")(vectors, positions=positions)

    def _logits(self, hidden: Any) -> Any:
        for layer in self.layers:
            if layer.name == "final_norm":
                hidden = layer(hidden)
        return self.get_layer("token_embedding")(hidden, reverse=True)

    def decoder_layers(self) -> list[Any]:
        """Returns the model's `EncoderLayer`s in order."""
        prefix = "decoder_layer_"
        layers = [layer for layer in self.layers if layer.name.startswith(prefix)]
        return sorted(layers, key=lambda layer: int(layer.name.removeprefix(prefix)))

    def last_hidden(self) -> Any:
        """Returns the symbolic vectors (batch, length, hidden) that the logits are made from."""
        norms = [layer for layer in self.layers if layer.name == "final_norm"]
        return (norms or self.decoder_layers())[-1].output


def _steps_left(num_positions: int, length: Any, num_empty: Any, max_length: int | None) -> Any:
    """Returns the number of steps that each prompt may take, int32 (batch,).

    The model never reads the last token of a text, so that one needs no position.
    """
    left = num_positions + 1 - length + num_empty
    values = known_values(left)
    least = 0 if values is None else int(values.min(initial=0))
    if least < 0:
        raise ValueError(
            f"a prompt has {num_positions + 1 - least} tokens, and the model {num_positions} "
            "positions: give its end alone"
        )
    return left if max_length is None else ops.minimum(left, max_length)


def _run(
    layers: list[Any], hidden: Any, cache: Any, visible: Any, index: Any = None
) -> tuple[Any, tuple[KeysValues, ...]]:
    """Runs all layers on the positions after those in the cache, as the model's call would.

    Args:
        layers: `EncoderLayer`s.
        hidden: vectors of the new positions (rows, new, hidden).
        cache: keys and values of the earlier positions, one pair per layer.
        visible: mask over old and new keys. See `MultiHeadAttention.call`.
        index: where the new position goes in a cache of fixed length; None if the cache grows.
    """
    extended = []
    for layer, layer_cache in zip(layers, cache, strict=True):
        hidden, layer_cache = _run_layer(layer, hidden, layer_cache, visible, index)
        extended.append(layer_cache)
    return hidden, tuple(extended)


def _run_layer(
    layer: Any, hidden: Any, cache: KeysValues, visible: Any, index: Any
) -> tuple[Any, KeysValues]:
    common = {"norm_position": layer.norm_position, "training": False}

    def attend(x: Any) -> tuple[Any, Any]:
        extended, _ = extend_cache(cache, layer.self_attention.keys_values(x), index)
        attended = layer.self_attention(x, keys_values=extended, attention_mask=visible)
        return attended, extended

    hidden, extended = residual(
        hidden,
        attend,
        norm=layer.self_attention_norm,
        dropout=layer.self_attention_dropout,
        **common,
    )
    hidden, _ = residual(
        hidden,
        lambda x: (layer.feed_forward(x), None),
        norm=layer.feed_forward_norm,
        dropout=layer.feed_forward_dropout,
        **common,
    )
    return hidden, extended
