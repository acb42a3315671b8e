"""Optimizers with the settings of the papers."""

import math

import keras
from keras import Variable, ops

from keras_transformers.dependencies.private_api import (
    NoSeparateWeightDecay,
    decays_weight,
    moments,
)
from keras_transformers.dependencies.untyped import Tensor

__all__ = ["adam", "adamw", "lamb"]

_PACKAGE = "keras_transformers"
# Biases, and the gains and shifts of normalizations. `exclude_from_weight_decay` searches for these
# in the backend's name of a variable: "gamma" on JAX, "encoder/norm/gamma:0" on TensorFlow.
_NOT_DECAYED = (r"bias(:0)?$", r"(^|/)(gamma|beta|scale)(:0)?$")


class _SumsRepeatedRows(keras.optimizers.Optimizer):
    """Sums the gradients of an embedding row that was looked up several times, then uses them."""

    def apply(self, grads: list[Tensor], trainable_variables: list[Variable] | None = None) -> None:
        """Updates the variables by their gradients."""
        super().apply([_dense(gradient) for gradient in grads], trainable_variables)


class _SparesBiasesAndNorms(_SumsRepeatedRows):
    """Never decays biases and norms.

    Keras forgets `exclude_from_weight_decay` when an optimizer is saved and loaded: training
    resumed from a `.keras` file would decay everything. This class remembers it.
    """

    def build(self, variables: list[Variable]) -> None:
        """Creates the moments of `variables`."""
        if not self.built:
            self.exclude_from_weight_decay(var_names=list(_NOT_DECAYED))
        super().build(variables)


class _OneKernelAdam(keras.optimizers.Adam):
    """Takes Adam's step in TensorFlow's kernel: one pass over the memory instead of Keras' ten.

    On other backends, and for AMSGrad, it takes Keras' step, which uses the same formula.
    """

    def update_step(self, gradient: Tensor, variable: Variable, learning_rate: Tensor) -> None:
        """Moves one variable, and its two moments."""
        if keras.backend.backend() != "tensorflow" or self.amsgrad:
            super().update_step(gradient, variable, learning_rate)
            return
        import tensorflow as tf

        dtype = variable.dtype
        m, v = moments(self, variable)
        step = ops.cast(self.iterations + 1, dtype)
        beta_1, beta_2 = ops.cast(self.beta_1, dtype), ops.cast(self.beta_2, dtype)
        tf.raw_ops.ResourceApplyAdam(
            # Inside a strategy's `update` this is the handle of the replica's copy.
            var=variable.handle,
            m=m.value.handle,
            v=v.value.handle,
            beta1_power=ops.power(beta_1, step),
            beta2_power=ops.power(beta_2, step),
            lr=ops.cast(learning_rate, dtype),
            beta1=beta_1,
            beta2=beta_2,
            epsilon=ops.cast(self.epsilon, dtype),
            grad=ops.cast(gradient, dtype),
        )


@keras.saving.register_keras_serializable(package=_PACKAGE)
class Adam(_SumsRepeatedRows, _OneKernelAdam):
    """`keras.optimizers.Adam`, with its arguments and defaults, correct for embeddings too."""


@keras.saving.register_keras_serializable(package=_PACKAGE)
class AdamW(_SparesBiasesAndNorms, _OneKernelAdam, keras.optimizers.AdamW):
    """`keras.optimizers.AdamW`, with its arguments and defaults; never decays biases and norms."""


@keras.saving.register_keras_serializable(package=_PACKAGE)
class Lamb(_SparesBiasesAndNorms, NoSeparateWeightDecay, keras.optimizers.Lamb):
    """`keras.optimizers.Lamb`, with its arguments and defaults, and the paper's weight decay.

    Keras decays the weights before the step, so the ratio of norms neither includes nor scales the
    decay; in the paper the decay is part of the update whose norm is measured. Biases and norms
    have neither decay nor ratio, as in the authors' code. See `lamb`.
    """

    def update_step(self, gradient: Tensor, variable: Variable, learning_rate: Tensor) -> None:
        """Moves one variable, and its two moments."""
        dtype = variable.dtype
        gradient = ops.cast(gradient, dtype)
        step = ops.cast(self.iterations + 1, dtype)
        m, v = moments(self, variable)
        self.assign_add(m, (gradient - m) * (1 - self.beta_1))
        self.assign_add(v, (ops.square(gradient) - v) * (1 - self.beta_2))
        m_unbiased = m / (1 - ops.power(ops.cast(self.beta_1, dtype), step))
        v_unbiased = v / (1 - ops.power(ops.cast(self.beta_2, dtype), step))
        update = m_unbiased / (ops.sqrt(v_unbiased) + self.epsilon)
        if decays_weight(self, variable):
            update = update + (self.weight_decay or 0.0) * variable
            update = update * _trust_ratio(variable, update)
        self.assign_sub(variable, ops.cast(learning_rate, dtype) * update)


def adam(
    learning_rate: float | keras.optimizers.schedules.LearningRateSchedule,
    *,
    beta_1: float = 0.9,
    beta_2: float = 0.98,
    epsilon: float = 1e-9,
    clip_norm: float | None = None,
    ema: float | None = None,
) -> Adam:
    """Returns Adam with the Transformer's defaults (Vaswani et al. 2017, section 5.3).

    Args:
        learning_rate: a number or a schedule.
        beta_1: decay rate of the gradient's average.
        beta_2: decay rate of the squared gradient's average.
        epsilon: added to the root of the squared gradient's average.
        clip_norm: the largest global norm of the gradients, which are scaled down to it; None
            leaves them alone.
        ema: the momentum of an exponential moving average of the weights, which
            `averaging.SwapAverageWeights` puts into the model; None keeps none.

    Raises:
        ValueError: `clip_norm` is not above 0; Keras would reverse the gradients.
    """
    _check_clip_norm(clip_norm)
    averaging = {} if ema is None else {"use_ema": True, "ema_momentum": ema}
    return Adam(
        learning_rate=learning_rate,
        beta_1=beta_1,
        beta_2=beta_2,
        epsilon=epsilon,
        global_clipnorm=clip_norm,
        **averaging,
    )


def adamw(
    learning_rate: float | keras.optimizers.schedules.LearningRateSchedule,
    *,
    weight_decay: float = 0.01,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-6,
    clip_norm: float | None = 1.0,
) -> AdamW:
    """Returns AdamW with BERT's defaults: no decay of biases and norms, gradients clipped by norm.

    Loshchilov & Hutter 2019; Devlin et al. 2019, appendix A.2. With t the update from 1, g the
    clipped gradient and w a weight, in this order:

        w <- w - learning_rate * weight_decay * w        (not biases, not norms)
        m <- m + (1 - beta_1) * (g - m);  v <- v + (1 - beta_2) * (g^2 - v)
        w <- w - learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t) * m / (sqrt(v) + epsilon)

    Google's BERT code omits the two bias corrections; the paper's Adam has them.

    Args:
        learning_rate: a number or a schedule.
        weight_decay: the share of a weight, times the learning rate, that each update removes.
        beta_1: see `adam`.
        beta_2: see `adam`.
        epsilon: see `adam`.
        clip_norm: see `adam`.

    Raises:
        ValueError: `clip_norm` is not above 0; Keras would reverse the gradients.
    """
    _check_clip_norm(clip_norm)
    return AdamW(
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        beta_1=beta_1,
        beta_2=beta_2,
        epsilon=epsilon,
        global_clipnorm=clip_norm,
    )


def lamb(
    learning_rate: float | keras.optimizers.schedules.LearningRateSchedule,
    *,
    weight_decay: float = 0.01,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-6,
    clip_norm: float | None = 1.0,
) -> Lamb:
    """Returns LAMB, for large batches: each matrix moves in proportion to its norm.

    You et al. 2020, "Large Batch Optimization for Deep Learning", arXiv:1904.00962, algorithm 2,
    with phi(z) = z. With t the update from 1, g the clipped gradient and w a variable:

        m <- m + (1 - beta_1) * (g - m);  v <- v + (1 - beta_2) * (g^2 - v)
        u  = m / (1 - beta_1^t) / (sqrt(v / (1 - beta_2^t)) + epsilon) + weight_decay * w
        w <- w - learning_rate * norm(w) / norm(u) * u

    If a norm is 0, the ratio is 1. Biases and norms have no weight decay and the ratio 1, as in the
    authors' code (`exclude_from_layer_adaptation`, by default what is not decayed), so they move as
    with Adam. The learning rate is relative to a matrix's norm, and so larger than AdamW's: in the
    paper 0.005 for 32,768 sequences per update, scaled by the root of their number.

    Args:
        learning_rate: a number or a schedule.
        weight_decay: the paper's lambda: the share of a weight in its update.
        beta_1: see `adam`.
        beta_2: see `adam`.
        epsilon: see `adam`.
        clip_norm: see `adam`.

    Raises:
        ValueError: `clip_norm` is not above 0; Keras would reverse the gradients.
    """
    _check_clip_norm(clip_norm)
    return Lamb(
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        beta_1=beta_1,
        beta_2=beta_2,
        epsilon=epsilon,
        global_clipnorm=clip_norm,
    )


def _trust_ratio(variable: Variable, update: Tensor) -> Tensor:
    """Returns norm(variable) / norm(update), a scalar; 1 if either is 0."""
    variable_norm, update_norm = (ops.sqrt(ops.sum(ops.square(x))) for x in (variable, update))
    defined = ops.logical_and(variable_norm > 0, update_norm > 0)
    return ops.where(defined, variable_norm / ops.where(defined, update_norm, 1.0), 1.0)


def _dense(gradient: Tensor) -> Tensor:
    """Returns the gradient as one array.

    TensorFlow returns an embedding's gradient as `tf.IndexedSlices`, with one slice per id looked
    up. Keras squares the slices, to clip by their norm and for the second moments, before it sums
    those of the same id.
    """
    if gradient is None or keras.backend.backend() != "tensorflow":
        return gradient
    import tensorflow as tf

    return tf.convert_to_tensor(gradient)


def _check_clip_norm(clip_norm: float | None) -> None:
    if clip_norm is not None and not 0 < clip_norm < math.inf:
        raise ValueError(
            f"clip_norm is {clip_norm}, must be above 0 and finite, or None for no clipping"
        )
