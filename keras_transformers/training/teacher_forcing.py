"""Scheduled sampling: how often a decoder in training is fed the target's previous token."""

import math
from collections.abc import Mapping
from typing import Literal

import keras

__all__ = ["TeacherForcingSchedule"]

ForcingDecay = Literal["constant", "linear", "inverse_sigmoid"]
_DECAYS = ("constant", "linear", "inverse_sigmoid")


class TeacherForcingSchedule(keras.callbacks.Callback):
    """Sets a model's teacher forcing ratio before each update (Bengio et al. 2015, section 2.4).

    The ratio is the probability that a step of the decoder is fed the target's token; otherwise it
    is fed the model's likeliest token. It depends only on the optimizer's number of updates, so a
    resumed run continues with the right ratio.

    At update i of `total_steps`, from 0:

    - "constant": the final ratio.
    - "linear": from 1 to the final ratio.
    - "inverse_sigmoid": the paper's k / (k + exp(i / k)), scaled to end at the final ratio. k is
      chosen so that half of the way is done after half of the updates, k ln k = total_steps / 2.
      The curve therefore starts slightly below 1, at k / (k + 1) of the way.

    The last two keep the final ratio after `total_steps`. A model that is always fed the target's
    tokens needs no schedule: built with the ratio 1, it trains on the fast path.

    Args:
        decay: "constant", "linear" or "inverse_sigmoid".
        final_ratio: the ratio at the end, 0 to 1.
        total_steps: updates until the final ratio is reached; ignored for "constant".

    Raises:
        ValueError: the decay is unknown, the ratio is outside [0, 1], or there are no steps; or,
            when training starts, the model has no ratio to set.

    Example:
        >>> schedule = TeacherForcingSchedule("linear", final_ratio=0.5, total_steps=100)
        >>> [schedule.ratio(step) for step in (0, 50, 100, 1000)]
        [1.0, 0.75, 0.5, 0.5]
    """

    def __init__(self, decay: ForcingDecay, *, final_ratio: float, total_steps: int) -> None:
        super().__init__()
        if decay not in _DECAYS:
            raise ValueError(f"decay={decay!r} is unknown: take {', '.join(map(repr, _DECAYS))}")
        if not 0.0 <= final_ratio <= 1.0:
            raise ValueError(
                f"final_ratio={final_ratio} is not a ratio: give 1 to always feed the target's "
                "tokens, 0 to always feed the model's own, or a number in between"
            )
        if total_steps < 1:
            raise ValueError(f"total_steps is {total_steps}, must be 1 or more")
        self.decay = decay
        self.final_ratio = final_ratio
        self.total_steps = total_steps
        self._k = _solve_k(total_steps / 2)

    def ratio(self, step: int) -> float:
        """Returns the ratio for the update after `step` updates."""
        done = min(step / self.total_steps, 1.0)
        left = {
            "constant": 0.0,
            "linear": 1.0 - done,
            "inverse_sigmoid": self._k / (self._k + math.exp(done * self.total_steps / self._k)),
        }[self.decay]
        if done == 1.0:
            left = 0.0
        return self.final_ratio + (1.0 - self.final_ratio) * left

    def on_train_begin(self, logs: Mapping[str, float] | None = None) -> None:
        """Checks that the model has a ratio."""
        if getattr(self.model, "teacher_forcing", None) is None:
            raise ValueError(
                f"model {self.model.name!r} has no teacher forcing ratio to set: build it with a "
                "ratio below 1, such as teacher_forcing=0.5"
            )

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        """Sets the ratio."""
        self.model.teacher_forcing.assign(self.ratio(int(self.model.optimizer.iterations.numpy())))

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Logs the ratio of the epoch's last update as `teacher_forcing`."""
        if logs is not None:
            logs["teacher_forcing"] = float(self.model.teacher_forcing)


def _solve_k(half: float) -> float:
    """Returns the k above 1 with k ln k = half, by Newton's method on ln k."""
    log_k = math.log1p(half)
    for _ in range(50):  # converges in a few: convex, and the start is not too low
        excess = log_k * math.exp(log_k) - half
        log_k -= excess / (math.exp(log_k) * (1.0 + log_k))
    return math.exp(log_k)
