"""Measures perplexity and token accuracy of language and translation models."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any, Self

import keras
from keras import ops

from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.training.losses import token_crossentropy

if TYPE_CHECKING:  # it needs TensorFlow, and the metrics run on any backend
    from keras_transformers.data.language_models import TokenStream

__all__ = [
    "LogProbabilityOfTokens",
    "OutputPerplexity",
    "Perplexity",
    "TextPerplexity",
    "TokenAccuracy",
]

_PACKAGE = "keras_transformers"


class TokenMean(keras.metrics.Metric):
    """Averages over tokens with weights: sum(weight * value) / sum(weight) since the last reset.

    `keras.metrics.Mean` would first average each sequence over its padded length, so that tokens of
    short batches count for more than those of long ones.
    """

    def __init__(self, name: str, dtype: str | None = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.total = self.add_variable(shape=(), initializer="zeros", name="total")
        self.count = self.add_variable(shape=(), initializer="zeros", name="count")

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        """Adds tokens.

        Args:
            y_true: token ids (batch, length).
            y_pred: logits (batch, length, vocabulary).
            sample_weight: (batch, length), 0 at padding; None means 1 everywhere.
        """
        targets, logits = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
        values = ops.cast(self._values(targets, logits), self.dtype)
        if sample_weight is None:
            sample_weight = ops.ones_like(values)
        weights = ops.cast(sample_weight, self.dtype)
        if len(weights.shape) != len(values.shape):
            raise ValueError(
                f"sample_weight of shape {tuple(weights.shape)} for targets of shape "
                f"{tuple(values.shape)}: pass one weight per token"
            )
        self.total.assign_add(ops.sum(weights * values))
        self.count.assign_add(ops.sum(weights))

    def result(self) -> Tensor:
        """Returns the mean, a scalar; NaN before the first token."""
        return self.total / self.count

    def _values(self, targets: Tensor, logits: Tensor) -> Tensor:
        """Returns the values to average: (batch, length)."""
        raise NotImplementedError


@keras.saving.register_keras_serializable(_PACKAGE)
class Perplexity(TokenMean):
    """Computes the exponential of the mean cross-entropy of a token, without label smoothing.

    The mean is over all tokens since the last reset, weighted by `sample_weight` and independent of
    batching. Pass it to `compile` in `weighted_metrics`: in plain `metrics` Keras ignores weights,
    and padding would count as text.

    Args:
        name: name of the metric.
        dtype: dtype of its sums; float32 by default.

    Example:
        >>> perplexity = Perplexity()
        >>> perplexity.update_state([[1, 0]], keras.ops.zeros((1, 2, 8)), [[1.0, 0.0]])
        >>> round(float(perplexity.result()), 4)
        8.0
    """

    def __init__(self, name: str = "perplexity", dtype: str | None = None) -> None:
        super().__init__(name, dtype)

    def _values(self, targets: Tensor, logits: Tensor) -> Tensor:
        return token_crossentropy(targets, logits)

    def result(self) -> Tensor:
        """Returns the perplexity, a scalar: 1 at best, NaN before the first token."""
        return ops.exp(super().result())


@keras.saving.register_keras_serializable(_PACKAGE)
class OutputPerplexity(Perplexity):
    """Computes perplexity for a model that outputs its loss, such as `elmo.language_model`.

    Outputs are (batch, length), the cross-entropy of each token in nats. In training, a sampled
    loss makes this figure a little low; in evaluation it is exact.

    Example:
        >>> perplexity = OutputPerplexity()
        >>> losses = keras.ops.log([[2.0, 8.0, 99.0]])
        >>> perplexity.update_state(keras.ops.zeros((1, 3)), losses, [[1.0, 1.0, 0.0]])
        >>> round(float(perplexity.result()), 4)
        4.0
    """

    def _values(self, targets: Tensor, outputs: Tensor) -> Tensor:
        return outputs


@keras.saving.register_keras_serializable(_PACKAGE)
class TokenAccuracy(TokenMean):
    """Computes the share of target tokens with the largest logit, weighted by `sample_weight`.

    Like `Perplexity`, it belongs in `weighted_metrics`. Of equal logits, the first counts as the
    largest.

    Args:
        name: name of the metric.
        dtype: dtype of its sums; float32 by default.
    """

    def __init__(self, name: str = "token_accuracy", dtype: str | None = None) -> None:
        super().__init__(name, dtype)

    def _values(self, targets: Tensor, logits: Tensor) -> Tensor:
        # On a CPU, five times as fast as `ops.argmax`, which handles negative zeros.
        _, largest = ops.top_k(logits, k=1)  # (batch, length, 1)
        return ops.equal(ops.cast(targets, "int32"), ops.cast(largest[..., 0], "int32"))


@dataclasses.dataclass(frozen=True)
class TextPerplexity:
    """Computes the cost of a text per token, per word and per byte.

    Perplexity per token only compares models with the same tokens. Perplexity per word and bits per
    byte compare any models on the same text.

    Attributes:
        nats: negative log-probability of all tokens together.
        num_tokens: number of predicted tokens, document ends included.
        num_words: words in the text; see `data.language_models.TokenStream`.
        num_bytes: bytes of the text in UTF-8.

    Raises:
        ValueError: a count is below 1.

    Example:
        >>> figures = TextPerplexity(nats=8 * math.log(2), num_tokens=4, num_words=2, num_bytes=8)
        >>> round(figures.per_token, 6), round(figures.per_word, 6), figures.bits_per_byte
        (4.0, 16.0, 1.0)
    """

    nats: float
    num_tokens: int
    num_words: int
    num_bytes: int

    def __post_init__(self) -> None:
        counts = (self.num_tokens, self.num_words, self.num_bytes)
        if min(counts) < 1:
            raise ValueError(
                f"{counts} tokens, words and bytes: the text must have at least 1 of each"
            )

    @classmethod
    def of(cls, nats: float, stream: "TokenStream") -> Self:
        """Returns the cost of a text that is a stream of tokens."""
        return cls(nats, stream.num_targets, stream.num_words, stream.num_bytes)

    @property
    def per_token(self) -> float:
        """The exponential of the mean cost of a token."""
        return math.exp(self.nats / self.num_tokens)

    @property
    def per_word(self) -> float:
        """The exponential of the mean cost of a word; infinity if that overflows a float."""
        mean = self.nats / self.num_words
        return math.exp(mean) if mean < 700 else math.inf

    @property
    def bits_per_byte(self) -> float:
        """The mean cost of a byte, in bits."""
        return self.nats / self.num_bytes / math.log(2)

    def figures(self, name: str) -> dict[str, float]:
        """Returns all three figures, labelled for a recipe's report."""
        return {
            f"{name}, perplexity per token": self.per_token,
            f"{name}, perplexity per word": self.per_word,
            f"{name}, bits per byte": self.bits_per_byte,
        }


class LogProbabilityOfTokens(keras.callbacks.Callback):
    """Adds `val_log_probability` to the logs: the mean per token in nats; higher is better.

    Put it before callbacks that keep the weights with the highest figure.

    Args:
        perplexity: name of the perplexity in the logs.
    """

    def __init__(self, perplexity: str = "val_perplexity") -> None:
        super().__init__()
        self.perplexity = perplexity

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds the figure.

        Raises:
            ValueError: the perplexity is not in the logs.
        """
        if logs is None or self.perplexity not in logs:
            raise ValueError(
                f"no {self.perplexity!r} in this epoch's logs (they have "
                f"{', '.join(sorted(logs or {}))}): compile the model with evaluation.Perplexity"
            )
        logs["val_log_probability"] = -math.log(float(logs[self.perplexity]))
