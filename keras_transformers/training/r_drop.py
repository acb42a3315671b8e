"""R-Drop: two passes with different dropout should predict the same.

Liang et al. 2021, "R-Drop: Regularized Dropout for Neural Networks", arXiv:2106.14448.
`distributed.prepare` trains a model this way.
"""

from collections.abc import Mapping

import keras
from keras import ops

from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.training.losses import TokenCrossentropy

__all__ = ["r_drop_loss", "symmetric_divergence"]


def r_drop_loss(
    loss: keras.losses.Loss, targets: Tensor, first: Tensor, second: Tensor, weight: float
) -> Tensor:
    """Returns half of the paper's loss, so that with `weight` 0 it is the mean of both passes.

        (L(first) + L(second)) / 2 + weight / 4 * (KL(first || second) + KL(second || first))

    Args:
        loss: a `TokenCrossentropy`.
        targets: ids of shape (batch, ...).
        first: the logits of one pass, (batch, ..., V).
        second: those of the other.
        weight: the paper's alpha: 5 for translation, 0.1 to 1 for fine-tuning.

    Returns:
        float32 (batch, ...).

    Example:
        >>> logits, targets = keras.ops.zeros((1, 2)), keras.ops.array([1])
        >>> loss = r_drop_loss(TokenCrossentropy(), targets, logits, logits, 5.0)
        >>> round(float(loss[0]), 4)
        0.6931
    """
    passes = (loss.call(targets, first) + loss.call(targets, second)) / 2
    return passes + weight / 4 * symmetric_divergence(first, second)


def symmetric_divergence(first: Tensor, second: Tensor) -> Tensor:
    """Returns KL(p || q) + KL(q || p) of the distributions p and q with these logits, in nats.

    The gradient is written by hand, for the reason that `losses` gives.

    Args:
        first: (..., V), any float type; computed in float32.
        second: of the same shape.

    Returns:
        float32 (...). There is no second derivative.

    Example:
        >>> round(float(symmetric_divergence([[0.0, 1.0]], [[1.0, 0.0]])[0]), 4)
        0.9242
    """

    @ops.custom_gradient
    def divergence(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        p, q = ops.softmax(first, axis=-1), ops.softmax(second, axis=-1)
        gap = first - second
        # The logarithms of the sums cancel, because p - q sums to 0.
        under_p = ops.sum(p * gap, axis=-1, keepdims=True)
        under_q = ops.sum(q * gap, axis=-1, keepdims=True)

        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
            upstream = ops.expand_dims(upstream, -1)
            of_first = upstream * (p * (gap - (under_p - 1.0)) - q)
            of_second = upstream * (q * ((under_q + 1.0) - gap) - p)
            return of_first, of_second

        return ops.squeeze(under_p - under_q, axis=-1), gradient

    return divergence(ops.cast(first, "float32"), ops.cast(second, "float32"))


def check_losses(losses: Mapping[str, keras.losses.Loss]) -> None:
    """Checks that R-Drop knows these losses.

    Raises:
        ValueError: one is not a `TokenCrossentropy`.
    """
    for name, loss in losses.items():
        if not isinstance(loss, TokenCrossentropy):
            raise ValueError(
                f"r_drop compares predicted distributions, but the loss of {name!r} is "
                f"{type(loss).__name__}: train with TokenCrossentropy, or with r_drop=0"
            )
