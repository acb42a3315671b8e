"""Models small enough to know everything about, for testing searches."""

from typing import Any

import numpy as np
import tensorflow as tf


class PrefixModel:
    """Random logits for every possible prefix, with a separate table for each sentence.

    Its cache is the prefix's number, so a cache row that does not follow its beam is noticed. The
    logits after an end token are as random as the others: a search that reads them goes wrong.
    """

    def __init__(
        self, *, batch: int, vocabulary_size: int, depth: int, seed: int, scale: float = 1.5
    ) -> None:
        self.batch, self.vocabulary_size = batch, vocabulary_size
        self.num_nodes = sum(vocabulary_size**length for length in range(depth))
        shape = (batch, self.num_nodes, vocabulary_size)
        random = np.random.default_rng(seed)
        self.logits = (random.normal(size=shape) * scale).astype(np.float32)
        self.cache = tf.zeros([batch], tf.int32)

    def step(self, token_ids: Any, index: Any, cache: Any) -> tuple[Any, Any]:
        tf.debugging.assert_less(token_ids, self.vocabulary_size)  # an embedding would fail too
        nodes = tf.where(index == 0, 0, cache * self.vocabulary_size + token_ids + 1)
        nodes = tf.minimum(nodes, self.num_nodes - 1)  # rows of closed sentences keep running
        by_sentence = tf.reshape(nodes, (self.batch, -1))
        logits = tf.gather(tf.constant(self.logits), by_sentence, batch_dims=1)
        return tf.reshape(logits, (-1, self.vocabulary_size)), nodes

    def log_probs(self, sentence: int, prefix: tuple[int, ...]) -> np.ndarray:
        node = 0
        for token_id in prefix:
            node = node * self.vocabulary_size + token_id + 1
        logits = self.logits[sentence, node].astype(np.float64)
        return logits - np.log(np.exp(logits).sum())


class AttentionModel:
    """One head of causal self-attention over the tokens so far, with three kinds of cache."""

    def __init__(self, *, vocabulary_size: int, width: int, max_length: int, seed: int) -> None:
        random = np.random.default_rng(seed)

        def matrix(*shape: int) -> tf.Tensor:
            return tf.constant(random.normal(size=shape), tf.float32)

        self.max_length = max_length
        self.embedding = matrix(vocabulary_size, width)
        self.positions = matrix(max_length, width)
        self.query, self.key, self.value = (matrix(width, width) for _ in range(3))
        self.output = matrix(width, vocabulary_size) * 0.5

    def embed(self, token_ids: Any, positions: Any) -> Any:
        return tf.gather(self.embedding, token_ids) + tf.gather(self.positions, positions)

    def logits(self, hidden: Any, keys: Any, values: Any, mask: Any) -> Any:
        scores = tf.einsum("rh,rth->rt", hidden @ self.query, keys)
        weights = tf.nn.softmax(tf.where(mask, scores, -1e9))
        return (hidden + tf.einsum("rt,rth->rh", weights, values)) @ self.output

    def growing_step(self, token_ids: Any, index: Any, cache: Any) -> tuple[Any, Any]:
        """Cache: keys and values (rows, time, width) of the positions so far."""
        hidden = self.embed(token_ids, index)
        keys = tf.concat([cache["keys"], (hidden @ self.key)[:, None]], axis=1)
        values = tf.concat([cache["values"], (hidden @ self.value)[:, None]], axis=1)
        logits = self.logits(hidden, keys, values, tf.constant(True))
        return logits, {"keys": keys, "values": values}

    def growing_cache(self, batch: int) -> Any:
        width = self.embedding.shape[1]
        return {"keys": tf.zeros((batch, 0, width)), "values": tf.zeros((batch, 0, width))}

    def fixed_step(self, token_ids: Any, index: Any, cache: Any) -> tuple[Any, Any]:
        """Cache: keys and values (rows, max_length, width), written at `index`."""
        hidden = self.embed(token_ids, index)
        here = (tf.range(self.max_length) == index)[:, None]
        keys = tf.where(here, (hidden @ self.key)[:, None], cache["keys"])
        values = tf.where(here, (hidden @ self.value)[:, None], cache["values"])
        logits = self.logits(hidden, keys, values, tf.range(self.max_length) <= index)
        return logits, {"keys": keys, "values": values}

    def fixed_cache(self, batch: int) -> Any:
        shape = (batch, self.max_length, self.embedding.shape[1])
        return {"keys": tf.zeros(shape), "values": tf.zeros(shape)}

    def uncached_step(self, token_ids: Any, index: Any, cache: Any) -> tuple[Any, Any]:
        """Cache: the tokens so far (rows, max_length); everything else is recomputed."""
        tokens = tf.where(tf.range(self.max_length) == index, token_ids[:, None], cache)
        hidden = self.embed(tokens, tf.range(self.max_length))
        mask = tf.range(self.max_length) <= index
        last = tf.gather(hidden, index, axis=1)
        return self.logits(last, hidden @ self.key, hidden @ self.value, mask), tokens

    def uncached_cache(self, batch: int) -> Any:
        return tf.zeros((batch, self.max_length), tf.int32)
