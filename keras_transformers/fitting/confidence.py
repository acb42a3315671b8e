"""Fits how sure a trained pipeline's answers are, and says when it abstains."""

from typing import Any

import numpy as np

from keras_transformers.data.batching import Batches
from keras_transformers.evaluation.reports.calibration import Calibration
from keras_transformers.evaluation.temperature import best_temperature, log_loss, softmax
from keras_transformers.runs import Confidence, outputs_of
from keras_transformers.tasks.pipeline import Pipeline
from keras_transformers.tasks.task import trainer_of

__all__ = ["set_confidence"]


def set_confidence(
    pipeline: Pipeline, batches: Batches, examples: Any, options: Confidence
) -> dict[str, float]:
    """Sets a trained pipeline's `temperature` and `abstain_below` as the options say.

    The temperature has the lowest log-loss on the examples (Guo et al. 2017). Set thresholds
    afterwards, since it changes the probabilities.

    Args:
        pipeline: the pipeline, with its final weights.
        batches: batches of the examples, in order.
        examples: the validation data.
        options: those of `fit` or of a recipe.

    Returns:
        The temperature, and the expected calibration error and the log-loss on these examples, each
        also as it was without the temperature; {} without `calibrate`.

    Example:
        figures |= set_confidence(classify, batches.of(dev), dev, config)
    """
    confident: Any = pipeline
    if options.abstain_below is not None:
        confident.abstain_below = options.abstain_below
    if not options.calibrate:
        return {}
    trainer = trainer_of(pipeline)
    outputs = outputs_of(trainer.model(pipeline, examples), batches)
    logits, references = trainer.logits(pipeline, batches, examples, outputs)
    temperature = confident.temperature = best_temperature(logits, references)
    usable = ~np.isnan(logits).any(axis=1)
    logits, references = logits[usable], references[usable]
    figures = {"temperature": temperature}
    for divisor, name in ((temperature, ""), (1.0, ", uncalibrated")):
        shares = softmax(logits, divisor)
        is_right = logits.argmax(axis=1) == references
        figures[f"dev_calibration_error{name}"] = Calibration(shares.max(axis=1), is_right).error
        of_right = shares[np.arange(len(shares)), references]
        figures[f"dev_log_loss{name}"] = log_loss(of_right)
    return figures


def described(figures: dict[str, float]) -> str:
    """Returns the figures of `set_confidence` as a line."""
    error, loss = (
        f"{name} {figures[f'dev_{key}']:.4f} (was {figures[f'dev_{key}, uncalibrated']:.4f})"
        for name, key in (
            ("expected calibration error", "calibration_error"),
            ("log-loss", "log_loss"),
        )
    )
    return f"temperature {figures['temperature']:.4f}: on the validation data {error}, {loss}"
