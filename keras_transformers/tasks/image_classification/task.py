"""Describes image classification, for `load`, `fit` and files of other libraries."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.convert.formats.weights import FoundWeights
from keras_transformers.data.tables.in_memory import Wanted
from keras_transformers.data.tables.kinds import Kind
from keras_transformers.files.errors import short_repr
from keras_transformers.tasks.classification.head import classifier
from keras_transformers.tasks.classification.table import (
    label_kinds,
    with_probabilities,
    with_probability,
)
from keras_transformers.tasks.image_classification.answer import ANSWER
from keras_transformers.tasks.image_classification.pipeline import ImageClassifier, ImageDecoder
from keras_transformers.tasks.task import Task

_SUFFIXES = (".png", ".jpg", ".jpeg")


def _of_model(
    model: keras.Model,
    labels: Sequence[str],
    *,
    decoder: ImageDecoder | None = None,
    max_pixels: int = ImageDecoder.max_pixels,
    crop_to_aspect_ratio: bool = ImageDecoder.crop_to_aspect_ratio,
    antialias: bool = ImageDecoder.antialias,
    temperature: float = 1.0,
    abstain_below: float | None = None,
) -> ImageClassifier:
    """Makes the pipeline; by default, with a decoder of the model's image size and channels."""
    height, width, channels = model.input["images"].shape[1:]
    decoder = decoder or ImageDecoder(
        (height, width), channels, max_pixels, crop_to_aspect_ratio, antialias
    )
    return ImageClassifier(
        model, decoder, labels, temperature=temperature, abstain_below=abstain_below
    )


class ImageClassificationTask(Task[ImageClassifier]):
    """Labels images."""

    name = "image_classification"
    answer = ANSWER
    pipeline = ImageClassifier
    new_head_on = "image_classification"
    needs = ("labels",)
    classes = ("ForImageClassification",)

    def head(self, encoder: keras.Model, weights: FoundWeights, num_labels: int) -> keras.Model:
        """Adds the classifier."""
        return classifier(encoder, num_labels)

    @property
    def make(self) -> Callable[..., ImageClassifier]:
        """Makes the pipeline; by default, with a decoder of the model's image size and channels."""
        return _of_model

    def prepare(self, pipeline: ImageClassifier) -> ImageClassifier:
        """Returns the pipeline; ValueError if transformers' ViT would resize images differently."""
        decoder = pipeline.decoder
        if decoder.crop_to_aspect_ratio or not decoder.antialias:
            raise ValueError(
                f"crop_to_aspect_ratio={decoder.crop_to_aspect_ratio}, "
                f"antialias={decoder.antialias}: transformers' ViT resizes the whole image, "
                "antialiased: save it in the format 'keras_transformers'"
            )
        return pipeline

    def table_inputs(self, pipeline: ImageClassifier) -> Sequence[Sequence[Wanted]]:
        """Returns image."""
        return [[Wanted("image", ("images", "img"))]]

    def table_outputs(
        self, pipeline: ImageClassifier, inputs: Collection[str], *, probabilities: bool
    ) -> Mapping[str, Kind]:
        """Returns label, probability and, on request, one column per label."""
        kinds = super().table_outputs(pipeline, inputs, probabilities=probabilities)
        return label_kinds(kinds, pipeline.labels, probabilities=probabilities)

    def table_rows(
        self, pipeline: ImageClassifier, columns: Mapping[str, Sequence[Any]], *, batch_size: int
    ) -> Sequence[Mapping[str, Any]]:
        """Answers rows with their labels and probabilities."""
        images = {"image_bytes": list(map(_encoded, columns["image"]))}
        rows = super().table_rows(pipeline, images, batch_size=batch_size)
        return with_probabilities(with_probability(rows), pipeline.labels)

    def file_rows(self, path: Path) -> Iterator[dict[str, Any]] | None:
        """Returns the paths of the PNG and JPEG files in a folder and its subfolders."""
        if not path.is_dir():
            return None
        files = sorted(file for file in path.rglob("*") if file.suffix.lower() in _SUFFIXES)
        return iter([{"image": str(file)} for file in files])

    def cell_fault(self, name: str, value: Any) -> str:
        """Returns why a cell is neither the path of a file nor pixels from 0 to 255, or ""."""
        if isinstance(value, str | Path):
            return "" if Path(value).is_file() else f"{str(value)!r:.100}, which does not exist"
        remedy = "expected the path of a PNG or JPEG file, or pixels from 0 to 255"
        try:
            pixels = np.asarray(value)
        except ValueError:  # rows of different length
            return f"{short_repr(value)}, {remedy}"
        if pixels.dtype.kind not in "uif" or pixels.ndim not in (2, 3) or not pixels.size:
            return f"{short_repr(value)}, {remedy}"
        if pixels.ndim == 3 and pixels.shape[2] > 4:
            return f"of shape {pixels.shape}, expected (height, width, channels)"
        lowest, highest = pixels.min(), pixels.max()
        if not (lowest >= 0 and highest <= 255) or (pixels.dtype.kind == "f" and highest <= 1):
            return f"pixels from {lowest} to {highest}, {remedy}"
        return ""


def _encoded(image: Any) -> bytes:
    """Returns the bytes of a file, or pixels as PNG, from which the pipeline gets the same."""
    if isinstance(image, str | Path):
        return Path(image).read_bytes()
    pixels = np.asarray(image)
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    with tf.device("CPU:0"):
        encoded: bytes = tf.io.encode_png(pixels.astype(np.uint8)).numpy()
    return encoded


TASK = ImageClassificationTask()
