"""Defines the model class of decoders such as GPT, with step-by-step decoding."""

from collections.abc import Callable

import keras
from keras import ops

from keras_transformers.dependencies.private_api import run_through_graph
from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.layers import (
    DocumentMask,
    DocumentPositions,
    RelativePositionBias,
    TransformerBlock,
)
from keras_transformers.layers.attention import KeysValues, empty_cache
from keras_transformers.layers.dense import PACKAGE
from keras_transformers.layers.embeddings import check_token_ids, known_values
from keras_transformers.models.anatomy import POSITIONS, anatomy

Cache = tuple[KeysValues, ...]  # of each block
Step = Callable[[Tensor, Tensor, Cache], tuple[Tensor, Cache]]


@keras.saving.register_keras_serializable(PACKAGE)
class CausalLM(keras.Model):
    """A functional decoder, such as `gpt.gpt` builds; it can also continue a text step by step.

    A step runs the model's own graph on the new positions, for any family: blocks take keys and
    values from a cache, and the layers of positions get the positions of the new tokens. The rest
    of the graph runs unchanged.
    """

    def start_decoding(
        self,
        token_ids: Tensor,
        padding_mask: Tensor | None = None,
        *,
        max_length: int | None = None,
    ) -> tuple[Step, Tensor, Cache]:
        """Reads prompts in one pass and returns what `keras_transformers.decoding` needs.

            greedy_search(*model.start_decoding(prompts), end_token_id=0, max_length=20,
                          growing_axis=2)

        Args:
            token_ids: int32 (batch, prompt), at least one token per row; for an empty prompt, pass
                the token that starts documents.
            padding_mask: bool (batch, prompt), True at real tokens, which come first in each row;
                by default all tokens are real.
            max_length: maximum number of steps; makes every shape static (XLA). By default the
                cache grows along axis 2 by one position per step, which is less work on a CPU.

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
        parts = anatomy(self, "token_embedding", "blocks")
        check_token_ids(token_ids, parts.token_embedding.input_dim, "token_ids")
        batch, length = ops.shape(token_ids)
        if padding_mask is None:
            padding_mask = ops.ones_like(token_ids, dtype="bool")
        # Prompts are right-aligned, so that all end in the same column and their caches grow
        # together. The columns before a prompt are never seen and take no positions.
        num_empty = length - ops.sum(ops.cast(padding_mask, "int32"), axis=1)  # (batch,)
        positions = ops.arange(length)[None, :] - num_empty[:, None]  # (batch, prompt)
        token_ids = ops.take_along_axis(token_ids, ops.maximum(positions, 0), axis=1)

        step = self.decoding_step(num_empty, length, max_length=max_length)
        cache = self.read_tokens(token_ids[:, :-1], num_empty, self.empty_cache(batch))
        if max_length is not None:
            room = ((0, 0), (0, 0), (0, max_length), (0, 0))
            cache = tuple((ops.pad(keys, room), ops.pad(values, room)) for keys, values in cache)
        return step, token_ids[:, -1], cache

    def empty_cache(self, rows: int | Tensor) -> Cache:
        """Returns the cache of rows of which nothing was read, for `read_tokens`."""
        blocks = anatomy(self, "blocks").blocks
        return tuple(empty_cache(rows, block.self_attention, 0) for block in blocks)

    def read_tokens(self, token_ids: Tensor, num_empty: Tensor, cache: Cache) -> Cache:
        """Reads more tokens of prompts, as `start_decoding` reads them at once.

        Args:
            token_ids: int32 (rows, new), right-aligned: prompts begin after their empty columns.
            num_empty: int32 (rows,), how many columns before each prompt are empty, those of the
                cache included.
            cache: of the columns before these.

        Returns:
            The cache with the new columns.
        """
        first = ops.shape(cache[0][0])[2]
        columns = ops.arange(first + ops.shape(token_ids)[1])[None]
        positions = columns[:, first:] - num_empty[:, None]  # (rows, new)
        visible = columns >= num_empty[:, None]  # (rows, columns)
        _, cache = self._run(token_ids, ops.maximum(positions, 0), cache, visible)
        return cache

    def decoding_step(
        self, num_empty: Tensor, prompt_length: int | Tensor, *, max_length: int | None = None
    ) -> Step:
        """Returns the step after prompts that `start_decoding` has read, such as in another graph.

        Args:
            num_empty: int32 (batch,), how many columns before each prompt are empty.
            prompt_length: the number of columns of the prompts, an integer or an int32 scalar.
            max_length: see `start_decoding`.

        Returns:
            The step of `start_decoding`.
        """
        num_positions = anatomy(self).max_sequence_length
        batch = ops.shape(num_empty)[0]

        def step(token_ids: Tensor, index: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
            num_beams = ops.shape(token_ids)[0] // ops.maximum(batch, 1)
            by_prompt = ops.reshape(token_ids, (batch, num_beams))
            first = ops.reshape(ops.zeros_like(by_prompt) + num_empty[:, None], (-1,))  # (rows,)
            column = index + prompt_length - 1  # of the input token
            columns = ops.arange(
                column + 1 if max_length is None else prompt_length - 1 + max_length
            )
            visible = ops.logical_and(columns[None] >= first[:, None], columns[None] <= column)
            position = column - first
            if num_positions is not None:
                # Finished rows continue until the longest one ends, possibly past the last
                # position.
                position = ops.minimum(position, num_positions - 1)
            write_at = None if max_length is None else column
            logits, cache = self._run(
                token_ids[:, None], position[:, None], cache, visible, index=write_at
            )
            return logits[:, 0], cache

        left = _steps_left(num_positions, prompt_length, num_empty, max_length)
        step.max_steps = left  # type: ignore[attr-defined]
        return step

    def _run(
        self,
        token_ids: Tensor,
        positions: Tensor,
        cache: Cache,
        visible: Tensor,
        *,
        index: Tensor | None = None,
    ) -> tuple[Tensor, Cache]:
        """Runs the model's graph on the positions after those in the cache.

        Args:
            token_ids: int32 (rows, new).
            positions: int32 (rows, new).
            cache: keys and values of the earlier positions, one pair per block.
            visible: bool (rows, key), over old and new keys.
            index: where the new position goes in a cache of fixed length; None if the cache grows.

        Returns:
            Logits (rows, new, vocabulary), and the cache with the new positions.
        """
        extended: list[KeysValues] = []
        first = ops.shape(cache[0][0])[2] if index is None else index

        def step(
            block: TransformerBlock, hidden: Tensor, attention_bias: Tensor | None = None
        ) -> Tensor:
            hidden, layer_cache = block.step(
                hidden,
                cache=cache[len(extended)],
                index=index,
                attention_mask=visible,
                attention_bias=attention_bias,
                positions=positions,
            )
            extended.append(layer_cache)
            return hidden

        def on_new_positions(layer: keras.layers.Layer) -> Callable[..., Tensor | None]:
            if isinstance(layer, TransformerBlock):
                return lambda hidden, attention_bias=None, **_: step(layer, hidden, attention_bias)
            if isinstance(layer, POSITIONS):
                return lambda hidden, *_, **__: layer(hidden, positions=positions)
            if isinstance(layer, RelativePositionBias):
                return lambda hidden, *_, **__: layer(hidden, visible, start_index=first)
            if isinstance(layer, DocumentMask | DocumentPositions):  # a prompt is one document
                return lambda *_: None
            return layer

        inputs = dict.fromkeys(self.input, token_ids)
        outputs = run_through_graph(self, inputs, on_new_positions)
        return outputs["logits"], tuple(extended)


def _steps_left(
    num_positions: int | None, length: int | Tensor, num_empty: Tensor, max_length: int | None
) -> Tensor | int | None:
    """Returns the number of steps that each prompt may take, int32 (batch,); None for no limit.

    The model never reads the last token of a text, so it needs no position.
    """
    if num_positions is None:
        return max_length
    left = num_positions + 1 - length + num_empty
    values = known_values(left)
    least = 0 if values is None else int(values.min(initial=0))
    if least < 0:
        raise ValueError(
            f"a prompt has {num_positions + 1 - least} tokens, but the model {num_positions} "
            "positions: pass only its last tokens"
        )
    return left if max_length is None else ops.minimum(left, max_length)
