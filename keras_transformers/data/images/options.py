"""Labelled images as options of a recipe, and how they are read."""

import dataclasses
from pathlib import Path
from typing import Any, Literal, NamedTuple

from keras_transformers.data.images.augmentation import Augmentation
from keras_transformers.data.images.labelled_images import (
    Images,
    load_digits,
    load_folder,
    load_idx,
)

__all__ = ["ImageFiles"]


class Splits(NamedTuple):
    """Images to learn from, to watch, and to measure on."""

    train: Images
    dev: Images
    test: Images


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageFiles:
    """A recipe's configuration may start with these."""

    data: str = "digits"  # or a folder: of IDX files, of classes, or of train/ and test/ of classes
    labels: tuple[str, ...] = ()  # of the classes in IDX files, in order; empty: their numbers
    image_size: int = 224  # PNG and JPEG files are resized to it; digits and IDX stay as they are
    num_channels: Literal[1, 3] = 3  # likewise; 1 is grey
    test_fraction: float = 0.2  # drawn at random, by the seed, from data that has no test set
    dev_fraction: float = 0.1  # of the rest; watched while training, it chooses nothing

    crop_padding: int = 1  # pixels by which an image is moved at most, in both directions
    flip: bool = False  # mirror half of the images; not for digits
    mixup: float = 0.0  # alpha; 0 does not mix

    def read_images(self, decoder: Any, *, seed: int) -> Splits:
        """Reads the images.

        Args:
            decoder: of PNG and JPEG files, a `pipelines.ImageDecoder`.
            seed: of the splits.

        Raises:
            FileNotFoundError: there is no such folder.
            ImportError: the digits need scikit-learn.
            ValueError: a file is damaged, or training and test images differ in kind.
        """
        folder, test = Path(self.data), None
        if self.data == "digits":
            train = load_digits()
        elif any(folder.glob("*-images-idx3-ubyte*")):
            train, test = load_idx(folder, label_names=self.labels).values()
        elif all((folder / part).is_dir() for part in ("train", "test")):
            train, test = (load_folder(folder / part, decoder) for part in ("train", "test"))
        else:
            train = load_folder(folder, decoder)
        if test is None:
            train, test = train.split(self.test_fraction, seed=seed)
        if (train.label_names, train.shape) != (test.label_names, test.shape):
            raise ValueError(
                f"{train.source} has the classes {list(train.label_names)} and images of "
                f"{train.shape}, {test.source} has {list(test.label_names)} and {test.shape}"
            )
        train, dev = train.split(self.dev_fraction, seed=seed)
        return Splits(train, dev, test)

    def augmentation(self) -> Augmentation:
        """What changes the training images."""
        return Augmentation(crop_padding=self.crop_padding, flip=self.flip, mixup=self.mixup)
