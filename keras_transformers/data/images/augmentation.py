"""Augments image batches with a seed: random rotations, crops, flips and mixup."""

import dataclasses
import math
from typing import Any

import keras
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """Changes a training batch at random; the same seed gives the same changes.

    Attributes:
        rotation: largest rotation in degrees, either way; 0 disables it.
        zoom: largest share by which width and height shrink or grow, independently; 0 disables
            zooming.
        crop_padding: black border in pixels to pad each image with before a random crop of the
            original size; 0 disables cropping.
        flip: whether to mirror half of the images left to right. Not for digits or letters.
        mixup: alpha of `mixup`; 0 disables it.

    Raises:
        ValueError: a value is below 0, or `zoom` is not below 1.
    """

    rotation: float = 0.0
    zoom: float = 0.0
    crop_padding: int = 0
    flip: bool = False
    mixup: float = 0.0

    def __post_init__(self) -> None:
        for name in ("rotation", "zoom", "crop_padding", "mixup"):
            value = getattr(self, name)
            if value < 0:
                raise ValueError(f"{name}={value}: must be 0 (off) or more")
        if self.zoom >= 1:
            raise ValueError(f"zoom={self.zoom}: must be below 1, the whole image")

    def __call__(
        self, images: tf.Tensor, targets: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Augments a batch.

        Args:
            images: float32 (batch, height, width, channels).
            targets: float32 (batch, classes), one distribution per row.
            seed: int64 (2,).

        Returns:
            Images and targets of the same shapes.
        """
        crop_seed, flip_seed, mixup_seed, turn_seed = (
            tf.random.experimental.stateless_fold_in(seed, number) for number in range(4)
        )
        if self.rotation or self.zoom:
            images = random_turn(images, self.rotation, self.zoom, turn_seed)
        if self.crop_padding:
            images = random_crop(images, self.crop_padding, crop_seed)
        if self.flip:
            images = random_flip(images, flip_seed)
        if self.mixup:
            images, targets = mixup(images, targets, self.mixup, mixup_seed)
        return images, targets


def random_turn(images: tf.Tensor, rotation: float, zoom: float, seed: tf.Tensor) -> tf.Tensor:
    """Rotates each image around its centre and stretches it; uncovered areas are black.

    Args:
        images: float32 (batch, height, width, channels).
        rotation: largest angle in degrees, either way.
        zoom: width and height become at most 1 + zoom times larger or smaller.
        seed: int64 (2,).
    """
    batch, height, width = tf.unstack(tf.shape(images)[:3])
    turn, wider, higher = tf.unstack(tf.random.stateless_uniform([3, batch], seed, -1.0, 1.0))
    angle = turn * math.radians(rotation)
    # Where a pixel of the result comes from: x of the image is a x + b y + c.
    scale_x, scale_y = ((1.0 + zoom) ** value for value in (wider, higher))
    cosine, sine = tf.cos(angle), tf.sin(angle)
    centre_x, centre_y = (tf.cast(size - 1, tf.float32) / 2.0 for size in (width, height))
    x = [cosine * scale_x, -sine * scale_y]
    y = [sine * scale_x, cosine * scale_y]
    rows = [
        *(*x, centre_x - x[0] * centre_x - x[1] * centre_y),
        *(*y, centre_y - y[0] * centre_x - y[1] * centre_y),
        *[tf.zeros_like(angle)] * 2,
    ]
    turned = keras.ops.image.affine_transform(
        images, tf.stack(rows, axis=1), data_format="channels_last"
    )
    return tf.ensure_shape(turned, images.shape)


def random_crop(images: tf.Tensor, padding: int, seed: tf.Tensor) -> tf.Tensor:
    """Shifts each image by up to `padding` pixels in each direction and fills the gap with black.

    Args:
        images: (batch, height, width, channels).
        padding: in pixels.
        seed: int64 (2,).
    """
    batch, height, width = tf.unstack(tf.shape(images)[:3])
    padded = tf.pad(images, [[0, 0], [padding, padding], [padding, padding], [0, 0]])
    starts = tf.random.stateless_uniform(
        [2, batch, 1], seed, maxval=2 * padding + 1, dtype=tf.int32
    )
    rows = tf.gather(padded, starts[0] + tf.range(height), axis=1, batch_dims=1)
    cropped = tf.gather(rows, starts[1] + tf.range(width), axis=2, batch_dims=1)
    return tf.ensure_shape(cropped, images.shape)


def random_flip(images: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Mirrors each image left to right with probability 1/2.

    Args:
        images: (batch, height, width, channels).
        seed: int64 (2,).
    """
    flipped = tf.random.stateless_uniform([tf.shape(images)[0], 1, 1, 1], seed) < 0.5
    return tf.where(flipped, tf.reverse(images, axis=[2]), images)


def mixup(
    images: tf.Tensor, targets: tf.Tensor, alpha: float, seed: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Mixes each example with the next one: `share * this + (1 - share) * next`.

    Zhang et al. 2018, "mixup: Beyond Empirical Risk Minimization", https://arxiv.org/abs/1710.09412.
    Each row draws its own share from Beta(alpha, alpha); the last row is mixed with the first.

    Args:
        images: float (batch, height, width, channels).
        targets: float32 (batch, classes), one distribution per row.
        alpha: above 0; 0.2 mixes most rows little, 1 draws shares uniformly.
        seed: int64 (2,).
    """
    # Beta(a, a) is x / (x + y) with both from Gamma(a).
    gammas = tf.random.stateless_gamma([2, tf.shape(images)[0]], seed, alpha)
    # If both gammas underflow to 0, the row stays unchanged.
    share = 1.0 - tf.math.divide_no_nan(gammas[1], gammas[0] + gammas[1])

    def mix(values: Any, share: Any) -> tf.Tensor:
        return share * values + (1.0 - share) * tf.roll(values, shift=-1, axis=0)

    return mix(images, share[:, None, None, None]), mix(targets, share[:, None])
