"""Trains image classifiers: images with one label each."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.data.bad_rows import check_rows
from keras_transformers.data.images import ImageAugmentation, ImageBatches, Images, load_folder
from keras_transformers.data.images.labelled_images import troubles_of
from keras_transformers.data.tables.in_memory import LABEL, Wanted
from keras_transformers.evaluation.reports.classification import (
    CLASSIFICATION_FIGURES,
    classification_report,
)
from keras_transformers.evaluation.reports.report import Report
from keras_transformers.evaluation.temperature import softmax
from keras_transformers.models.anatomy import anatomy
from keras_transformers.ranges import NonNegativeFloat, PositiveInt, Rate
from keras_transformers.runs.fine_tuning import LabelTraining
from keras_transformers.tasks import text_columns
from keras_transformers.tasks.image_classification.pipeline import ImageClassifier
from keras_transformers.tasks.labels import LabelColumn
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.training import Answers, Columns, Trainer, check_column_names
from keras_transformers.training import WarmupCosineDecay

__all__ = ["ImageClassificationOptions"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageClassificationOptions(ImageAugmentation, LabelTraining):
    """How image classifiers are trained: as ViT, on as many images as our sizes need."""

    epochs: PositiveInt = 60
    weight_decay: NonNegativeFloat = 0.05
    dropout: Rate = 0.0  # in the encoder and before the classifier
    label_smoothing: Rate = 0.1  # share of the target spread evenly over the labels

    rate: ClassVar[float] = 1e-4
    medium_rate: ClassVar[float] = 1e-4
    small_rate: ClassVar[float] = 3e-3

    def batching(self) -> dict[str, Any]:
        """Returns the options for the training batches."""
        return {**super().batching(), "augmentation": self.augmentation()}

    def schedule(
        self, model: keras.Model, steps_per_epoch: int
    ) -> keras.optimizers.schedules.LearningRateSchedule:
        """Returns a warm-up, then half a cosine to 0 after the last update."""
        return WarmupCosineDecay(**self.course(model, steps_per_epoch))


def _examples(pipeline: Any, columns: Columns, source: Source) -> Images:
    ids = _ids(columns["label"], pipeline.labels)
    images = columns["image"]
    if all(isinstance(image, str | Path) for image in images):
        paths = np.array([str(path) for path in images], object)
        troubles = troubles_of(paths, pipeline.decoder)
        check_rows(str(source), {row: f"{paths[row]} {why}" for row, why in troubles.items()})
        return Images(paths, ids, pipeline.labels, str(source), pipeline.decoder)
    size, channels = pipeline.decoder.image_size, pipeline.decoder.num_channels
    pixels = np.zeros((len(images), *size, channels), np.uint8)
    reasons = {}
    for row, image in enumerate(images):
        try:
            pixels[row] = _pixels(image, pixels.shape[1:])
        except ValueError as error:
            reasons[row] = str(error)
    check_rows(str(source), reasons)
    return Images(pixels, ids, pipeline.labels, str(source))


def _pixels(image: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Returns an image as an array; ValueError if it does not fit the model."""
    try:
        array = np.asarray(image)
    except ValueError:  # rows of several lengths
        array = np.array(None)
    if array.ndim == 2:
        array = array[..., None]
    if array.shape != shape or array.dtype.kind not in "buif":
        raise ValueError(
            f"an image of shape {array.shape}, expected {shape}, the model's, with values from 0 "
            "to 255: resize it, or pass the paths of PNG or JPEG files"
        )
    # The first comparison is also false for NaN.
    in_range = array.min() >= 0 and array.max() <= 255
    if not in_range or (array.dtype.kind == "f" and array.max() <= 1):
        raise ValueError(f"pixels from {array.min()} to {array.max()}, expected 0 to 255")
    return array


def _ids(names: Sequence[str], labels: Sequence[str]) -> np.ndarray:
    return np.array([labels.index(name) for name in names], np.int32)


class ImageClassificationTrainer(Trainer[ImageClassifier, Images]):
    """Trains image classifiers."""

    options = ImageClassificationOptions
    labels = LabelColumn()
    takes_weights = True
    report_figures = CLASSIFICATION_FIGURES

    def columns(self, pipeline: ImageClassifier) -> Sequence[Wanted]:
        return [Wanted("image", ("images", "img")), Wanted("label", LABEL)]

    def from_columns(self, pipeline: ImageClassifier, columns: Columns, source: Source) -> Images:
        return _examples(pipeline, columns, source)

    def from_file(
        self, pipeline: ImageClassifier, path: Path, columns: Mapping[str, str]
    ) -> Images:
        """Reads a folder of classes."""
        check_column_names(columns, path, ())
        images = load_folder(path, pipeline.decoder)
        names = [images.label_names[label] for label in images.labels]
        (names,) = self.labels.as_names(pipeline, [(Source(str(path)), names)])
        ids = _ids(names, pipeline.labels)
        return Images(images.items, ids, pipeline.labels, str(path), pipeline.decoder)

    def batches(self, examples: Images, pipeline: ImageClassifier, **options: Any) -> ImageBatches:
        if not options.get("shuffle", True):  # for measuring
            options.pop("augmentation", None)
        length = anatomy(pipeline.model).max_sequence_length
        return ImageBatches(examples, mean_length=length or 1, **options)

    def losses(
        self, pipeline: ImageClassifier, examples: Images, options: ImageClassificationOptions
    ) -> Mapping[str, Any]:
        crossentropy = keras.losses.CategoricalCrossentropy(
            from_logits=True, label_smoothing=options.label_smoothing
        )
        return {"loss": {"logits": crossentropy}}

    def metrics(self, pipeline: ImageClassifier) -> Mapping[str, Any]:
        return {"logits": [keras.metrics.CategoricalAccuracy(name="accuracy")]}

    def answers(
        self,
        pipeline: ImageClassifier,
        batches: ImageBatches,
        examples: Images,
        outputs: Iterable[Any],
    ) -> Answers:
        logits = text_columns.logits_of(outputs)
        return {"probabilities": softmax(logits, pipeline.temperature)}

    def logits(
        self,
        pipeline: ImageClassifier,
        batches: ImageBatches,
        examples: Images,
        outputs: Iterable[Any],
    ) -> tuple[np.ndarray, np.ndarray]:
        return text_columns.logits_of(outputs), examples.labels

    def inputs(self, examples: Images) -> Mapping[str, Sequence[Any]]:
        if examples.decoder is not None:
            return {"image_bytes": [Path(path).read_bytes() for path in examples.items]}
        return {"image_bytes": [tf.io.encode_png(pixels).numpy() for pixels in examples.items]}

    def report(self, pipeline: Any, answers: Answers, examples: Images) -> Report:
        paths = None if examples.decoder is None else [str(item) for item in examples.items]
        return classification_report(
            answers["probabilities"],
            examples.labels,
            examples.label_names,
            texts=paths,
            temperature=pipeline.temperature,
            abstain_below=pipeline.abstain_below,
            title=pipeline.task,
        )

    def baseline(self, pipeline: ImageClassifier, examples: Images) -> Mapping[str, float]:
        return {"majority": examples.majority_share}

    def split(self, examples: Images, share: float) -> tuple[Images, Images]:
        return examples.split(share, seed=0)


TRAINER = ImageClassificationTrainer()
