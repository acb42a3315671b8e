"""Batches of labelled images."""

from typing import Any, Self

import numpy as np
import tensorflow as tf

from keras_transformers.data.batching import LengthBatches, index_batches
from keras_transformers.data.images.augmentation import Augmentation
from keras_transformers.data.images.labelled_images import Images

__all__ = ["ImageBatches"]


class ImageBatches(LengthBatches):
    """Batches of ({"images": pixels}, {"logits": targets}).

    Pixels are float32 (batch, height, width, channels), 0 to 255; targets are distributions over
    the classes, float32 (batch, classes), for `keras.losses.CategoricalCrossentropy`, which also
    smooths labels. The n-th pass, its order and its augmentation, depends on the seed alone.

    Args:
        images: what to batch.
        mean_length: positions that the model makes of an image.
        batch_size: images that go through the model at once.
        accumulate: so many batches make one, for gradients that accumulate.
        shuffle: whether to shuffle, anew in each pass.
        augmentation: what changes the images, anew in each pass.
        seed: of both.

    Raises:
        ValueError: a batch size below 1.
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
    ) -> None:
        super().__init__(
            np.ones(len(images), np.int32),
            batch_size=batch_size * accumulate,
            shuffle=shuffle,
            seed=seed,
        )
        self.images = images
        self._mean_length = self.mean_lengths = mean_length
        self._row_size = batch_size
        self._augmentation = augmentation
        self._read = images.reader()
        self._labels = tf.constant(images.labels)

    def batch(self, indices: tf.Tensor) -> Any:
        """The images at `indices` int32 (batch,), in the graph."""
        targets = tf.one_hot(tf.gather(self._labels, indices), len(self.images.label_names))
        return {"images": self._read(indices)}, {"logits": targets}

    def dataset(self, *, skip: int = 0) -> tf.data.Dataset:
        """The batches: endless where they are shuffled, else one pass in order."""
        if self._augmentation is None:
            return super().dataset(skip=skip)
        augment = self._augmentation

        def changed(indices: tf.Tensor, seed: tf.Tensor) -> Any:
            inputs, targets = self.batch(indices)
            pixels, classes = augment(inputs["images"], targets["logits"], seed)
            return {"images": pixels}, {"logits": classes}

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
        """Batches of other images, in order and unchanged: for validation and tests."""
        return type(self)(
            examples,
            mean_length=self._mean_length,
            batch_size=self._row_size,
            shuffle=False,
        )
