"""Export of image classifiers: an encoded image in, its label and probabilities out."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.pipelines import token_inputs as text
from keras_transformers.saved_model.metadata import of_model
from keras_transformers.saved_model.writing import CLASSIFY, Signature, write


def image_classifier(
    model: keras.Model,
    decoder: Any,
    labels: Sequence[str],
    path: str | os.PathLike[str],
    *,
    examples: Sequence[bytes] | None = None,
    scores: Mapping[str, float] | None = None,
    check: bool = True,
) -> Path:
    """Exports an image classifier as a SavedModel for TF Serving that takes encoded images.

    Its signatures, where `batch` may be 0 and images may be of different sizes:

    - serving_default(image_bytes string (batch,), PNG or JPEG) -> label string (batch,),
      probabilities float32 (batch, classes), label_index int32 (batch,).
    - classify(inputs string (batch,), serialized tf.Example with the feature image_bytes) ->
      classes string, scores float32 (batch, classes), in the order of `labels`: for TF Serving's
      Classify API.

    Decoding, resizing and scaling are in the graph; grey images, RGB, transparency and so on are
    brought to what the model takes, as the decoder tells. Bytes that do not decode fail the whole
    batch with INVALID_ARGUMENT and a message that says what is wrong.

    Args:
        model: functional, input images (batch, height, width, channels), pixel values 0 to 255,
            output logits (batch, classes): `models.heads.classifier` on a `models.vit`.
        decoder: turns encoded images into the model's inputs, a `data.image_decoder.ImageDecoder`.
        labels: name of each class, in the order of the logits.
        path: BASE/<number> writes that version; anything else is a BASE and gets the next one.
        examples: encoded images to check the export with; they are stored in it with their
            answers, so give none that are secret. Made-up pictures by default.
        scores: what the model reached, stored in the export: figure -> value, the data in the
            figure's name, such as {"accuracy on SST-2 dev": 0.91}.
        check: reload the export in a fresh process and compare before it is published.

    Returns:
        The version folder, BASE/<number>.

    Raises:
        FileExistsError: the version exists.
        ValueError: model, decoder, labels or examples do not fit each other.
        RuntimeError: the written export does not repeat the model's outputs.
    """
    _check_model(model, decoder)
    labels = text.checked_labels(labels, model)
    batches = [_images(_checked_examples(examples, decoder)), _images(_odd_images()), _images([])]
    graph = _Graph(model, decoder, labels)
    strings = tf.TensorSpec([None], tf.string)
    answer = {
        "label": strings,
        "probabilities": tf.TensorSpec([None, len(labels)], tf.float32),
        "label_index": tf.TensorSpec([None], tf.int32),
    }
    ranked = {
        "classes": tf.TensorSpec([None, len(labels)], tf.string),
        "scores": tf.TensorSpec([None, len(labels)], tf.float32),
    }
    records = [text.serialized(batch) for batch in batches]
    return write(
        path,
        {
            "serving_default": Signature(
                graph.from_bytes, {"image_bytes": strings}, answer, batches
            ),
            "classify": Signature(
                graph.from_records, {"inputs": strings}, ranked, records, CLASSIFY
            ),
        },
        variables=model.weights,
        metadata={
            "task": "image_classification",
            "labels": labels,
            **of_model(model),
            "image_size": list(decoder.image_size),
            "num_channels": decoder.num_channels,
            "max_pixels": decoder.max_pixels,
        },
        tolerance=text.tolerance(model),
        scores=scores,
        check=check,
    )


@dataclass(frozen=True)
class _Graph:
    """The functions behind the signatures. Strings stay on the CPU, where alone they can be."""

    model: keras.Model
    decoder: Any
    labels: list[str]

    def from_bytes(self, image_bytes: Any) -> dict[str, Any]:
        images = self.decoder(image_bytes)  # (batch, height, width, channels)
        logits = self.model({"images": images}, training=False)["logits"]  # (batch, classes)
        probabilities = tf.nn.softmax(tf.cast(logits, tf.float32))
        label_index = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
        with tf.device("CPU:0"):
            label = tf.gather(tf.constant(self.labels), label_index)
        return {"label": label, "probabilities": probabilities, "label_index": label_index}

    def from_records(self, inputs: Any) -> dict[str, Any]:
        with tf.device("CPU:0"):
            feature = {"image_bytes": tf.io.FixedLenFeature([], tf.string)}
            image_bytes = tf.io.parse_example(inputs, feature)["image_bytes"]
            classes = tf.repeat(tf.constant([self.labels]), tf.size(inputs), axis=0)
        return {"classes": classes, "scores": self.from_bytes(image_bytes)["probabilities"]}


def _check_model(model: keras.Model, decoder: Any) -> None:
    """Raises ValueError unless the model takes what the decoder makes and returns logits."""
    inputs: Any = getattr(model, "input", None)  # a subclassed model has none
    outputs: Any = getattr(model, "output", None)
    named = isinstance(inputs, dict) and isinstance(outputs, dict)
    if not named or set(inputs) != {"images"} or "logits" not in outputs:
        raise ValueError(
            f"model {model.name!r} must take images and return logits, in dicts: put "
            "keras_transformers.heads.classifier on a model of keras_transformers.models.vit"
        )
    taken = tuple(inputs["images"].shape[1:])
    made = (*decoder.image_size, decoder.num_channels)
    if taken != made:
        raise ValueError(
            f"model {model.name!r} takes images of {taken} (height, width, channels) and the "
            f"decoder makes {made}: give it the model's image_size and num_channels"
        )


def _checked_examples(examples: Sequence[bytes] | None, decoder: Any) -> Sequence[bytes]:
    """The examples, or two pictures; ValueError for what the decoder does not take."""
    if examples is None:
        height, width = decoder.image_size
        return [_encode(_picture(height, width, 3)), _encode(_picture(37, 53, 3), "jpeg")]
    for number, example in enumerate(examples):
        if not isinstance(example, bytes):
            raise ValueError(
                f"examples must be encoded images, bytes; example {number} is a "
                f"{type(example).__name__}"
            )
        try:
            decoder(tf.constant([example]))
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(f"example {number} does not decode: {error.message}") from error
    return examples


def _odd_images() -> list[bytes]:
    """What else has to work: a single pixel, grey, transparency, 16 bits a colour, a grey JPEG."""
    return [
        _encode(_picture(1, 1, 3)),
        _encode(_picture(9, 5, 1)),
        _encode(_picture(5, 9, 2)),
        _encode(_picture(8, 8, 4)),
        _encode(_picture(3, 4, 1).astype(np.uint16) * 257),
        _encode(_picture(16, 11, 1), "jpeg"),
    ]


def _picture(height: int, width: int, channels: int) -> np.ndarray:
    """Slopes in different directions, uint8 (height, width, channels)."""
    row, column, channel = np.indices((height, width, channels))
    return ((row * 7 + column * (3 + 5 * channel) + 40 * channel) % 256).astype(np.uint8)


def _encode(pixels: np.ndarray, kind: str = "png") -> bytes:
    with tf.device("CPU:0"):
        encode = tf.io.encode_png if kind == "png" else tf.io.encode_jpeg
        return encode(pixels).numpy()


def _images(encoded: Sequence[bytes]) -> dict[str, np.ndarray]:
    return {"image_bytes": np.array(encoded, dtype=object)}
