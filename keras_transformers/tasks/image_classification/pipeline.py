"""Classifies images: encoded images in, their labels and probabilities out."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.dependencies import graph_errors
from keras_transformers.layers import PatchEmbedding
from keras_transformers.models.anatomy import only
from keras_transformers.tasks.classification.pipeline import (
    classify_signature,
    labelled,
    labelled_specs,
)
from keras_transformers.tasks.confidence import Confidence
from keras_transformers.tasks.pipeline import Pipeline, Signature
from keras_transformers.tasks.token_inputs import checked_labels

__all__ = ["ImageClassifier", "ImageDecoder"]

_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
# The weights of red, green and blue in brightness (ITU-R BT.601), as in PIL's mode "L" and JPEG.
_BRIGHTNESS = (0.299, 0.587, 0.114)


class ImageClassifier(Pipeline):
    """Classifies encoded images.

    A call takes the bytes of one image or many, PNG or JPEG, of any size. The graph decodes and
    resizes them and converts their colours for the model; see `ImageDecoder`. Bytes that do not
    decode fail the whole batch with tf.errors.InvalidArgumentError (INVALID_ARGUMENT from a server)
    and a message that says why.

    Signatures of the export, where `batch` may be 0:

    - serving_default(image_bytes string (batch,)) -> label string (batch,), probabilities float32
      (batch, classes), label_index int32 (batch,).
    - classify(inputs string (batch,), serialized tf.Example with the feature image_bytes) ->
      classes string, scores float32 (batch, classes), in the order of `labels`: for TF Serving's
      Classify API.

    Args:
        model: functional, from images (batch, height, width, channels) with pixel values 0 to 255
            to logits (batch, classes), such as `heads.classifier` on a `models.vit`.
        decoder: turns encoded images into the model's inputs.
        labels: the name of each class, in the order of the logits.
        temperature: divides the logits; above 1, probabilities are less sure. `fit` finds it with
            `calibrate=True`.
        abstain_below: adds the output `abstained` bool (batch,): whether the label's probability is
            below this.

    Raises:
        ValueError: model, decoder and labels do not match, or an option is out of range.

    Example:
        >>> import keras_transformers as kt
        >>> encoder = kt.families.vit.vit(
        ...     patch_size=4, num_layers=1, num_heads=2, hidden_dim=8, image_size=(8, 12)
        ... )
        >>> model = kt.heads.classifier(encoder, 2)
        >>> classify = ImageClassifier(model, ImageDecoder((8, 12)), ["cat", "dog"])
        >>> png = tf.io.encode_png(tf.zeros([30, 40, 3], tf.uint8)).numpy()
        >>> len(classify(png).probabilities), len(classify([png, png, png]))
        (2, 3)
    """

    task = "image_classification"
    text_names = ("image_bytes",)

    def __init__(
        self,
        model: keras.Model,
        decoder: "ImageDecoder",
        labels: Sequence[str],
        *,
        temperature: float = 1.0,
        abstain_below: float | None = None,
    ) -> None:
        _check_model(model, decoder)
        self.model = model
        self.decoder = decoder
        self.labels = checked_labels(labels, model)
        self.temperature, self.abstain_below = temperature, abstain_below
        self._confidence = Confidence(temperature, abstain_below)

    def encode(self, image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        """Turns encoded images, strings (batch,), into the model's input, in the graph."""
        return {"images": self.decoder(image_bytes)}  # (batch, height, width, channels)

    def answer(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes label, probabilities and label_index of encoded images, in the graph."""
        images = self.encode(texts["image_bytes"])
        return labelled(self.run_model(images)["logits"], self.labels, self._confidence)

    def read(self, *texts: str | bytes | Sequence[str]) -> dict[str, list[str]]:
        """Runs the model once on one encoded image; see `Pipeline.read`.

        The names are "[CLS]", then the row and the column of each patch, such as "0,3".
        """
        (image_bytes,) = texts
        self.run_model(self.encode(tf.constant([image_bytes])))
        rows, columns = only(self.model, PatchEmbedding).grid
        patches = [f"{row},{column}" for row in range(rows) for column in range(columns)]
        return {"source": ["[CLS]", *patches]}

    def answer_specs(self) -> dict[str, tf.TensorSpec]:
        """Returns the outputs of `answer`: name -> tf.TensorSpec (None, ...)."""
        return labelled_specs(self.labels, self._confidence)

    def other_signatures(self, batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Signature]:
        """Returns `classify`, for TF Serving's Classify API."""
        return {"classify": classify_signature(self.answer, self.text_names, self.labels, batches)}

    def example_batches(self, examples: Sequence[Any] | None) -> list[dict[str, np.ndarray]]:
        """Returns the examples or synthetic pictures, unusual images and an empty batch."""
        images = self._made_up() if examples is None else self._checked(examples)
        return [
            {"image_bytes": np.array(encoded, dtype=object)}
            for encoded in (images, _odd_images(), [])
        ]

    def rows(
        self,
        texts: Mapping[str, Iterable[str | bytes]],
        *,
        batch_size: int = 32,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """Answers like a call, but returns dicts: output name -> str, number or list."""
        columns = {name: list(column) for name, column in texts.items()}
        for column in columns.values():
            for number, image in enumerate(column):
                if not isinstance(image, bytes):
                    raise ValueError(
                        f"image {number} is a {type(image).__name__}: pass the bytes of its file"
                    )
        return super().rows(columns, batch_size=batch_size, **options)

    def config(self) -> dict[str, Any]:
        """Returns the labels and the decoder's options, as JSON values."""
        decoder = dataclasses.asdict(self.decoder)
        return {"labels": list(self.labels), **decoder, **self._confidence.config()}

    @classmethod
    def restore(cls, model: keras.Model, tokenizers: Mapping[str, Any], **config: Any) -> Self:
        """Rebuilds a pipeline from its `model` and `config`."""
        names = {field.name for field in dataclasses.fields(ImageDecoder)}
        options = {name: value for name, value in config.items() if name in names}
        options["image_size"] = tuple(options["image_size"])
        others = {name: value for name, value in config.items() if name not in names}
        return cls(model, ImageDecoder(**options), **others)

    def metadata(self) -> dict[str, Any]:
        """Returns metadata that an export records with the model."""
        return self.config()

    def _arguments(self) -> dict[str, Any]:
        arguments = {"model": self.model, "decoder": self.decoder, "labels": self.labels}
        return {**arguments, **self._confidence.config()}

    def _made_up(self) -> list[bytes]:
        height, width = self.decoder.image_size
        return [_encode(_picture(height, width, 3)), _encode(_picture(37, 53, 3), "jpeg")]

    def _checked(self, examples: Sequence[Any]) -> Sequence[bytes]:
        for number, example in enumerate(examples):
            if not isinstance(example, bytes):
                raise ValueError(
                    f"examples must be encoded images, bytes; example {number} is a "
                    f"{type(example).__name__}"
                )
            try:
                self.decoder(tf.constant([example]))
            except tf.errors.InvalidArgumentError as error:
                place = f"example {number} does not decode"
                raise graph_errors.value_error(error, place) from error
        return examples


@dataclasses.dataclass(frozen=True)
class ImageDecoder:
    """Decodes PNG and JPEG images to a fixed size and number of channels.

    - It takes any kind of PNG and JPEG. `num_channels` decides whether grey becomes RGB or RGB
      becomes grey; transparency is dropped (the colours under it stay); 16 bits per colour become
      8; CMYK becomes RGB. It ignores the orientation that a camera stores in a file.
    - JPEG is decoded with libjpeg's accurate transform, to the same pixels as in Pillow.
    - Resizing is bilinear. By default it is antialiased and does not keep the aspect ratio, as in
      Hugging Face's ViT. An image that already has the size keeps its pixels exactly.

    Args:
        image_size: height and width of the output, in pixels.
        num_channels: 3 for RGB, 1 for grey.
        max_pixels: larger images are rejected: a file of a few kilobytes can unpack to gigabytes.
        crop_to_aspect_ratio: whether to resize only the middle of an image, cropped to the output's
            aspect ratio, as keras-hub does by default.
        antialias: whether shrinking averages over all pixels of an image; keras-hub does not by
            default.

    Raises:
        ValueError: a size is below 1, or `num_channels` is neither 1 nor 3.

    Example:
        >>> png = tf.io.encode_png(tf.zeros([4, 6, 1], tf.uint8))
        >>> ImageDecoder((2, 3))(png[None]).shape
        TensorShape([1, 2, 3, 3])
    """

    image_size: tuple[int, int]
    num_channels: int = 3
    max_pixels: int = 50_000_000
    crop_to_aspect_ratio: bool = False
    antialias: bool = True

    def __post_init__(self) -> None:
        if self.num_channels not in (1, 3):
            raise ValueError(f"num_channels={self.num_channels}: use 3 (RGB) or 1 (grey)")
        if min(self.image_size) < 1 or self.max_pixels < 1:
            raise ValueError(
                f"image_size={self.image_size}, max_pixels={self.max_pixels}: must be 1 or more"
            )

    def __call__(self, image_bytes: tf.Tensor) -> tf.Tensor:
        """Decodes images, strings (batch,).

        Returns:
            Pixels, float32 (batch, height, width, channels), 0 to 255.

        Raises:
            tf.errors.InvalidArgumentError: when the graph runs: some rows are neither PNG nor JPEG
                (the message lists them); data is truncated or damaged, as far as the format can
                tell (PNG has checksums, JPEG has none); or an image has too many pixels.
        """
        height, width = self.image_size
        spec = tf.TensorSpec([height, width, self.num_channels], tf.float32)
        with tf.device("CPU:0"):  # string ops run only on the CPU
            is_image = _starts_with(image_bytes, _PNG) | _starts_with(image_bytes, _JPEG)
            wrong = tf.where(~is_image)[:, 0]
            message = "image_bytes must be PNG or JPEG; these rows of the batch are neither:"
            check = tf.debugging.Assert(tf.reduce_all(is_image), [message, wrong], summarize=20)
            # In eager mode the check has already run and is None.
            with tf.control_dependencies([check] if check is not None else []):
                image_bytes = tf.identity(image_bytes)
            return tf.map_fn(self._decode, image_bytes, fn_output_signature=spec)

    def _decode(self, encoded: tf.Tensor) -> tf.Tensor:
        """Decodes one image, a scalar string, to (height, width, channels)."""
        with tf.device("CPU:0"):
            height, width = _size(encoded)
            check = tf.debugging.assert_less_equal(
                tf.cast(height, tf.int64) * tf.cast(width, tf.int64),
                tf.constant(self.max_pixels, tf.int64),
                message=f"an image has more than {self.max_pixels} pixels",
            )
            with tf.control_dependencies([check] if check is not None else []):
                encoded = tf.identity(encoded)
            # Always via RGB: for one channel, libpng weights the colours differently if there is
            # transparency (tensorflow#55550), and libjpeg has yet other weights.
            image = tf.cond(
                _starts_with(encoded, _JPEG),
                # TensorFlow's default is libjpeg's fast transform, which is up to 9 grey levels
                # off.
                lambda: tf.io.decode_jpeg(encoded, channels=3, dct_method="INTEGER_ACCURATE"),
                lambda: tf.io.decode_image(encoded, channels=3, expand_animations=False),
            )
            image = tf.cast(tf.ensure_shape(image, [None, None, 3]), tf.float32)
            if self.num_channels == 1:
                image = tf.round(tf.tensordot(image, tf.constant(_BRIGHTNESS), 1))[..., None]
            return keras.ops.image.resize(
                image,
                self.image_size,
                interpolation="bilinear",
                antialias=self.antialias,
                crop_to_aspect_ratio=self.crop_to_aspect_ratio,
                data_format="channels_last",
            )


def _starts_with(image_bytes: tf.Tensor, magic: bytes) -> tf.Tensor:
    return tf.equal(tf.strings.substr(image_bytes, 0, len(magic)), magic)


def _size(encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Reads an image's height and width, int32, from its header."""

    def png() -> tf.Tensor:
        # Bytes 16 to 23 are width and height; in a shorter file, zeros replace them.
        header = tf.strings.substr(encoded + b"\0" * 24, 16, 8)
        return tf.reverse(tf.io.decode_raw(header, tf.int32, little_endian=False), [0])

    def jpeg() -> tf.Tensor:
        return tf.image.extract_jpeg_shape(encoded)[:2]

    size = tf.cond(_starts_with(encoded, _PNG), png, jpeg)
    return size[0], size[1]


def _check_model(model: keras.Model, decoder: ImageDecoder) -> None:
    """Raises ValueError unless the model takes the decoder's images and returns logits."""
    inputs: Any = getattr(model, "input", None)  # a subclassed model has none
    outputs: Any = getattr(model, "output", None)
    has_names = isinstance(inputs, dict) and isinstance(outputs, dict)
    if not has_names or set(inputs) != {"images"} or "logits" not in outputs:
        raise ValueError(
            f"model {model.name!r} must take images and return logits, in dicts: put "
            "keras_transformers.heads.classifier on a model of keras_transformers.families.vit"
        )
    size = tuple(inputs["images"].shape[1:])
    decoded = (*decoder.image_size, decoder.num_channels)
    if size != decoded:
        raise ValueError(
            f"model {model.name!r} takes images of {size} (height, width, channels) but the "
            f"decoder makes {decoded}: give it the model's image_size and num_channels"
        )


def _odd_images() -> list[bytes]:
    """Returns a single pixel, grey, grey and RGB with transparency, 16-bit colours, a grey JPEG."""
    return [
        _encode(_picture(1, 1, 3)),
        _encode(_picture(9, 5, 1)),
        _encode(_picture(5, 9, 2)),
        _encode(_picture(8, 8, 4)),
        _encode(_picture(3, 4, 1).astype(np.uint16) * 257),
        _encode(_picture(16, 11, 1), "jpeg"),
    ]


def _picture(height: int, width: int, channels: int) -> np.ndarray:
    """Returns gradients in different directions, uint8 (height, width, channels)."""
    row, column, channel = np.indices((height, width, channels))
    return ((row * 7 + column * (3 + 5 * channel) + 40 * channel) % 256).astype(np.uint8)


def _encode(pixels: np.ndarray, kind: str = "png") -> bytes:
    with tf.device("CPU:0"):
        encode = tf.io.encode_png if kind == "png" else tf.io.encode_jpeg
        return encode(pixels).numpy()
