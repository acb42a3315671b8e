"""Defines the model class that encoder-decoder Transformers share, with step-by-step decoding."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_transformers.dependencies.private_api import call_arguments, run_through_graph
from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.layers import RelativePositionBias, TransformerBlock
from keras_transformers.layers.attention import KeysValues, empty_cache
from keras_transformers.layers.dense import PACKAGE
from keras_transformers.layers.embeddings import check_token_ids
from keras_transformers.models.anatomy import POSITIONS, anatomy

Cache = Any  # a structure of tensors whose first axis is the batch
Step = Callable[[Tensor, Tensor, Cache], tuple[Tensor, Cache]]


@keras.saving.register_keras_serializable(PACKAGE)
class Transformer(keras.Model):
    """The functional model that `transformer` and `t5` build; it can also decode step by step.

    A step runs the graph of the model's own decoder on one position: blocks take keys and values
    from a cache, and layers of positions start at the step's. The rest of the graph, such as norms,
    scales and projections, runs unchanged.
    """

    def start_decoding(
        self, source_token_ids: Tensor, *, max_length: int | None = None
    ) -> tuple[Step, Cache]:
        """Encodes the sources once and returns what `keras_transformers.decoding` needs.

        Args:
            source_token_ids: int32 (batch, source), padded.
            max_length: maximum number of steps; makes every shape static (XLA). By default the
                cache grows along axis 2 by one position per step, which is less work on a CPU.

        Returns:
            `step(token_ids (rows,), index (), cache) -> (logits (rows, vocabulary), cache)`, where
            rows is a multiple of batch and each sentence's beams are adjacent; and the cache before
            the first step, a structure of tensors whose first axis is batch. `step.max_steps` says
            how many steps the positions, and `max_length`, allow, if anything limits them.

        Raises:
            ValueError: a source has an id outside the vocabulary.
        """
        parts = anatomy(self, "encoder", "blocks")
        check_token_ids(
            source_token_ids, parts.encoder.token_embedding.input_dim, "source_token_ids"
        )
        encoder_output, mask = self._encoder()(source_token_ids)
        blocks = parts.blocks
        crosses = [block.cross_attention.keys_values(encoder_output) for block in blocks]
        batch, source_length = ops.shape(source_token_ids)

        def step(token_ids: Tensor, index: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
            num_beams = ops.shape(token_ids)[0] // ops.maximum(batch, 1)
            keys = ops.arange(index + 1 if max_length is None else max_length)[None]
            extended: list[KeysValues] = []

            def run_block(block: TransformerBlock, hidden: Tensor, bias: Tensor) -> Tensor:
                number = len(extended)
                if number == 0:  # a sentence's beams side by side
                    hidden = ops.reshape(hidden, (batch, num_beams, hidden.shape[-1]))
                hidden, layer_cache = block.step(
                    hidden,
                    cache=cache[number],
                    cross_keys_values=crosses[number],
                    cross_attention_mask=mask,
                    attention_bias=bias,
                    index=None if max_length is None else index,
                )
                extended.append(layer_cache)
                if len(extended) == len(blocks):
                    hidden = ops.reshape(hidden, (-1, 1, hidden.shape[-1]))  # (rows, 1, hidden)
                return hidden

            def on_one_position(layer: keras.layers.Layer) -> Callable[..., Any]:
                def run(x: Any, *others: Any, **options: Any) -> Any:
                    if all(leaf is None for leaf in keras.tree.flatten(x)):
                        return None  # the encoder's half, which blocks have in `crosses` and `mask`
                    if isinstance(layer, TransformerBlock):
                        return run_block(layer, x, options.get("attention_bias"))
                    if isinstance(layer, POSITIONS):
                        return layer(x, start_index=index)
                    if isinstance(layer, RelativePositionBias):
                        return layer(x, keys, start_index=index)
                    return layer(x, *others, **options)

                return run

            inputs = {"source_token_ids": None, "target_token_ids": token_ids[:, None]}
            outputs = run_through_graph(self, inputs, on_one_position)
            return outputs["logits"][:, 0], tuple(extended)

        limits = parts.max_sequence_length, max_length
        step.max_steps = min((x for x in limits if x is not None), default=None)  # type: ignore[attr-defined]
        # Hides the length 0 from shape inference, so that it can grow in a loop.
        length = source_length * 0 if max_length is None else max_length
        cache = tuple(empty_cache(batch, block.self_attention, length) for block in blocks)
        return step, cache

    def _encoder(self) -> keras.Model:
        """Returns the encoder as a model of the same layers.

        It maps source tokens (batch, source) to vectors (batch, source, hidden) and their mask
        (batch, source).
        """
        encoded, mask = next(
            (args[1], kwargs["cross_attention_mask"])
            for layer, args, kwargs in call_arguments(self)
            if isinstance(layer, TransformerBlock) and layer.cross_attention is not None
        )
        return keras.Model(self.input["source_token_ids"], [encoded, mask])

    def cross_attention_scores(self, source_token_ids: Tensor, target_token_ids: Tensor) -> Tensor:
        """Computes what each target position attends to, in every decoder layer and head.

        Args:
            source_token_ids: int32 (batch, source).
            target_token_ids: int32 (batch, target), the decoder's input.

        Returns:
            Probabilities (batch, layers, heads, target, source).
        """
        scores = []

        def with_scores(layer: keras.layers.Layer) -> Callable[..., Any]:
            def run(*args: Any, **kwargs: Any) -> Any:
                hidden, layer_scores = layer(*args, **kwargs, return_attention_scores=True)
                scores.append(layer_scores)
                return hidden

            crosses = isinstance(layer, TransformerBlock) and layer.cross_attention is not None
            return run if crosses else layer

        inputs = {"source_token_ids": source_token_ids, "target_token_ids": target_token_ids}
        run_through_graph(self, inputs, with_scores)
        return ops.stack(scores, axis=1)
