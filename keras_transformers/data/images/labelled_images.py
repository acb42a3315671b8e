"""Loads labelled images from IDX files (MNIST, Fashion-MNIST), scikit-learn or folders.

    load_digits, load_idx or load_folder -> Images.split -> ImageBatches

Pixels range from 0 to 255; the model scales them.
"""

import concurrent.futures
import dataclasses
import hashlib
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.data.bad_rows import bad_rows, reject
from keras_transformers.data.faults import Content
from keras_transformers.dependencies import graph_errors
from keras_transformers.files import compression

__all__ = ["Images", "load_folder"]

FASHION_MNIST_LABELS = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
_SUFFIXES = (".png", ".jpg", ".jpeg")
_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Images:
    """Labelled images, in memory or in files.

    Attributes:
        items: pixels, uint8 (images, height, width, channels); with a `decoder`, paths of image
            files (images,).
        labels: int32 (images,), indices into `label_names`.
        label_names: names of the classes.
        source: where the images come from, for messages.
        decoder: decodes file contents (batch,) to pixels of its `image_size` and `num_channels`,
            such as a `pipelines.ImageDecoder`.
        weights: the weight of each image in the training loss, or None.

    Raises:
        ValueError: shapes or labels do not match, or there are no images.
    """

    items: np.ndarray
    labels: np.ndarray
    label_names: Sequence[str]
    source: str
    decoder: Any = None
    weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if not len(self.items):
            raise ValueError(f"{self.source}: no images")
        if self.items.ndim != (4 if self.decoder is None else 1):
            raise ValueError(
                f"{self.source}: items of shape {self.items.shape}; expected pixels (images, "
                "height, width, channels), or paths (images,) and a decoder"
            )
        if self.labels.shape != (len(self.items),):
            raise ValueError(
                f"{self.source}: {self.labels.shape} labels for {len(self.items)} images"
            )
        last = len(self.label_names) - 1
        if self.labels.min() < 0 or self.labels.max() > last:
            raise ValueError(
                f"{self.source}: labels from {self.labels.min()} to {self.labels.max()} for "
                f"{last + 1} names: name every class, in the order of the labels"
            )

    def __len__(self) -> int:
        return len(self.items)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of each image."""
        if self.decoder is not None:
            return (*self.decoder.image_size, self.decoder.num_channels)
        height, width, channels = self.items.shape[1:]
        return height, width, channels

    @property
    def majority_share(self) -> float:
        """The share of the most frequent label: the accuracy of always predicting it."""
        return float(np.bincount(self.labels).max() / len(self))

    def contents(self) -> Iterator[Content]:
        """Yields what is in each image's pixels or file, and its label."""
        for row, (item, label) in enumerate(zip(self.items, self.labels.tolist(), strict=True)):
            in_file = self.decoder is not None
            data = Path(item).read_bytes() if in_file else item.tobytes()
            sample = str(item) if in_file else f"image {row}"
            yield Content(hashlib.blake2b(data).digest(), sample, label)

    def reader(self) -> Callable[[Any], Any]:
        """Returns a graph function: indices (batch,) -> pixels, float32 (batch, height, ...)."""
        items = tf.constant(self.items)  # here, so that all graphs share one copy

        def read(indices: Any) -> Any:
            chosen = tf.gather(items, indices)
            if self.decoder is None:
                return tf.cast(chosen, tf.float32)
            with tf.device("CPU:0"):
                encoded = tf.map_fn(tf.io.read_file, chosen, fn_output_signature=tf.string)
            return self.decoder(encoded)

        return read

    def split(self, fraction: float, *, seed: int) -> tuple["Images", "Images"]:
        """Splits the images at random into two parts.

        Args:
            fraction: share of the images in the second part, between 0 and 1.
            seed: different seeds give different splits.

        Raises:
            ValueError: a part would be empty.
        """
        count = round(fraction * len(self))
        if not 0 < count < len(self):
            raise ValueError(
                f"{self.source}: a share of {fraction:g} is {count} of {len(self)} images, which "
                "leaves one part empty: choose another share, or use more images"
            )
        order = np.random.default_rng(seed).permutation(len(self))
        return self._select(order[count:]), self._select(order[:count])

    def _select(self, indices: np.ndarray) -> "Images":
        weights = None if self.weights is None else [self.weights[i] for i in indices]
        return dataclasses.replace(
            self, items=self.items[indices], labels=self.labels[indices], weights=weights
        )


def load_digits() -> Images:
    """Loads scikit-learn's 1,797 handwritten digits, 8 x 8 pixels, grey, rescaled to 0 to 255.

    Raises:
        ImportError: scikit-learn is not installed.
    """
    try:
        from sklearn import datasets
    except ImportError as error:
        raise ImportError(
            "the digits need scikit-learn: pip install 'keras-transformers[images]'"
        ) from error
    pixels, labels = datasets.load_digits(return_X_y=True)
    pixels = np.round(pixels.reshape(-1, 8, 8, 1) * (255 / 16)).astype(np.uint8)
    return Images(pixels, labels.astype(np.int32), [str(i) for i in range(10)], "digits")


def load_idx(
    folder: str | os.PathLike[str], *, label_names: Sequence[str] = ()
) -> dict[str, Images]:
    """Loads MNIST, or data in its layout: train-images-idx3-ubyte and so on, plain or compressed.

    Debian's package `dataset-fashion-mnist` installs Fashion-MNIST in
    /usr/share/datasets/fashion-mnist.

    Args:
        folder: folder with the four files: images and labels, `train` and `t10k`.
        label_names: names of the classes in order, such as `FASHION_MNIST_LABELS`; by default
            their numbers.

    Returns:
        "train" and "test" images.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or the files do not match.
    """
    folder = Path(folder)
    splits: dict[str, Images] = {}
    for name, prefix in (("train", "train"), ("test", "t10k")):
        pixels = read_idx(_idx_file(folder, f"{prefix}-images-idx3-ubyte"), num_axes=3)
        labels = read_idx(_idx_file(folder, f"{prefix}-labels-idx1-ubyte"), num_axes=1)
        label_names = label_names or [str(i) for i in range(int(labels.max(initial=0)) + 1)]
        source = str(folder / f"{prefix}-images-idx3-ubyte")
        splits[name] = Images(pixels[..., None], labels.astype(np.int32), list(label_names), source)
    return splits


def read_idx(path: str | os.PathLike[str], *, num_axes: int) -> np.ndarray:
    """Reads a uint8 array of `num_axes` axes from a file in LeCun's IDX format, or compressed.

    The format: two zero bytes, the type (8 for uint8), the number of axes, the size of each axis
    in four bytes (big-endian), the values; see http://yann.lecun.com/exdb/mnist.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not an IDX file of that kind, or is damaged.
    """
    with compression.opened(path) as file:
        data = file.read()
    if data[:4] != bytes([0, 0, 8, num_axes]):
        raise ValueError(
            f"{path}: starts with the bytes {data[:4].hex(' ')}; an IDX file of uint8 in "
            f"{num_axes} axes starts with 00 00 08 {num_axes:02x}"
        )
    start = 4 + 4 * num_axes
    sizes = [int.from_bytes(data[at : at + 4], "big") for at in range(4, start, 4)]
    if len(data) != start + math.prod(sizes):
        raise ValueError(
            f"{path}: {len(data)} bytes, but {sizes} values take {start + math.prod(sizes)}: the "
            "file is damaged, fetch it again"
        )
    if 0 in sizes:  # NumPy has no array of some of these shapes
        raise ValueError(f"{path}: {sizes} values are none: fetch the file again")
    return np.frombuffer(data, np.uint8, offset=start).reshape(sizes)


@bad_rows()
def load_folder(folder: str | os.PathLike[str], decoder: Any) -> Images:
    """Loads images from one folder per class: FOLDER/<class>/<any name>.png, .jpg or .jpeg.

    Every file is decoded once to find damaged ones before training; pixels are read again on each
    pass. Other files are skipped, counted and reported.

    Args:
        folder: folder with one subfolder per class; classes are numbered by name.
        decoder: decodes images to one size, such as a `pipelines.ImageDecoder`.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: there are fewer than two classes, a class has no images, or files do not
            decode; the message names all of them.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder; check the path")
    entries = sorted(folder.iterdir())
    classes = [path for path in entries if path.is_dir()]
    if len(classes) < 2:
        raise ValueError(
            f"{folder}: {len(classes)} folders, but a classifier needs at least two classes: put "
            "the images into one folder per class"
        )
    paths: list[str] = []
    labels: list[int] = []
    others = len(entries) - len(classes)
    for label, path in enumerate(classes):
        files = sorted(path.iterdir())
        images = [str(file) for file in files if file.suffix.lower() in _SUFFIXES]
        if not images:
            raise ValueError(f"{path}: no {', '.join(_SUFFIXES)} files in this class")
        paths += images
        labels += [label] * len(images)
        others += len(files) - len(images)
    if others:
        _logger.warning("%s: skipped %d entries that are not images of a class", folder, others)
    bad = troubles_of(paths, decoder)
    for row, trouble in bad.items():
        reject(paths[row], trouble)
    kept = [row for row in range(len(paths)) if row not in bad]
    if not kept:
        raise ValueError(f"{folder}: no file can be read")
    names = [path.name for path in classes]
    ids = np.array(labels, np.int32)[kept]
    return Images(np.array(paths)[kept], ids, names, str(folder), decoder)


def troubles_of(paths: Iterable[str], decoder: Any) -> dict[int, str]:
    """Decodes every file; returns the number of each that fails -> what is wrong with it."""
    decode = tf.function(
        decoder.__call__, input_signature=[tf.TensorSpec([1], tf.string)], autograph=False
    )

    def trouble(path: str) -> str:
        if not Path(path).is_file():
            return "does not exist: correct the path, or drop the row"
        try:
            decode(tf.constant([Path(path).read_bytes()]))
        except (OSError, tf.errors.InvalidArgumentError) as error:
            reason = graph_errors.sentence(getattr(error, "message", str(error)))
            return f"does not decode ({reason}): repair or remove it"
        return ""

    with concurrent.futures.ThreadPoolExecutor() as pool:
        messages = list(pool.map(trouble, paths))
    return {row: message for row, message in enumerate(messages) if message}


def _idx_file(folder: Path, name: str) -> Path:
    """Returns the path of a file, compressed if only that exists."""
    plain = folder / name
    return next(filter(Path.is_file, [plain, *compression.compressed_names(plain)]), plain)
