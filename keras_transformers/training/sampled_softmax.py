"""Cross-entropy over a large vocabulary, estimated in training from a sample of its words."""

import math
from typing import Any

import keras
from keras import ops

from keras_transformers.dependencies.untyped import Tensor

__all__ = ["OutputIsLoss", "SampledSoftmax"]

_PACKAGE = "keras_transformers"


def log_uniform_log_probability(word_ids: Tensor, vocabulary_size: int) -> Tensor:
    """Returns the log of the probability of drawing word k: log((k + 2) / (k + 1)) / log(V + 1).

    The probability is close to Zipf's law if ids go from frequent to rare. TensorFlow's
    `log_uniform_candidate_sampler` uses it too.
    """
    ranks = ops.cast(word_ids, "float32")
    return ops.log(ops.log1p(1.0 / (ranks + 1.0)) / math.log(vocabulary_size + 1))


def draw_log_uniform(
    num_draws: int, vocabulary_size: int, seed: keras.random.SeedGenerator
) -> Tensor:
    """Draws word ids with replacement; returns int32 (num_draws,)."""
    draws = keras.random.uniform((num_draws,), dtype="float32", seed=seed)
    ids = ops.cast(ops.exp(draws * math.log(vocabulary_size + 1)), "int32") - 1
    return ops.clip(ids, 0, vocabulary_size - 1)  # rounding may exceed it by one


def sampled_crossentropy(
    hidden: Tensor, target_ids: Tensor, kernel: Tensor, bias: Tensor, sampled_ids: Tensor
) -> Tensor:
    """Estimates each token's cross-entropy, with the sum over the vocabulary from a sample.

    The target's term is exact. The exp(logit) of every other word counts once per draw, divided by
    its expected number of draws. This estimate of the sum is unbiased (Bengio and Senécal 2003);
    its logarithm is a little low, less so for larger samples. All tokens share the sample; draws of
    a token's target do not count.

    Args:
        hidden: (tokens, features).
        target_ids: int32 (tokens,).
        kernel: (vocabulary, features), the output embeddings.
        bias: (vocabulary,).
        sampled_ids: int32 (draws,), from `draw_log_uniform`.

    Returns:
        float32 (tokens,), in nats.
    """
    num_draws, vocabulary_size = ops.shape(sampled_ids)[0], kernel.shape[0]
    hidden = ops.cast(hidden, "float32")
    target_logits = ops.sum(hidden * ops.take(kernel, target_ids, axis=0), axis=-1)
    target_logits = target_logits + ops.take(bias, target_ids)  # (tokens,)
    logits = ops.matmul(hidden, ops.transpose(ops.take(kernel, sampled_ids, axis=0)))
    expected = log_uniform_log_probability(sampled_ids, vocabulary_size) + math.log(num_draws)
    logits = logits + (ops.take(bias, sampled_ids) - expected)  # (tokens, draws)
    logits = ops.where(sampled_ids[None, :] == target_ids[:, None], -1e9, logits)
    every = ops.concatenate([target_logits[:, None], logits], axis=-1)
    return ops.logsumexp(every, axis=-1) - target_logits


@keras.saving.register_keras_serializable(_PACKAGE)
class SampledSoftmax(keras.layers.Layer):
    """The output layer of a language model, whose output is the loss of each token.

    In training this is `sampled_crossentropy` with `num_sampled` draws; otherwise it is exact. The
    draws depend only on the seed, so two runs draw the same words.

        softmax = SampledSoftmax(50_000, num_sampled=8192, seed=1)
        model = elmo.language_model(kt.elmo_small(), softmax)
        model.compile(optimizer, loss=OutputIsLoss())  # of both outputs

    Args:
        vocabulary_size: the number of words, whose ids must go from frequent to rare.
        num_sampled: the number of draws in each training call (bilm-tf: 8192).
        seed: seed of the draws.

    Raises:
        ValueError: there are no draws, or fewer than two words to draw from.
    """

    def __init__(
        self, vocabulary_size: int, *, num_sampled: int, seed: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if num_sampled < 1 or vocabulary_size < 2:
            raise ValueError(
                f"num_sampled={num_sampled} of vocabulary_size={vocabulary_size}: draw at least "
                "one of two words"
            )
        self.vocabulary_size = vocabulary_size
        self.num_sampled = num_sampled
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, hidden_shape: tuple[int, ...], target_ids_shape: tuple[int, ...]) -> None:
        """Creates the output embeddings and biases, which stay float32 in mixed precision."""
        width = hidden_shape[-1]
        self.kernel = self.add_weight(
            name="kernel",
            shape=(self.vocabulary_size, width),
            initializer=keras.initializers.RandomNormal(stddev=width**-0.5),
            autocast=False,
        )
        self.bias = self.add_weight(
            name="bias", shape=(self.vocabulary_size,), initializer="zeros", autocast=False
        )

    def call(self, hidden: Tensor, target_ids: Tensor, training: bool | None = None) -> Tensor:
        """Returns losses (batch, tokens) of vectors (batch, tokens, features) and their target ids.

        Logits and losses are float32 under every policy.
        """
        rows = ops.cast(ops.reshape(hidden, (-1, hidden.shape[-1])), "float32")
        ids = ops.cast(ops.reshape(target_ids, (-1,)), "int32")
        kernel, bias = (ops.cast(weight, "float32") for weight in (self.kernel, self.bias))
        if training:
            sampled = draw_log_uniform(self.num_sampled, self.vocabulary_size, self.seed_generator)
            losses = sampled_crossentropy(rows, ids, kernel, bias, sampled)
        else:
            logits = ops.matmul(rows, ops.transpose(kernel)) + bias  # (rows, vocabulary)
            at_ids = ops.squeeze(ops.take_along_axis(logits, ids[:, None], axis=-1), -1)
            losses = ops.logsumexp(logits, axis=-1) - at_ids
        return ops.reshape(losses, ops.shape(target_ids))

    def training_flops(self, hidden: Tensor, target_ids: Tensor) -> int:
        """Returns the operations of a training pass: scores of the target and the drawn words."""
        return 2 * math.prod(hidden.shape) * (self.num_sampled + 1)

    def compute_output_spec(
        self, hidden: Tensor, target_ids: Tensor, training: bool | None = None
    ) -> keras.KerasTensor:
        """Returns the shape and type of `call`'s result."""
        return keras.KerasTensor(target_ids.shape, dtype="float32")

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {
            "vocabulary_size": self.vocabulary_size,
            "num_sampled": self.num_sampled,
            "seed": self.seed,
        }


@keras.saving.register_keras_serializable(_PACKAGE)
class OutputIsLoss(keras.losses.Loss):
    """The loss of a model whose output is its loss per token, averaged with `sample_weight`.

    It ignores the targets, which `fit` still requires: pass zeros of the output's shape.
    """

    def __init__(
        self, *, reduction: str | None = "mean_with_sample_weight", name: str = "output_is_loss"
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype="float32")

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Returns the output unchanged."""
        return y_pred
