"""Encoded images to pixels, inside the TensorFlow graph: the same for training and for serving."""

import dataclasses
from typing import Any

import tensorflow as tf

_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
# How bright a colour is (ITU-R BT.601), as PIL's mode "L" and JPEG have it.
_BRIGHTNESS = (0.299, 0.587, 0.114)


@dataclasses.dataclass(frozen=True)
class ImageDecoder:
    """Decodes PNG and JPEG, brings them to one number of channels and one size.

    - Any kind of PNG and JPEG is taken: grey images become RGB, or RGB grey, as `num_channels`
      asks; transparency is left out (the colours below it stay); 16 bits a colour become 8;
      CMYK becomes RGB. Orientations that a camera notes beside the picture are not followed.
    - Resizing is bilinear with antialiasing and does not keep the aspect ratio, as Hugging Face's
      ViT has it. An image that has the size already keeps its pixels exactly.

    Args:
        image_size: height and width of what comes out, in pixels.
        num_channels: 3 for RGB, 1 for grey.
        max_pixels: larger images are refused: a file of some kilobytes can unpack to gigabytes.

    Raises:
        ValueError: a size below 1, or another number of channels.

    Example:
        >>> png = tf.io.encode_png(tf.zeros([4, 6, 1], tf.uint8))
        >>> ImageDecoder((2, 3))(png[None]).shape
        TensorShape([1, 2, 3, 3])
    """

    image_size: tuple[int, int]
    num_channels: int = 3
    max_pixels: int = 50_000_000

    def __post_init__(self) -> None:
        if self.num_channels not in (1, 3):
            raise ValueError(f"num_channels={self.num_channels}: take 3 (RGB) or 1 (grey)")
        if min(self.image_size) < 1 or self.max_pixels < 1:
            raise ValueError(
                f"image_size={self.image_size}, max_pixels={self.max_pixels}: must be 1 or more"
            )

    def __call__(self, image_bytes: Any) -> Any:
        """Encoded images (batch,) to pixels.

        Returns:
            float32 (batch, height, width, channels), 0 to 255.

        Raises:
            tf.errors.InvalidArgumentError: when the graph runs: rows that are neither PNG nor JPEG,
                with their numbers; data that are cut or damaged, as far as their format tells (a
                PNG's checksums do, a JPEG has none); too many pixels.
        """
        height, width = self.image_size
        spec = tf.TensorSpec([height, width, self.num_channels], tf.float32)
        with tf.device("CPU:0"):  # where alone strings can be
            known = _starts_with(image_bytes, _PNG) | _starts_with(image_bytes, _JPEG)
            wrong = tf.where(~known)[:, 0]
            message = "image_bytes must be PNG or JPEG; these rows of the batch are neither:"
            check = tf.debugging.Assert(tf.reduce_all(known), [message, wrong], summarize=20)
            # Eagerly the check is done by now, and there is nothing to wait for.
            with tf.control_dependencies([check] if check is not None else []):
                image_bytes = tf.identity(image_bytes)
            return tf.map_fn(self._decode, image_bytes, fn_output_signature=spec)

    def _decode(self, encoded: Any) -> Any:
        """One image: a scalar string to (height, width, channels)."""
        with tf.device("CPU:0"):
            height, width = _size(encoded)
            check = tf.debugging.assert_less_equal(
                tf.cast(height, tf.int64) * tf.cast(width, tf.int64),
                tf.constant(self.max_pixels, tf.int64),
                message=f"an image has more than {self.max_pixels} pixels",
            )
            with tf.control_dependencies([check] if check is not None else []):
                encoded = tf.identity(encoded)
            # Always by way of RGB: asked for one channel, libpng weighs colours in another way
            # where there is transparency (tensorflow#55550), and libjpeg in a third.
            image = tf.io.decode_image(encoded, channels=3, expand_animations=False)
            image = tf.cast(image, tf.float32)  # (height, width, 3)
            if self.num_channels == 1:
                image = tf.round(tf.tensordot(image, tf.constant(_BRIGHTNESS), 1))[..., None]
            return tf.image.resize(image, self.image_size, method="bilinear", antialias=True)


def _starts_with(image_bytes: Any, magic: bytes) -> Any:
    return tf.equal(tf.strings.substr(image_bytes, 0, len(magic)), magic)


def _size(encoded: Any) -> tuple[Any, Any]:
    """Height and width that an image says it has, int32, read without decoding it."""

    def png() -> Any:
        # Width and height are bytes 16 to 23; zeros stand in where a file is cut before.
        header = tf.strings.substr(encoded + b"\0" * 24, 16, 8)
        return tf.reverse(tf.io.decode_raw(header, tf.int32, little_endian=False), [0])

    def jpeg() -> Any:
        return tf.image.extract_jpeg_shape(encoded)[:2]

    size = tf.cond(_starts_with(encoded, _PNG), png, jpeg)
    return size[0], size[1]
