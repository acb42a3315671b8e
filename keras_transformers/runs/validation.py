"""Evaluates a model after each epoch in ways that Keras cannot."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import keras
import numpy as np

from keras_transformers.data.batching import Batches
from keras_transformers.evaluation.bleu import BleuTokenizer, corpus_bleu

__all__ = ["Validation", "ValidationBleu", "outputs_of"]


def outputs_of(
    model: keras.Model, batches: Batches, *, meter: keras.Model | None = None
) -> Iterator[Any]:
    """Yields the model's outputs for each batch, as NumPy arrays.

    Args:
        model: called with its current weights.
        batches: one pass in order, as returned by `Batches.of`.
        meter: a compiled model that takes outputs and returns them: its metrics compare the outputs
            with the targets, which are ignored without it.
    """
    num_left = batches.num_rows  # further rows only complete the last batch
    for batch in batches.dataset():
        inputs, targets, weights = keras.utils.unpack_x_y_sample_weight(batch)
        outputs = model.predict_on_batch(inputs)
        if meter is not None:
            meter.test_step((outputs, targets, weights))  # unlike test_on_batch, it resets nothing
        yield keras.tree.map_structure(lambda rows, most=num_left: rows[:most], outputs)
        num_left -= len(keras.tree.flatten(outputs)[0])


class Validation(keras.callbacks.Callback):
    """Adds figures to the logs of each epoch, prefixed with `val_`.

    Put it before the callbacks that use them.

    Args:
        score: measures the model with its current weights; returns figure -> value.
        every: epochs between calls; in between, the last figures are repeated.
        monitor: the figure in the logs that other callbacks follow.
        until_measured: its value before the first measurement.
    """

    def __init__(
        self,
        score: Callable[[], Mapping[str, float]],
        *,
        every: int = 1,
        monitor: str | None = None,
        until_measured: float = 0.0,
    ) -> None:
        super().__init__()
        if every < 1:
            raise ValueError(f"every={every}: must be 1 epoch or more")
        self.score = score
        self.every = every
        self.monitor = monitor
        self.until_measured = until_measured
        self._last: dict[str, float] = {}

    def state(self) -> list[np.ndarray]:
        """Returns the last figures, for `runs.resume`."""
        return [np.array(list(self._last)), np.array(list(self._last.values()))]

    def load_state(self, arrays: Sequence[np.ndarray]) -> None:
        """Restores the result of `state`."""
        names, values = arrays
        self._last = dict(zip(names.tolist(), values.tolist(), strict=True))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Measures if it is due, and adds the figures to the logs."""
        if (epoch + 1) % self.every == 0:
            self._last = {f"val_{name}": float(value) for name, value in self.score().items()}
        if logs is not None:
            if self.monitor is not None and not self._last:
                logs.setdefault(self.monitor, self.until_measured)
            logs |= self._last


class _Translator(Protocol):
    def translate_all(self, texts: Sequence[str]) -> Sequence[str]:
        """Returns the translations of texts."""


class ValidationBleu:
    """Measures BLEU on a validation set; a `score` for `Run.prepare`.

    Args:
        pairs: (source, reference) texts.
        translator: a `pipelines.Translator` of the model, called with its current weights.
        tokenize: see `evaluation.corpus_bleu`.
    """

    def __init__(
        self,
        pairs: Sequence[tuple[str, str]],
        translator: _Translator,
        *,
        tokenize: BleuTokenizer | None = None,
    ) -> None:
        self._sources, self._references = zip(*pairs, strict=True)
        self._translator = translator
        self._tokenize: BleuTokenizer | None = tokenize

    def __call__(self) -> dict[str, float]:
        """Returns `bleu`: cased, 0 to 100."""
        translations = self._translator.translate_all(self._sources)
        return {"bleu": corpus_bleu(translations, self._references, tokenize=self._tokenize).score}
