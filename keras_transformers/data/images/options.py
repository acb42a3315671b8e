"""Defines recipe options for labelled images, and reads the images."""

import dataclasses
from pathlib import Path
from typing import Any, Literal, NamedTuple

from keras_transformers.data.bad_rows import RowOptions
from keras_transformers.data.faults import log_faults
from keras_transformers.data.images.augmentation import Augmentation
from keras_transformers.data.images.labelled_images import (
    Images,
    load_digits,
    load_folder,
    load_idx,
)
from keras_transformers.ranges import (
    Default,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    Rate,
)

__all__ = ["ImageAugmentation", "ImageFiles"]


class Splits(NamedTuple):
    """Images for training, validation and testing."""

    train: Images
    dev: Images
    test: Images


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageAugmentation:
    """How training images are changed; a base class for options."""

    rotation: NonNegativeFloat = 0.0  # largest random rotation in degrees, either way; 0: none
    zoom: Rate = 0.0  # largest random stretch of width and height, such as 0.1; 0: none
    crop_padding: NonNegativeInt = 1  # largest random shift in pixels, in each direction; 0: none
    flip: bool = False  # mirror half of the images; not for digits
    mixup: NonNegativeFloat = 0.0  # alpha of mixup; 0: none

    def augmentation(self) -> Augmentation:
        """Returns the augmentation of the training images."""
        names = [field.name for field in dataclasses.fields(Augmentation)]
        return Augmentation(**{name: getattr(self, name) for name in names})


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageFiles(RowOptions):
    """Image options; a base class for recipe configurations."""

    data: str = "digits"  # or a folder: of IDX files, of classes, or of train/ and test/ of classes
    labels: tuple[str, ...] = ()  # names of the classes in IDX files; empty: their numbers
    # size to resize PNG and JPEG files to; digits and IDX keep theirs
    image_size: PositiveInt = Default(224)
    # channels of PNG and JPEG files; 1 is grey; None: those of the model's weights, else 3
    num_channels: Literal[1, 3] | None = None
    test_fraction: Fraction = 0.2  # share held out at random if the data has no test set
    dev_fraction: Fraction = 0.1  # share of the rest for validation; used for monitoring only

    def read_images(self, decoder: Any, *, seed: int) -> Splits:
        """Reads the images.

        Args:
            decoder: a `pipelines.ImageDecoder` for PNG and JPEG files.
            seed: seed for the splits.

        Raises:
            FileNotFoundError: there is no such folder.
            ImportError: `data` is "digits" and scikit-learn is not installed.
            ValueError: a file is damaged, or training and test images differ in class or shape.
        """
        with self.bad_rows():
            train, test = self._read(decoder)
        log_faults(train, test)
        if test is None:
            train, test = train.split(self.test_fraction, seed=seed)
        if (train.label_names, train.shape) != (test.label_names, test.shape):
            raise ValueError(
                f"{train.source} has the classes {list(train.label_names)} and images of shape "
                f"{train.shape}, but {test.source} has {list(test.label_names)} and {test.shape}"
            )
        train, dev = train.split(self.dev_fraction, seed=seed)
        return Splits(train, dev, test)

    def _read(self, decoder: Any) -> tuple[Images, Images | None]:
        folder = Path(self.data)
        if self.data == "digits":
            return load_digits(), None
        if any(folder.glob("*-images-idx3-ubyte*")):
            train, test = load_idx(folder, label_names=self.labels).values()
            return train, test
        if all((folder / part).is_dir() for part in ("train", "test")):
            return load_folder(folder / "train", decoder), load_folder(folder / "test", decoder)
        return load_folder(folder, decoder), None
