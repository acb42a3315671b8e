"""Opens bilm-tf's folders: ELMo's weights in HDF5 and their options."""

from collections.abc import Iterable
from pathlib import Path

import keras

from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.weights import Format, FoundWeights
from keras_transformers.families.elmo.files import load_elmo, read_elmo_options
from keras_transformers.families.elmo.model import elmo

__all__: list[str] = []


def open_bilm_tf(folder: Folder) -> FoundWeights:
    """Opens a folder with one `*weights.hdf5` and the `*options.json` beside it.

    Raises:
        ValueError: there are several such files, or the options are damaged.
    """
    weights, options = _files(folder)
    if len(weights) != 1 or len(options) != 1:
        names = ", ".join(file.name for file in [*weights, *options])
        raise ValueError(f"{folder} has {names}: keep one weights file and one options file")
    arguments = read_elmo_options(options[0])

    def fill(model: keras.Model, ignore: Iterable[str]) -> list[str]:
        load_elmo(model, weights[0], options=options[0], ignore=ignore)
        return []

    return FoundWeights(
        source=folder.path,
        base="word_embedding",
        trained=("word_embedding",),
        build=lambda **changes: elmo(**(arguments | changes)),
        fill=fill,
        tokenizers=lambda lowercase=None: (),
    )


def _files(folder: Folder) -> tuple[list[Path], list[Path]]:
    return sorted(folder.path.glob("*weights.hdf5")), sorted(folder.path.glob("*options.json"))


FORMAT = Format(
    "bilm-tf's weights.hdf5 with options.json", lambda folder: all(_files(folder)), open_bilm_tf
)
