"""Batches of labelled images."""

import dataclasses
from typing import Any, Self

import numpy as np
import tensorflow as tf

from keras_transformers.data.batching import LengthBatches, index_batches
from keras_transformers.data.images.augmentation import Augmentation
from keras_transformers.data.images.labelled_images import Images
from keras_transformers.data.static_shapes import Batch
from keras_transformers.data.weighting import ClassWeight

__all__ = ["ImageBatches"]


class ImageBatches(LengthBatches):
    """Batches of ({"images": pixels}, {"logits": targets}).

    Pixels are float32 (batch, height, width, channels), 0 to 255. Targets are distributions over
    the classes, float32 (batch, classes), for `keras.losses.CategoricalCrossentropy`, which can
    smooth them. The order and augmentation of the n-th pass depend only on the seed.

    Args:
        images: images to batch.
        mean_length: positions per image in the model.
        batch_size: images per forward pass.
        accumulate: forward passes per batch, for gradient accumulation.
        shuffle: whether to reshuffle on each pass.
        augmentation: random changes to the images, drawn again on each pass.
        seed: seed for shuffling and augmentation.
        static_shapes: see `LengthBatches`; images have one shape.
        class_weight: "balanced", or label -> the weight of its images, 1 for other labels, times
            `images.weights`. Batches made with `of` have no weights.

    Raises:
        ValueError: the batch size is below 1.
    """

    def __init__(
        self,
        images: Images,
        *,
        mean_length: int,
        batch_size: int,
        accumulate: int = 1,
        shuffle: bool = True,
        augmentation: Augmentation | None = None,
        seed: int = 0,
        static_shapes: int | None = None,
        class_weight: ClassWeight | None = None,
    ) -> None:
        super().__init__(
            np.ones(len(images), np.int32),
            batch_size=batch_size * accumulate,
            shuffle=shuffle,
            seed=seed,
            static_shapes=static_shapes,
            weights=images.weights,
            class_counts=dict(
                zip(
                    images.label_names,
                    np.bincount(images.labels, minlength=len(images.label_names)).tolist(),
                    strict=True,
                )
            ),
            class_weight=class_weight,
        )
        self.images = images
        self._mean_length = self.mean_lengths = mean_length
        self._row_size = batch_size
        self._augmentation = augmentation
        self._read = images.reader()
        self._labels = tf.constant(images.labels)

    def batch(self, indices: tf.Tensor) -> Batch:
        """Returns the images at `indices`, int32 (batch,); runs in graphs."""
        targets = tf.one_hot(tf.gather(self._labels, indices), len(self.images.label_names))
        return {"images": self._read(indices)}, {"logits": targets}

    def target_weights(self, targets: tf.Tensor, of_class: np.ndarray) -> tf.Tensor:
        """Returns the mean weight of each image's classes: float32 (batch,)."""
        return tf.linalg.matvec(targets, of_class)

    def dataset(self, *, skip: int = 0) -> tf.data.Dataset:
        """Returns the batches: endless if shuffled, otherwise one pass in order."""
        if self._augmentation is None:
            return super().dataset(skip=skip)
        augment = self._augmentation

        def changed(indices: tf.Tensor, seed: tf.Tensor) -> Any:
            inputs, targets = self.batch(indices)
            pixels, classes = augment(inputs["images"], targets["logits"], seed)
            batch = self.with_weights(({"images": pixels}, {"logits": classes}), indices)
            return self.in_static_shape(batch, indices)

        indices = index_batches(
            self.lengths, batch_size=self.batch_size, shuffle=self.shuffle, seed=self.seed
        )
        seeds = tf.data.Dataset.random(seed=self.seed, rerandomize_each_iteration=True).batch(2)
        numbered = tf.data.Dataset.zip(indices, seeds)
        if self.shuffle:
            numbered = numbered.repeat()
        return (
            numbered.skip(skip)
            .map(changed, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
            .prefetch(tf.data.AUTOTUNE)
        )

    def of(self, examples: Images) -> Self:
        """Returns batches of other images, in order and without augmentation, for evaluation."""
        return type(self)(
            dataclasses.replace(examples, weights=None),
            mean_length=self._mean_length,
            batch_size=self._row_size,
            shuffle=False,
            static_shapes=self.static_shapes,
        )
