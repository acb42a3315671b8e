"""Optimizers set up as the papers set them."""

from typing import Any

import keras

# Biases, and the gains and shifts of normalizations. `exclude_from_weight_decay` searches these in
# the name that its backend gives a variable: "gamma" on JAX, "encoder/norm/gamma:0" on TensorFlow.
_NOT_DECAYED = (r"bias(:0)?$", r"(^|/)(gamma|beta|scale)(:0)?$")


@keras.saving.register_keras_serializable(package="keras_transformers")
class AdamW(keras.optimizers.AdamW):
    """`keras.optimizers.AdamW`, its arguments and defaults, that never decays biases and norms.

    Keras forgets `exclude_from_weight_decay` when an optimizer is saved and loaded: a training
    that goes on from a `.keras` file would then decay everything. This class does not.
    """

    def build(self, variables: list[Any]) -> None:
        """Creates the moments of `variables`."""
        if not self.built:
            self.exclude_from_weight_decay(var_names=list(_NOT_DECAYED))
        super().build(variables)


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
    if clip_norm is not None and clip_norm <= 0:
        raise ValueError(f"clip_norm is {clip_norm}, must be above 0, or None for no clipping")
    return AdamW(
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        beta_1=beta_1,
        beta_2=beta_2,
        epsilon=epsilon,
        global_clipnorm=clip_norm,
    )
