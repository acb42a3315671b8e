"""Describes image classification, for `load`, `fit` and files of other libraries."""

from collections.abc import Callable, Sequence

import keras

from keras_transformers.convert.formats.weights import FoundWeights
from keras_transformers.tasks.classification.head import classifier
from keras_transformers.tasks.image_classification.answer import ANSWER
from keras_transformers.tasks.image_classification.pipeline import ImageClassifier, ImageDecoder
from keras_transformers.tasks.task import Task


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


TASK = ImageClassificationTask()
