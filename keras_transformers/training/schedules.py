"""Learning rates that warm up and then decay, per update, for any Keras optimizer.

They count updates from 1, as the papers do: the first update, which Keras calls step 0, already
moves the weights, and update `warmup_steps` uses the peak. All figures count updates, not epochs.
"""

import math
from typing import Any, Literal

import keras
from keras import ops

from keras_transformers.dependencies.untyped import Tensor

__all__ = [
    "Decay",
    "WarmupCosineDecay",
    "WarmupInverseSqrt",
    "WarmupLinearDecay",
    "noam",
    "warmup_schedule",
]

_PACKAGE = "keras_transformers"

Decay = Literal["inverse_sqrt", "cosine", "linear"]


class _Warmup(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to a peak; subclasses decay from there."""

    def __init__(self, peak_learning_rate: float, warmup_steps: int) -> None:
        if not 0 < peak_learning_rate < math.inf:
            raise ValueError(
                f"peak_learning_rate is {peak_learning_rate}, must be above 0 and finite"
            )
        if warmup_steps < 0:
            raise ValueError(f"warmup_steps is {warmup_steps}, must be 0 or more")
        self.peak_learning_rate = float(peak_learning_rate)
        self.warmup_steps = int(warmup_steps)

    def __call__(self, step: Tensor) -> Tensor:
        """Returns the learning rate, float32, of the update after `step` updates."""
        update = ops.cast(step, "float32") + 1.0
        # Without warm-up the first update uses the peak, like the end of a warm-up of one step.
        peak_update = float(max(self.warmup_steps, 1))
        rising = self.peak_learning_rate * update / peak_update
        return ops.where(update <= peak_update, rising, self._decay(update, peak_update))

    def _decay(self, update: Tensor, peak_update: float) -> Tensor:
        """Returns the learning rate at `update`, a float32 above `peak_update`."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {"peak_learning_rate": self.peak_learning_rate, "warmup_steps": self.warmup_steps}


class _WarmupToEnd(_Warmup):
    """A decay that reaches `final_learning_rate` one update after `total_steps` and stays there."""

    def __init__(
        self,
        peak_learning_rate: float,
        *,
        warmup_steps: int,
        total_steps: int,
        final_learning_rate: float = 0.0,
    ) -> None:
        super().__init__(peak_learning_rate, warmup_steps)
        if total_steps < max(warmup_steps, 1):
            raise ValueError(
                f"total_steps is {total_steps}, must be at least 1 and at least warmup_steps, "
                f"{warmup_steps}"
            )
        if not 0 <= final_learning_rate <= peak_learning_rate:
            raise ValueError(
                f"final_learning_rate is {final_learning_rate}, must be from 0 to the peak, "
                f"{peak_learning_rate}"
            )
        self.total_steps = int(total_steps)
        self.final_learning_rate = float(final_learning_rate)

    def _decay(self, update: Tensor, peak_update: float) -> Tensor:
        done = (update - peak_update) / (self.total_steps + 1.0 - peak_update)
        left = self._left(ops.clip(done, 0.0, 1.0))
        span = self.peak_learning_rate - self.final_learning_rate
        return self.final_learning_rate + span * left

    def _left(self, done: Tensor) -> Tensor:
        """Returns the share of the decay's span that is left, 1 to 0, at a share `done` of it."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return super().get_config() | {
            "total_steps": self.total_steps,
            "final_learning_rate": self.final_learning_rate,
        }


@keras.saving.register_keras_serializable(package=_PACKAGE)
class WarmupLinearDecay(_WarmupToEnd):
    """BERT's schedule: linear warm-up, then linear decay.

    Devlin et al. 2019, appendix A.2. Google's optimization.py starts the decay at step 0, so that
    the learning rate drops a little right after the warm-up; here the decay starts from the peak.

    Example:
        >>> schedule = WarmupLinearDecay(1e-4, warmup_steps=2, total_steps=5)
        >>> [round(float(schedule(step)) * 1e5, 2) for step in range(6)]
        [5.0, 10.0, 7.5, 5.0, 2.5, 0.0]

    Args:
        peak_learning_rate: the highest learning rate, at update `warmup_steps`.
        warmup_steps: updates of linear warm-up; 0 starts at the peak.
        total_steps: number of updates, warm-up included.
        final_learning_rate: where the decay ends, one update after `total_steps`.
    """

    def _left(self, done: Tensor) -> Tensor:
        return 1.0 - done


@keras.saving.register_keras_serializable(package=_PACKAGE)
class WarmupCosineDecay(_WarmupToEnd):
    """Linear warm-up, then half a cosine (Loshchilov & Hutter 2017, without restarts).

    Example:
        >>> schedule = WarmupCosineDecay(1.0, warmup_steps=1, total_steps=4)
        >>> [round(float(schedule(step)), 2) for step in range(5)]
        [1.0, 0.85, 0.5, 0.15, 0.0]

    Args:
        peak_learning_rate: the highest learning rate, at update `warmup_steps`.
        warmup_steps: updates of linear warm-up; 0 starts at the peak.
        total_steps: number of updates, warm-up included.
        final_learning_rate: where the decay ends, one update after `total_steps`.
    """

    def _left(self, done: Tensor) -> Tensor:
        return 0.5 * (1.0 + ops.cos(math.pi * done))


@keras.saving.register_keras_serializable(package=_PACKAGE)
class WarmupInverseSqrt(_Warmup):
    """Linear warm-up, then decay with the inverse square root of the update number.

    The Transformer's schedule, given by its peak; `noam` gives it in the paper's terms.

    Example:
        >>> schedule = WarmupInverseSqrt(1.0, warmup_steps=4)
        >>> [float(schedule(step)) for step in (0, 3, 15)]
        [0.25, 1.0, 0.5]

    Args:
        peak_learning_rate: the highest learning rate, at update `warmup_steps`.
        warmup_steps: updates of linear warm-up; also the time scale of the decay.
    """

    def __init__(self, peak_learning_rate: float, *, warmup_steps: int) -> None:
        super().__init__(peak_learning_rate, warmup_steps)

    def _decay(self, update: Tensor, peak_update: float) -> Tensor:
        return self.peak_learning_rate * ops.sqrt(peak_update / update)


def noam(*, hidden_dim: int, warmup_steps: int = 4000, factor: float = 1.0) -> WarmupInverseSqrt:
    """Returns the Transformer's learning rate (Vaswani et al. 2017, section 5.3, equation 3).

        factor * hidden_dim^-0.5 * min(update^-0.5, update * warmup_steps^-1.5)

    It peaks at factor * (hidden_dim * warmup_steps)^-0.5, which is 7e-4 for the base model.

    Example:
        >>> round(noam(hidden_dim=512).peak_learning_rate, 6)
        0.000699

    Args:
        hidden_dim: the paper's d_model.
        warmup_steps: updates of linear warm-up, 1 or more.
        factor: scales the learning rate; 1 in the paper.

    Raises:
        ValueError: `hidden_dim` or `warmup_steps` is below 1.
    """
    if hidden_dim < 1 or warmup_steps < 1:
        raise ValueError(
            f"hidden_dim is {hidden_dim}, warmup_steps {warmup_steps}: both must be 1 or more"
        )
    return WarmupInverseSqrt(
        factor * (hidden_dim * warmup_steps) ** -0.5, warmup_steps=warmup_steps
    )


def warmup_schedule(
    decay: Decay, peak_learning_rate: float, *, warmup_steps: int, total_steps: int
) -> keras.optimizers.schedules.LearningRateSchedule:
    """Returns a schedule by name.

    Args:
        decay: "inverse_sqrt" (the Transformer's, without an end), "cosine" or "linear".
        peak_learning_rate: the highest learning rate.
        warmup_steps: updates of linear warm-up.
        total_steps: number of updates; ignored for "inverse_sqrt".

    Raises:
        ValueError: the name is unknown, or a number is out of range.
    """
    if decay == "inverse_sqrt":
        return WarmupInverseSqrt(peak_learning_rate, warmup_steps=warmup_steps)
    to_end: dict[str, type[_WarmupToEnd]] = {
        "cosine": WarmupCosineDecay,
        "linear": WarmupLinearDecay,
    }
    if decay not in to_end:
        raise ValueError(f"decay={decay!r} is unknown: take 'inverse_sqrt', 'cosine' or 'linear'")
    return to_end[decay](peak_learning_rate, warmup_steps=warmup_steps, total_steps=total_steps)
