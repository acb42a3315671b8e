"""Shows each epoch in TensorBoard: answers, attention and histograms."""

import contextlib
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.data.batching import Batches, Samples
from keras_transformers.inspection.attention_maps import AttentionMap, attention
from keras_transformers.inspection.pictures import attention_figure, attention_picture
from keras_transformers.runs.board.attempts import Attempts
from keras_transformers.runs.board.tables import markdown_table
from keras_transformers.runs.options import Logging
from keras_transformers.tasks.pipeline import Pipeline

logger = logging.getLogger(__name__)


class EpochSummaries(keras.callbacks.Callback):
    """Writes samples, attention and histograms for TensorBoard after each epoch.

    Each epoch has its own event file. A resumed run that repeats an epoch replaces that file, so no
    epoch appears twice. Nothing here draws random numbers or changes the model, and whatever fails
    is left out with a warning.

    Args:
        folder: where to write; only this callback may use it.
        log: the options that say what to write.

    Attributes:
        source: the batches, or the pipeline, whose first examples are the samples; with None, no
            samples are written.
    """

    def __init__(self, folder: Path, log: Logging) -> None:
        super().__init__()
        self.folder = folder
        self.source: Batches | Pipeline | None = None
        self._log = log
        self._draws = log.tensorboard_attention
        self._samples: Samples | None = None
        self._attempts = Attempts()

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Chooses the samples, which may differ between the phases of a training."""
        count = max(self._log.tensorboard_samples, int(self._draws))
        self._samples = None
        if count:
            self._samples = self._attempts.at(
                "samples for TensorBoard", lambda: first_samples(self.source, count)
            )

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Writes the summaries that the options ask for."""
        if self._samples is None and not self._log.tensorboard_histograms:
            return
        self._attempts.at("summaries for TensorBoard", lambda: self._write(epoch))

    def _write(self, epoch: int) -> None:
        samples, at = self._samples, self._attempts.at
        with event_file(self.folder, f"epoch-{epoch + 1}", step=epoch):
            if samples is not None and self._log.tensorboard_samples:
                at(
                    "samples for TensorBoard",
                    lambda: tf.summary.text("samples", answers_table(samples)),
                )
            if samples is not None and self._draws:
                at("pictures for TensorBoard", lambda: self._draw(samples))
            if self._log.tensorboard_histograms:
                at("histograms for TensorBoard", self._write_histograms)

    def _write_histograms(self) -> None:
        for weight in self.model.trainable_variables:
            tf.summary.histogram(weight.path, keras.ops.convert_to_numpy(weight))

    def _draw(self, samples: Samples) -> None:
        """Draws the attention of the first sample, or warns once that there is none."""
        texts = [column[0] for column in samples.texts.values()]
        try:
            maps_by_kind = attention(samples.pipeline, *texts)
        except ValueError:
            maps_by_kind = {}  # the pipeline says that its model has no attention
        if not maps_by_kind:
            logger.warning("no pictures for TensorBoard: %s has no attention", self.model.name)
            self._draws = False
        for kind, maps in maps_by_kind.items():
            for name, pixels in pictures(maps).items():
                tf.summary.image(f"attention/{kind}, {name}", pixels[None])


def first_samples(source: Batches | Pipeline | None, count: int) -> Samples | None:
    """Returns the first examples of batches, or those that a pipeline has for its export."""
    if isinstance(source, Pipeline):
        batch = source.example_batches(None)[0]
        return Samples(source, {name: list(column[:count]) for name, column in batch.items()}, ())
    return None if source is None else source.samples(count)


def answers_table(samples: Samples) -> str:
    """Returns a Markdown table: the inputs, the expected answers if known, and the model's."""
    answers = samples.pipeline.rows(samples.texts)
    columns: dict[str, Any] = dict(samples.texts)
    if len(samples.expected):
        columns["expected"] = samples.expected
    for name in answers[0] if answers else ():
        column = [answer[name] for answer in answers]
        if not _is_whole(column):  # positions and counts are of little use to a reader
            columns[f"answer: {name}"] = column
    return markdown_table(columns)


def pictures(attention_map: AttentionMap) -> dict[str, np.ndarray]:
    """Returns pictures by title: uint8 (height, width, 3)."""
    last = attention_map.probabilities[-1].mean(axis=0)  # (queries, keys)
    figure = attention_figure(attention_map)
    figure.canvas.draw()
    return {
        "last layer": attention_picture(attention_map.keys, attention_map.queries, last),
        "all heads": np.asarray(figure.canvas.buffer_rgba())[:, :, :3].copy(),
    }


@contextlib.contextmanager
def event_file(folder: Path, name: str, *, step: int) -> Iterator[None]:
    """Makes `tf.summary` write to a file of this name, replacing an earlier one."""
    suffix = f".{name}"
    for earlier in folder.glob(f"*.tfevents.*{suffix}"):
        earlier.unlink()
    writer = tf.summary.create_file_writer(str(folder), filename_suffix=suffix)
    # Keras' TensorBoard callback turns recording off between its own steps.
    with writer.as_default(step), tf.summary.record_if(True):
        yield
    writer.close()


def _is_whole(value: object) -> bool:
    """Returns whether a value is a whole number, or a list of whole numbers."""
    if isinstance(value, list):
        return all(map(_is_whole, value))
    return isinstance(value, int) and not isinstance(value, bool)
