"""Opens a user's own Keras 2 model around a TensorFlow class of transformers, in one HDF5 file.

`model.save` also stored the class's configuration in the file; `save_weights` did not, so
config.json must be beside it.
"""

import glob
import logging
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import keras

from keras_transformers.convert.containers.arrays import Arrays
from keras_transformers.convert.containers.hdf5 import hdf5_attributes, is_hdf5
from keras_transformers.convert.containers.keras_names import is_keras_name
from keras_transformers.convert.families import encoders, family_of
from keras_transformers.convert.folder import Folder
from keras_transformers.convert.formats.huggingface import open_huggingface
from keras_transformers.convert.formats.tokenizer_files import longest_text, read_tokenizers
from keras_transformers.convert.formats.weights import Format, FoundWeights
from keras_transformers.files import naming, write_json
from keras_transformers.files.reading import parse_json

__all__: list[str] = []

_logger = logging.getLogger(__name__)

_TF_MODEL = "tf_model.h5"


def open_keras_h5(folder: Folder) -> FoundWeights:
    """Opens a model with a TensorFlow encoder of transformers as a layer, or a `tf_model.h5`.

    The encoder is loaded. The user's own dense layer is left out, and a warning says how to copy
    its values into a new head.

    Raises:
        FileNotFoundError: there is no vocabulary beside the file, or no config.json if it needs
            one.
        ValueError: the file is damaged or has no such encoder, or its configuration needs something
            that the layers here lack.
    """
    file = folder.path
    beside = file.with_name("config.json")
    if file.name == _TF_MODEL and beside.is_file():
        return open_huggingface(Folder(file.parent))
    arrays = folder.arrays
    others = other_layers(arrays)
    if not any("word_embeddings" in name and name not in others for name in arrays):
        raise ValueError(
            f"{file}: an HDF5 file of unknown origin, with {', '.join(sorted(arrays))[:200]}. "
            "Expected a model around a TensorFlow encoder of transformers, or one of keras-bert or "
            "bert4keras; if the file is part of a folder, such as a preset, pass the folder"
        )
    configs = [
        layer["config"] for layer in keras_layers(file).values() if "model_type" in layer["config"]
    ]
    if not configs and not beside.is_file():
        raise FileNotFoundError(
            f"{file} has only weights, which do not reveal the number of heads: copy the "
            f"config.json of the encoder that the model was built on to {beside}"
        )
    with tempfile.TemporaryDirectory() as scratch, naming({Path(scratch): file}):
        described = Folder(scratch if configs else file.parent)
        if configs:
            write_json(described / "config.json", configs[0])
        family = family_of(described, encoders())
        arguments = family.read(described)
        length = longest_text(described)

    def filled(model: keras.Model, ignore: Iterable[str]) -> list[str]:
        left_out = family.fill(model, arrays, ignore=ignore)
        report_other_layers(file, others)
        return [name for name in left_out if name not in others]

    return FoundWeights(
        source=file,
        base=family.task,
        trained=(family.task,),
        build=lambda **changes: family.build(**(arguments | changes)),
        fill=filled,
        tokenizers=lambda lowercase=None: read_tokenizers(file.parent, family, lowercase=lowercase),
        parts=(*family.parts, *map(glob.escape, others)),
        has_pooler=any(name.endswith("pooler.dense.weight") for name in arrays),
        max_sequence_length=length or family.longest_text,
        masked_lm={"activation": arguments["activation"]},
    )


def keras_layers(file: Path) -> dict[str, dict[str, Any]]:
    """Returns name -> description of a Keras 2 model's layers, including those of nested models.

    It is empty if the file has only weights.

    Raises:
        ValueError: the description is damaged.
    """
    text = hdf5_attributes(file).get("model_config")
    if text is not None and not isinstance(text, str | bytes):
        raise ValueError(f"{file}: its model_config is not text; save it again")
    place = f"{file}: model_config"
    left = [] if text is None else [parse_json(text, place, remedy="save it again")]
    layers: dict[str, dict[str, Any]] = {}
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            config, name = value.get("config"), value.get("name")
            if "class_name" in value and isinstance(config, dict):
                layers[str(config.get("name", name))] = value
            left += value.values()
    return layers


def other_layers(arrays: Arrays) -> dict[str, tuple[int, ...]]:
    """Returns path -> shape of the weights of the user's own layers."""
    return {name: shape for name, shape in arrays.shapes.items() if is_keras_name(name)}


def report_other_layers(file: Path, weights: Mapping[str, tuple[int, ...]]) -> None:
    """Warns which weights are left out, and how to add them."""
    if weights:
        _logger.warning(
            "%s: its own layers are not loaded: %s. A new head takes a dense layer's values: pass "
            "pipeline='classification' (or another) with labels=[...], and pooling='pooler', 'cls' "
            "or 'mean', whichever the layer read; then call "
            "model.get_layer('logits').set_weights([kernel, bias]) with the arrays at these paths "
            "in h5py.File(%r)",
            file, ", ".join(f"{name} {shape}" for name, shape in weights.items()), str(file),
        )  # fmt: skip


FORMAT = Format(
    "a Keras 2 model around a TensorFlow encoder of transformers (.h5)",
    lambda folder: folder.path.is_file() and is_hdf5(folder.path),
    open_keras_h5,
)
