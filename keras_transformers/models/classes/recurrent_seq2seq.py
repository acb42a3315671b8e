"""Defines the model class of `models.encoder_decoders.seq2seq`, with step-by-step decoding."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.layers import (
    AddBias,
    PaddingMask,
    RecurrentDecoder,
    RecurrentEncoder,
    TeacherForcing,
    TokenEmbedding,
)
from keras_transformers.layers.dense import PACKAGE
from keras_transformers.layers.embeddings import check_token_ids
from keras_transformers.layers.recurrent.cells import scan_steps, time_major
from keras_transformers.models.anatomy import anatomy, only
from keras_transformers.models.classes.encoder_decoder import Cache, Step


@keras.saving.register_keras_serializable(PACKAGE)
class Seq2Seq(keras.Model):
    """The functional model that `seq2seq` builds; it can also decode step by step."""

    @property
    def has_attention(self) -> bool:
        """Whether the model has attention, which `cross_attention_scores` needs."""
        return self._decoder().attention is not None

    @property
    def teacher_forcing(self) -> keras.Variable:
        """The teacher forcing ratio, a variable to `assign` to; None if it is always 1."""
        layer = self._forcing()
        return None if layer is None else layer.ratio

    # Methods, because Keras saves the layers that properties return a second time.
    def _decoder(self) -> RecurrentDecoder:
        return only(self, RecurrentDecoder)

    def _forcing(self) -> Any:
        return next((x for x in self.layers if isinstance(x, TeacherForcing)), None)

    def call(
        self, inputs: Mapping[str, Tensor], training: bool | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Computes the logits; in training with scheduled sampling if the ratio is below 1."""
        if training and self._forcing() is not None:
            return self._feed_own_tokens(**inputs)
        return super().call(inputs, training=training, mask=mask)

    def start_decoding(
        self, source_token_ids: Tensor, *, max_length: int | None = None
    ) -> tuple[Step, Cache]:
        """Encodes the sources once and returns what `keras_transformers.decoding` needs.

        Args:
            source_token_ids: int32 (batch, source), padded.
            max_length: ignored: the cache never grows, so its shapes are always static.

        Returns:
            `step(token_ids (rows,), index (), cache) -> (logits (rows, vocabulary), cache)`, where
            rows is a multiple of batch and each sentence's beams are adjacent; and the cache before
            the first step, tensors (batch, dim, 1). Their third axis lets a search treat this cache
            like a Transformer's, which grows along axis 2.

        Raises:
            ValueError: a source has an id outside the vocabulary.
        """
        embedding = anatomy(self).encoder.token_embedding
        check_token_ids(source_token_ids, embedding.vocabulary_size, "source_token_ids")
        mask = only(self, PaddingMask)(source_token_ids)
        decoder = self._decoder()
        source, state = decoder.start(self._encode(source_token_ids, mask), mask)
        batch = ops.shape(source_token_ids)[0]

        def step(token_ids: Tensor, index: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
            num_beams = ops.shape(token_ids)[0] // ops.maximum(batch, 1)
            state = keras.tree.map_structure(lambda leaf: leaf[:, :, 0], cache)
            hidden, state = decoder.step(
                self._embed_target(token_ids), state, source, num_queries=num_beams
            )
            return self._logits(hidden), _as_cache(state)

        return step, _as_cache(state)

    def cross_attention_scores(self, source_token_ids: Tensor, target_token_ids: Tensor) -> Tensor:
        """Computes what each target position attends to, the paper's soft alignment.

        Args:
            source_token_ids: int32 (batch, source).
            target_token_ids: int32 (batch, target), the decoder's input.

        Returns:
            Probabilities (batch, 1, 1, target, source), shaped as for one layer with one head.

        Raises:
            ValueError: the model has no attention.
        """
        if not self.has_attention:
            raise ValueError(
                f"model {self.name!r} has no attention: build it with "
                "attention='additive' or another kind"
            )
        mask = only(self, PaddingMask)(source_token_ids)
        _, scores = self._decoder()(
            self._embed_target(target_token_ids),
            self._encode(source_token_ids, mask),
            padding_mask=mask,
            return_attention_scores=True,
        )
        return scores[:, None, None]

    def _encode(self, source_token_ids: Tensor, mask: Tensor, training: bool = False) -> Tensor:
        hidden = anatomy(self).encoder.token_embedding(source_token_ids)
        hidden = self.get_layer("source_embeddings_dropout")(hidden, training=training)
        return only(self, RecurrentEncoder)(hidden, padding_mask=mask, training=training)

    def _embed_target(self, target_token_ids: Tensor) -> Tensor:
        if not self._decoder().feed_tokens:
            return target_token_ids
        return anatomy(self).token_embedding(target_token_ids)

    def _logits(self, hidden: Tensor) -> Tensor:
        """Projects readouts to logits, with the layers of the graph after the decoder's."""
        projection = anatomy(self).projection
        ties = isinstance(projection, TokenEmbedding)
        logits = projection(hidden, reverse=True) if ties else projection(hidden)
        bias = next((layer for layer in self.layers if isinstance(layer, AddBias)), None)
        return logits if bias is None else bias(logits)

    def _feed_own_tokens(
        self, source_token_ids: Tensor, target_token_ids: Tensor
    ) -> dict[str, Tensor]:
        """Computes training logits with scheduled sampling, choosing each step's input token.

        As in Bengio et al. 2015, no gradient flows through the choice. All random numbers are drawn
        before the loop.
        """
        mask = only(self, PaddingMask)(source_token_ids)
        decoder = self._decoder()
        source, state = decoder.start(self._encode(source_token_ids, mask, training=True), mask)
        targets = time_major(target_token_ids)  # (target, batch)
        length, batch = ops.shape(targets)
        forced = self._forcing().choose(length, batch)
        noise = [
            self.get_layer(name)(ops.ones((length, batch, width)), training=True)
            for name, width in (
                ("target_embeddings_dropout", self._embed_target(targets[:1]).shape[-1]),
                ("readout_dropout", decoder.output_dim),
            )
        ]
        layer_noise = decoder.dropout_noise(length, batch, True)

        def step(carry: Cache, index: Tensor, *noise: Tensor) -> Any:
            state, logits = carry
            target, is_forced = (ops.take(rows, index, axis=0) for rows in (targets, forced))
            predicted = ops.cast(ops.argmax(logits, axis=-1), target.dtype)
            embedded = self._embed_target(ops.where(is_forced, target, predicted)) * noise[0]
            hidden, state = decoder.step(embedded, state, source, noise=noise[2:])
            return state, self._logits(hidden * noise[1])

        vocabulary_size = self.output["logits"].shape[-1]
        start = (state, ops.zeros((batch, vocabulary_size), dtype="float32"))
        (_, logits), _ = scan_steps(step, start, [*noise, *layer_noise])
        return {"logits": time_major(logits)}


def _as_cache(state: Cache) -> Cache:
    """Adds a third axis, so that a search can treat the cache as one that grows."""
    return keras.tree.map_structure(lambda leaf: leaf[:, :, None], state)
