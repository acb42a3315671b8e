"""Optimizers set up as the papers set them."""

from typing import Any

import keras
from keras import ops

from keras_transformers.private_api import NoSeparateWeightDecay, decays_weight, moments

__all__ = ["adam", "adamw", "lamb"]

_PACKAGE = "keras_transformers"
# Biases, and the gains and shifts of normalizations. `exclude_from_weight_decay` searches these in
# the name that its backend gives a variable: "gamma" on JAX, "encoder/norm/gamma:0" on TensorFlow.
_NOT_DECAYED = (r"bias(:0)?$", r"(^|/)(gamma|beta|scale)(:0)?$")


class _SumsRepeatedRows(keras.optimizers.Optimizer):
    """Sums the gradients of an embedding's row that was looked up repeatedly, then uses them."""

    def apply(self, grads: list[Any], trainable_variables: list[Any] | None = None) -> None:
        """Updates the variables by their gradients."""
        super().apply([_dense(gradient) for gradient in grads], trainable_variables)


class _SparesBiasesAndNorms(_SumsRepeatedRows):
    """Never decays biases and norms.

    Keras forgets `exclude_from_weight_decay` when an optimizer is saved and loaded: a training
    that continues from a `.keras` file would then decay everything. This class does not.
    """

    def build(self, variables: list[Any]) -> None:
        """Creates the moments of `variables`."""
        if not self.built:
            self.exclude_from_weight_decay(var_names=list(_NOT_DECAYED))
        super().build(variables)


class _OneKernelAdam(keras.optimizers.Adam):
    """Adam's step by TensorFlow's own kernel: one pass over the memory where Keras makes ten.

    On other backends, and for AMSGrad, it is Keras' step; the formula is the same.
    """

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
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
            # Inside `update` of a strategy the handle is that of this replica's copy.
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
    """`keras.optimizers.Adam`, its arguments and defaults, right for embeddings too."""


@keras.saving.register_keras_serializable(package=_PACKAGE)
class AdamW(_SparesBiasesAndNorms, _OneKernelAdam, keras.optimizers.AdamW):
    """`keras.optimizers.AdamW`, its arguments and defaults, that never decays biases and norms."""


@keras.saving.register_keras_serializable(package=_PACKAGE)
class Lamb(_SparesBiasesAndNorms, NoSeparateWeightDecay, keras.optimizers.Lamb):
    """`keras.optimizers.Lamb`, its arguments and defaults, with the paper's weight decay.

    Keras takes the decay off the weights before the step, so that the ratio of norms knows nothing
    of it and does not scale it; in the paper it is part of the update whose norm is measured.
    Biases and norms have neither decay nor ratio, as in the authors' code. See `lamb`.
    """

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
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
    """Adam with the Transformer's defaults (Vaswani et al. 2017, section 5.3).

    Args:
        learning_rate: a figure or a schedule.
        beta_1: decay of the gradient's average.
        beta_2: decay of the squared gradient's average.
        epsilon: added to the root of the squared gradient's average.
        clip_norm: scales all gradients together so that their norm is at most this; None does not.
        ema: momentum of an exponential moving average of the weights, to be put into the model by
            `keras.callbacks.SwapEMAWeights`; None keeps none.

    Raises:
        ValueError: `clip_norm` is not above 0; Keras would turn the gradients round.
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
    """AdamW with BERT's defaults: no decay on biases and norms, gradients clipped by global norm.

    Loshchilov & Hutter 2019; Devlin et al. 2019, appendix A.2. With t the update from 1, g the
    clipped gradient and w a weight, in this order:

        w <- w - learning_rate * weight_decay * w        (not biases, not norms)
        m <- m + (1 - beta_1) * (g - m);  v <- v + (1 - beta_2) * (g^2 - v)
        w <- w - learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t) * m / (sqrt(v) + epsilon)

    Google's BERT code leaves the two bias corrections out; the paper's Adam has them.

    Args:
        learning_rate: a figure or a schedule.
        weight_decay: share of a weight taken off each update, times the learning rate.
        beta_1: decay of the gradient's average.
        beta_2: decay of the squared gradient's average.
        epsilon: added to the root of the squared gradient's average.
        clip_norm: scales all gradients together so that their norm is at most this; None does not.

    Raises:
        ValueError: `clip_norm` is not above 0; Keras would turn the gradients round.
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
    """LAMB, for pretraining BERT with large batches: each matrix moves in proportion to its norm.

    You et al. 2020, "Large Batch Optimization for Deep Learning", arXiv:1904.00962, algorithm 2,
    with phi(z) = z. With t the update from 1, g the clipped gradient and w a variable:

        m <- m + (1 - beta_1) * (g - m);  v <- v + (1 - beta_2) * (g^2 - v)
        u  = m / (1 - beta_1^t) / (sqrt(v / (1 - beta_2^t)) + epsilon) + weight_decay * w
        w <- w - learning_rate * norm(w) / norm(u) * u

    Where a norm is 0 the ratio is 1. Biases and norms have no weight decay and the ratio 1, as in
    the authors' code (`exclude_from_layer_adaptation`, by default what is not decayed): that is
    Adam. The learning rate is a share of a matrix's norm, hence larger than AdamW's: in the paper
    0.005 for 32,768 sequences an update, and scaled by the root of their number for others.

    Args:
        learning_rate: a figure or a schedule.
        weight_decay: lambda: how much of a weight is part of its update.
        beta_1: decay of the gradient's average.
        beta_2: decay of the squared gradient's average.
        epsilon: added to the root of the squared gradient's average.
        clip_norm: scales all gradients together so that their norm is at most this; None does not.

    Raises:
        ValueError: `clip_norm` is not above 0; Keras would turn the gradients round.
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


def _trust_ratio(variable: Any, update: Any) -> Any:
    """norm(variable) / norm(update), a scalar; 1 where either is 0."""
    variable_norm, update_norm = (ops.sqrt(ops.sum(ops.square(x))) for x in (variable, update))
    defined = ops.logical_and(variable_norm > 0, update_norm > 0)
    return ops.where(defined, variable_norm / ops.where(defined, update_norm, 1.0), 1.0)


def _dense(gradient: Any) -> Any:
    """The gradient as one array.

    TensorFlow gives that of an embedding as `tf.IndexedSlices`, a slice for each id looked up, and
    Keras squares the slices, for the norm to clip by and for the second moments, before it sums
    those of the same id.
    """
    if gradient is None or keras.backend.backend() != "tensorflow":
        return gradient
    import tensorflow as tf

    return tf.convert_to_tensor(gradient)


def _check_clip_norm(clip_norm: float | None) -> None:
    if clip_norm is not None and clip_norm <= 0:
        raise ValueError(f"clip_norm is {clip_norm}, must be above 0, or None for no clipping")
