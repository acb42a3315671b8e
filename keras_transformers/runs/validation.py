"""Measuring a model after each epoch of its training in ways that Keras does not know."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.data.batching import Batches
from keras_transformers.evaluation.bleu import corpus_bleu
from keras_transformers.inspection import attention_pictures

__all__ = ["Validation", "ValidationBleu", "outputs_of"]


def outputs_of(model: keras.Model, batches: Batches) -> Iterator[Any]:
    """Yields the model's outputs for each batch, as NumPy arrays.

    Args:
        model: with the weights of the moment.
        batches: one pass in order, as `Batches.of` makes them; their targets are ignored.
    """
    for batch in batches.dataset():
        inputs, *_ = keras.utils.unpack_x_y_sample_weight(batch)
        yield model.predict_on_batch(inputs)


class Validation(keras.callbacks.Callback):
    """Adds figures to the logs of each epoch, under `val_` and their names.

    Put it before the callbacks that use them.

    Args:
        score: measures the model with the weights of the moment: figure -> value.
        every: epochs between calls; the others repeat the last figures.
        monitor: the figure in the logs that other callbacks go by: 0 until it is measured.
    """

    def __init__(
        self,
        score: Callable[[], Mapping[str, float]],
        *,
        every: int = 1,
        monitor: str | None = None,
    ) -> None:
        super().__init__()
        if every < 1:
            raise ValueError(f"every={every}: measure after 1 epoch or more")
        self.score = score
        self.every = every
        self.monitor = monitor
        self._last: dict[str, float] = {}

    def state(self) -> list[np.ndarray]:
        """The last figures, for `runs.resume`."""
        return [np.array(list(self._last)), np.array(list(self._last.values()))]

    def load_state(self, arrays: Sequence[np.ndarray]) -> None:
        """Restores what `state` returned."""
        names, values = arrays
        self._last = dict(zip(names.tolist(), values.tolist(), strict=True))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Measures and logs."""
        if (epoch + 1) % self.every == 0:
            self._last = {f"val_{name}": float(value) for name, value in self.score().items()}
        if logs is not None:
            if self.monitor is not None and not self._last:
                logs.setdefault(self.monitor, 0.0)
            logs |= self._last


class ValidationBleu:
    """Translates a validation set: the `score` of `Run.fit_arguments` for translation.

    Each call measures the model with the weights of the moment, and writes samples for TensorBoard
    to `tensorboard/samples` in the run's folder.

    Args:
        run: the `Run`.
        pairs: (source, reference) texts.
        translator: a `pipelines.Translator` of the model.
        num_samples: the first so many pairs are samples.
    """

    def __init__(
        self, run: Any, pairs: Sequence[tuple[str, str]], translator: Any, *, num_samples: int = 5
    ) -> None:
        self._run = run
        self._sources, self._references = zip(*pairs, strict=True)
        self._translator = translator
        self._num_samples = num_samples
        self._writer = tf.summary.create_file_writer(str(run.folder / "tensorboard" / "samples"))

    def __call__(self) -> dict[str, float]:
        """`bleu`, cased, 0 to 100."""
        translations = self._translator.translate_all(self._sources)
        self._write_samples(translations)
        return {"bleu": corpus_bleu(translations, self._references).score}

    def _write_samples(self, translations: Sequence[str]) -> None:
        sources, references, translations = (
            column[: self._num_samples]
            for column in (self._sources, self._references, translations)
        )
        rows = [
            [cell.replace("|", "/") for cell in row]
            for row in zip(sources, references, translations, strict=True)
        ]
        table = ["| source | reference | translation |", "|---|---|---|"]
        table += [f"| {' | '.join(row)} |" for row in rows]
        # Keras' TensorBoard callback lets nothing be recorded between its own steps.
        with self._writer.as_default(self._run.position.epoch), tf.summary.record_if(True):
            tf.summary.text("translations", "\n".join(table))
            if self._translator.has_attention:
                pictures = attention_pictures(**self._translator.attend(sources, translations))
                tf.summary.image("attention", pictures, max_outputs=len(rows))
        self._writer.flush()
