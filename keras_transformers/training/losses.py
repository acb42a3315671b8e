"""Cross-entropy over a vocabulary, for translation, language models and masked language models.

ELECTRA's discriminator, which judges tokens instead of predicting them, has a loss of its own.

Token ids stay ids: the targets never become one-hot vectors (batch, length, vocabulary). With a
vocabulary of thousands the loss is memory-bound, so its gradient is written by hand and reuses the
exponentials of the forward pass.
"""

from typing import Any

import keras
from keras import ops

from keras_transformers.dependencies.untyped import Tensor

__all__ = [
    "ElementwiseLoss",
    "ReplacedTokenCrossentropy",
    "TokenCrossentropy",
    "replaced_labels_and_logits",
    "token_crossentropy",
]

_PACKAGE = "keras_transformers"


def token_crossentropy(targets: Tensor, logits: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    """Returns the cross-entropy of each token, in nats.

    With V tokens and e = `label_smoothing`, the target distribution has 1 - e + e / V on the right
    token and e / V on every other (Szegedy et al. 2016, section 7; Vaswani et al. 2017 use
    e = 0.1). This equals `keras.losses.CategoricalCrossentropy(from_logits=True,
    label_smoothing=e)` on one-hot targets.

    Args:
        targets: token ids (...), any integer type, each from 0 to V - 1.
        logits: (..., V), any float type; computed in float32.
        label_smoothing: e, from 0 to below 1.

    Returns:
        float32 (...). Its gradient has the type of `logits`; there is no second derivative.

    Raises:
        ValueError: `label_smoothing` is out of range, or the shapes do not match.

    Example:
        >>> targets = keras.ops.array([[1, 0]])
        >>> token_crossentropy(targets, keras.ops.zeros((1, 2, 4))).numpy().round(4)
        array([[1.3863, 1.3863]], dtype=float32)
    """
    _check_label_smoothing(label_smoothing)
    if len(targets.shape) != len(logits.shape) - 1:
        raise ValueError(
            f"targets of shape {tuple(targets.shape)} for logits of shape {tuple(logits.shape)}: "
            "the ids must have the shape of the logits without the last axis, the vocabulary"
        )
    vocabulary_size = logits.shape[-1]
    rows = ops.cast(ops.reshape(logits, (-1, vocabulary_size)), "float32")  # (rows, vocabulary)
    ids = ops.cast(ops.reshape(targets, (-1, 1)), "int32")  # (rows, 1)
    return ops.reshape(_row_crossentropy(rows, ids, label_smoothing), ops.shape(targets))


def _row_crossentropy(logits: Tensor, ids: Tensor, label_smoothing: float) -> Tensor:
    """Returns the cross-entropy (rows,) of logits (rows, vocabulary), float32, at ids (rows, 1)."""
    right, uniform = 1.0 - label_smoothing, label_smoothing / logits.shape[-1]

    @ops.custom_gradient
    def crossentropy(logits: Tensor) -> tuple[Tensor, Tensor]:
        # On a CPU one softmax kernel costs a third of max, subtract, exp and sum. It also gives the
        # logarithm of the sum: logsumexp = largest - log(p of the largest). This p is at least
        # 1 / V, so it cannot underflow.
        probabilities = ops.softmax(logits, axis=-1)  # (rows, vocabulary): kept for the gradient
        largest = ops.max(logits, axis=-1)
        losses = right * (largest - _at(logits, ids)) - ops.log(ops.max(probabilities, axis=-1))
        if label_smoothing:
            losses = losses + label_smoothing * (largest - ops.mean(logits, axis=-1))

        def gradient(upstream: Tensor) -> Tensor:
            # softmax - (uniform everywhere + right at the id), times the upstream gradient.
            outcome = probabilities - uniform if label_smoothing else probabilities
            outcome = outcome * upstream[:, None]
            at_ids = (_at(probabilities, ids) - uniform - right) * upstream  # (rows,)
            numbers = ops.expand_dims(ops.arange(ops.shape(ids)[0], dtype="int32"), -1)
            places = ops.concatenate([numbers, ids], axis=-1)  # (rows, 2)
            return ops.scatter_update(outcome, places, at_ids)

        return losses, gradient

    return crossentropy(logits)


def _at(values: Tensor, ids: Tensor) -> Tensor:
    """Returns the values (rows,) at ids (rows, 1) of (rows, vocabulary)."""
    return ops.squeeze(ops.take_along_axis(values, ids, axis=-1), axis=-1)


@keras.saving.register_keras_serializable(_PACKAGE)
class TokenCrossentropy(keras.losses.Loss):
    """Label-smoothed cross-entropy, averaged over the tokens that count.

    The loss of a batch is sum(weight * crossentropy) / sum(weight) over all positions, with the
    data's `sample_weight` (batch, length). The weight of padding is 0, so padding changes nothing
    and all real tokens of the batch count the same, however long their rows are. Without
    `sample_weight` all positions count. If all weights are 0, so is the loss. Under `tf.distribute`
    each replica divides by its own tokens or, after `distributed.prepare`, by those of all.

        model.compile(optimizer, loss=TokenCrossentropy(label_smoothing=0.1),
                      weighted_metrics=[Perplexity(), TokenAccuracy()])
        model.fit(dataset)  # of (inputs, target ids, sample_weight)

    Args:
        label_smoothing: share of the probability that is spread evenly over the vocabulary, from 0
            to below 1. See `token_crossentropy`.
        reduction: see Keras; "mean_with_sample_weight" is described above.
        name: name of the loss.

    Raises:
        ValueError: `label_smoothing` is out of range.
    """

    def __init__(
        self,
        *,
        label_smoothing: float = 0.0,
        reduction: str | None = "mean_with_sample_weight",
        name: str = "token_crossentropy",
    ) -> None:
        _check_label_smoothing(label_smoothing)
        # Always float32, because Keras also casts the ids: float32 represents all integers up to
        # 16,777,216, bfloat16 only those up to 256.
        super().__init__(name=name, reduction=reduction, dtype="float32")
        self.label_smoothing = label_smoothing

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Returns (batch, length) from ids (batch, length) and logits (batch, length, V)."""
        return token_crossentropy(y_true, y_pred, label_smoothing=self.label_smoothing)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {"label_smoothing": self.label_smoothing}


@keras.saving.register_keras_serializable(_PACKAGE)
class ReplacedTokenCrossentropy(keras.losses.Loss):
    """Binary cross-entropy of an ELECTRA discriminator, averaged over the tokens that count.

    Clark et al. 2020, section 2. A token counts as replaced if it is not the original one: a
    generator that drew the right token replaced nothing. For sample weights, see
    `TokenCrossentropy`.

    Args:
        reduction: see `TokenCrossentropy`.
        name: name of the loss.

    Example:
        >>> original = keras.ops.array([[7, 8]])
        >>> judged = keras.ops.array([[[0.0, 7.0], [99.0, 9.0]]])  # a logit, and the token seen
        >>> round(float(ReplacedTokenCrossentropy()(original, judged)), 4)
        0.3466
    """

    def __init__(
        self,
        *,
        reduction: str | None = "mean_with_sample_weight",
        name: str = "replaced_token_crossentropy",
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype="float32")  # it holds token ids

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Returns (batch, length) from ids (batch, length) and judgements (batch, length, 2)."""
        labels, logits = replaced_labels_and_logits(y_true, y_pred)
        return ops.softplus(logits) - labels * logits


def replaced_labels_and_logits(original_ids: Tensor, judged: Tensor) -> tuple[Tensor, Tensor]:
    """Returns what an ELECTRA discriminator should have said of each token, and what it said.

    Args:
        original_ids: the tokens of the text, integers (batch, length).
        judged: float32 (batch, length, 2): the logit that a token was replaced, and the token that
            the discriminator saw; see `heads.electra_pretrainer`.

    Returns:
        1 for replaced tokens, 0 for others, float32; and the logits: each (batch, length).
    """
    logits, seen = judged[..., 0], judged[..., 1]
    return ops.cast(ops.not_equal(ops.cast(original_ids, seen.dtype), seen), "float32"), logits


@keras.saving.register_keras_serializable(_PACKAGE)
class ElementwiseLoss(keras.losses.Loss):
    """Another loss of each element, so that each can have a sample weight of its own.

    Keras' binary cross-entropy and errors are means over the last axis: of texts with several
    labels, or of a batch of numbers (batch,), whose sample weights would have no effect.

    Args:
        loss: a loss whose `call` averages over the last axis.
        reduction: see Keras.
        name: name of the loss.

    Example:
        >>> loss = ElementwiseLoss(keras.losses.MeanSquaredError())
        >>> numbers = keras.ops.array([0.0, 0.0]), keras.ops.array([1.0, 3.0])
        >>> loss.call(*numbers).numpy()
        array([1., 9.], dtype=float32)
    """

    def __init__(
        self,
        loss: keras.losses.Loss,
        *,
        reduction: str | None = "mean_with_sample_weight",
        name: str = "elementwise_loss",
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype="float32")
        self.loss = keras.losses.get(loss)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Returns the loss of each element of targets and outputs (...)."""
        return self.loss.call(ops.expand_dims(y_true, -1), ops.expand_dims(y_pred, -1))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {"loss": keras.losses.serialize(self.loss)}


def divide_by_weights(model: keras.Model) -> None:
    """Makes the losses of a compiled model the mean by weight: sum(weight * loss) / sum(weight).

    Keras' losses divide by the number of values by default, so that examples of small weight would
    also make the step smaller. As in PyTorch's weighted losses, only the proportions of the weights
    count here, and a loss compares with one without weights.
    """
    for loss in keras.tree.flatten(model.loss):
        if isinstance(loss, keras.losses.Loss) and loss.reduction == "sum_over_batch_size":
            loss.reduction = "mean_with_sample_weight"


def _check_label_smoothing(label_smoothing: float) -> None:
    if not 0.0 <= label_smoothing < 1.0:
        raise ValueError(
            f"label_smoothing is {label_smoothing}, must be from 0 to below 1 (the paper: 0.1)"
        )
