"""Trains image classifiers: images with one label each."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformers.data.images import ImageBatches, Images, load_folder
from keras_transformers.data.tables.in_memory import LABEL, Wanted
from keras_transformers.models.anatomy import anatomy
from keras_transformers.ranges import PositiveFloat
from keras_transformers.tasks.labels import LabelColumn
from keras_transformers.tasks.source import Source
from keras_transformers.tasks.training import Columns, FitOptions, Job, check_column_names


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Options(FitOptions):
    """Options with a rate of 3e-3, the best for our sizes (recipes/image_classification.py)."""

    learning_rate: PositiveFloat = 1e-4
    small_rate = 3e-3


def _examples(pipeline: Any, found: Columns, source: Source) -> Images:
    ids = _ids(found["label"], pipeline.labels)
    images = found["image"]
    if all(isinstance(image, str | Path) for image in images):
        paths = np.array([str(path) for path in images], object)
        if missing := [path for path in paths if not Path(path).is_file()]:
            raise FileNotFoundError(f"{source}: {len(missing)} images do not exist: {missing[0]}")
        return Images(paths, ids, pipeline.labels, str(source), pipeline.decoder)
    height, width, channels = pipeline.model.input["images"].shape[1:]
    pixels = np.zeros((len(images), height, width, channels), np.uint8)
    for row, image in enumerate(images):
        array = np.asarray(image)
        if array.ndim == 2:
            array = array[..., None]
        if array.shape != pixels.shape[1:]:
            raise ValueError(
                f"{source.row(row)}: an image of shape {array.shape}, expected "
                f"{pixels.shape[1:]}, the model's, with values from 0 to 255: resize it, or pass "
                "the paths of PNG or JPEG files"
            )
        if array.min() < 0 or array.max() > 255 or (array.dtype.kind == "f" and array.max() <= 1):
            raise ValueError(
                f"{source.row(row)}: pixels from {array.min()} to {array.max()}, expected 0 to 255"
            )
        pixels[row] = array
    return Images(pixels, ids, pipeline.labels, str(source))


def _from_folder(pipeline: Any, path: Path, columns: Mapping[str, str]) -> Images:
    check_column_names(columns, path, ())
    found = load_folder(path, pipeline.decoder)
    names = [found.label_names[label] for label in found.labels]
    (names,) = LabelColumn().as_names(pipeline, [(Source(str(path)), names)])
    ids = _ids(names, pipeline.labels)
    return Images(found.items, ids, pipeline.labels, str(path), pipeline.decoder)


def _ids(names: Sequence[str], labels: Sequence[str]) -> np.ndarray:
    return np.array([labels.index(name) for name in names], np.int32)


def _batches(images: Images, pipeline: Any, **options: Any) -> ImageBatches:
    length = anatomy(pipeline.model).max_sequence_length
    return ImageBatches(images, mean_length=length or 1, **options)


def _split(found: Images, share: float) -> tuple[Images, Images]:
    return found.split(share, seed=0)


JOB = Job(
    task="image_classification",
    columns=lambda pipeline: [Wanted("image", ("images", "img")), Wanted("label", LABEL)],
    from_columns=_examples,
    from_file=_from_folder,
    labels=LabelColumn(),
    batches=_batches,
    losses=lambda given: {
        "loss": {"logits": keras.losses.CategoricalCrossentropy(from_logits=True)}
    },
    metrics=lambda pipeline: {"logits": [keras.metrics.CategoricalAccuracy(name="accuracy")]},
    monitor=lambda examples: "val_accuracy",
    baseline=lambda pipeline, images: {"majority": images.majority_share},
    split=_split,
    options=_Options,
)
