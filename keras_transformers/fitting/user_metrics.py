"""Adds a user's metrics to those of a task."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import keras

__all__: list[str] = []

Metric: TypeAlias = keras.metrics.Metric | str
Metrics: TypeAlias = Metric | Sequence[Metric] | Mapping[str, Metric | Sequence[Metric]] | None


def all_metrics(
    of_task: Mapping[str, Any] | None, metrics: Metrics, outputs: Sequence[str]
) -> Mapping[str, Any] | None:
    """Returns `weighted_metrics` for `compile`: a task's metrics and a user's.

    Args:
        of_task: the task's metrics by output, or None.
        metrics: the user's, of the only output, or by output.
        outputs: the outputs with a loss.

    Raises:
        TypeError: something among the metrics is none.
        ValueError: a metric is of an unknown output, of one of several that is not named, or has
            another's name.
    """
    if not metrics:
        return of_task
    if not isinstance(metrics, Mapping):
        if len(outputs) > 1:
            raise ValueError(
                f"metrics={metrics!r:.80}: the model has the outputs {', '.join(outputs)}: pass a "
                f"mapping such as metrics={{{outputs[0]!r}: [...]}}"
            )
        metrics = {outputs[0]: metrics}
    merged = {name: list(of) for name, of in (of_task or {}).items()}
    for output, value in metrics.items():
        if output not in outputs:
            raise ValueError(f"metrics has the output {output!r}: use one of {', '.join(outputs)}")
        several = isinstance(value, Sequence) and not isinstance(value, str)
        for metric in value if several else [value]:
            if not isinstance(metric, keras.metrics.Metric | str):
                raise TypeError(
                    f"metrics: {metric!r:.80} is none: pass objects such as "
                    "keras.metrics.AUC(from_logits=True), or their names"
                )
            merged.setdefault(output, []).append(metric)
        names = [metric if isinstance(metric, str) else metric.name for metric in merged[output]]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"metrics: two of {output!r} are named {twice[0]!r}: pass name=...")
    return merged
