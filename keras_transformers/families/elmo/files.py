"""Converts ELMo weights from and to bilm-tf's files: an HDF5 file and its options.json."""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import keras
import numpy as np

from keras_transformers.convert.config_map import check_number, check_size
from keras_transformers.convert.containers.arrays import Arrays
from keras_transformers.convert.tensors import Form, NamedTensor, assign, in_folder
from keras_transformers.files import read_json, replaced, write_json
from keras_transformers.layers.char_cnn import CharacterCNN, CnnActivation, Highway
from keras_transformers.layers.recurrent import Recurrent
from keras_transformers.models.anatomy import only

if TYPE_CHECKING:
    from keras_transformers.tokenizers.word_vocabulary import WordVocabulary

__all__ = [
    "load_elmo",
    "read_elmo_options",
    "save_elmo",
    "save_elmo_encoder",
    "save_elmo_options",
]


def read_elmo_options(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads bilm-tf's `options.json` as arguments of `keras_transformers.families.elmo.elmo`.

    Args:
        path: the file.

    Returns:
        Keyword arguments that build the encoder it describes. The 261 characters of bilm-tf's
        training become 262, with padding.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not JSON, lacks a field, or describes a model without character inputs.

    Example:
        encoder = elmo(**read_elmo_options("elmo_options.json"), dropout=0.0)
    """
    path = Path(path)
    options = read_json(path)
    if "char_cnn" not in options:
        raise ValueError(f"{path}: has no field 'char_cnn'; only character models are supported")
    try:
        lstm, cnn = options["lstm"], options["char_cnn"]
        arguments: dict[str, Any] = {
            "projection_dim": check_size(path, "projection_dim", lstm["projection_dim"]),
            "lstm_dim": check_size(path, "dim", lstm["dim"]),
            "num_layers": check_size(path, "n_layers", lstm.get("n_layers", 1)),
            "use_skip_connections": bool(lstm.get("use_skip_connections")),
            "cell_clip": _clip(path, "cell_clip", lstm),
            "projection_clip": _clip(path, "proj_clip", lstm),
            "filters": _filters(path, cnn["filters"]),
            "activation": cnn["activation"],
            "num_highways": check_size(path, "n_highway", cnn.get("n_highway") or 0, least=0),
            "num_characters": check_size(
                path, "n_characters", {261: 262}.get(cnn["n_characters"], cnn["n_characters"])
            ),
            "max_characters": check_size(
                path, "max_characters_per_token", cnn["max_characters_per_token"]
            ),
            "character_dim": check_size(path, "embedding.dim", cnn["embedding"]["dim"]),
        }
    except KeyError as error:
        raise ValueError(f"{path}: has no field {error}") from error
    except (TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not bilm-tf's options ({error})") from error
    kinds = get_args(CnnActivation)
    if arguments["activation"] not in kinds:
        raise ValueError(
            f"{path}: activation={arguments['activation']!r:.100}; expected {' or '.join(kinds)}"
        )
    if arguments["projection_dim"] >= arguments["lstm_dim"]:  # there is no projection
        arguments["projection_clip"] = None
    return arguments


def _filters(path: Path, pairs: Any) -> list[tuple[int, ...]]:
    if not isinstance(pairs, list) or not all(isinstance(p, list) and len(p) == 2 for p in pairs):
        raise ValueError(f"{path}: filters={pairs!r:.100}; expected pairs of a width and a number")
    return [tuple(check_size(path, "filters", size) for size in pair) for pair in pairs]


def _clip(path: Path, name: str, lstm: Mapping[str, Any]) -> float | None:
    value = lstm.get(name)
    return None if value is None else check_number(path, name, value, least=1e-9)


def load_elmo(
    model: keras.Model,
    path: str | os.PathLike[str],
    *,
    options: str | os.PathLike[str] | None = None,
    ignore: Iterable[str] = (),
) -> None:
    """Loads bilm-tf's weights into an ELMo encoder.

    Unless every array is used or matches `ignore`, loading fails and the model is unchanged.
    Settings that the arrays do not reveal (clipping, skip connections, activation) are compared
    with the options.

    Args:
        model: an encoder from `keras_transformers.families.elmo.elmo`, or a model on top of one.
        path: the `.hdf5` file.
        options: the options.json. By default the file beside `path`: "x_options.json" for
            "x_weights.hdf5", or "options.json".
        ignore: wildcards of arrays to leave out, such as "softmax/*".

    Raises:
        FileNotFoundError: one of the files is missing.
        ValueError: a file is unreadable; the options differ from the model; or arrays are missing,
            left over or of another shape (the message lists them all).
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist: pass bilm-tf's weights, a .hdf5 file")
    options = Path(options) if options else _options_beside(path)
    _check_options(model, read_elmo_options(options), options)
    assign(_tensors(model), Arrays.of(path, _read_hdf5(path)), ignore=ignore)


def save_elmo(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Writes an ELMo encoder's weights in bilm-tf's format, atomically.

    The format does not store the padding embedding, which becomes zeros when the file is loaded.
    Word vectors do not depend on it.

    Args:
        model: an encoder from `keras_transformers.families.elmo.elmo`, or a model on it, such
            as `language_model`; other layers are left out.
        path: the `.hdf5` file. `save_elmo_options` writes the options.json that goes beside it.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: the model has no ELMo encoder.

    Example:
        save_elmo(model, "weights/weights.hdf5")
        save_elmo_options(model, "weights/options.json")
    """
    import h5py

    _check_is_elmo(model)
    arrays = {tensor.name: tensor.read() for tensor in _tensors(model)}
    with replaced(in_folder(path)) as scratch, h5py.File(scratch, "w") as file:
        for name, array in arrays.items():
            file[name] = array


def save_elmo_options(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Writes `options.json` for `read_elmo_options` and bilm-tf.

    Args:
        model: see `save_elmo`.
        path: the file to write.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: the model has no ELMo encoder.
    """
    _check_is_elmo(model)
    shape = _arguments(model)
    options = {
        "bidirectional": True,
        "lstm": {
            "dim": shape["lstm_dim"],
            "projection_dim": shape["projection_dim"],
            "n_layers": shape["num_layers"],
            "use_skip_connections": shape["use_skip_connections"],
            "cell_clip": shape["cell_clip"],
            "proj_clip": shape["projection_clip"],
        },
        "char_cnn": {
            "activation": shape["activation"],
            "embedding": {"dim": shape["character_dim"]},
            "filters": [list(pair) for pair in shape["filters"]],
            "max_characters_per_token": shape["max_characters"],
            "n_characters": shape["num_characters"],
            "n_highway": shape["num_highways"],
        },
    }
    write_json(in_folder(path), options)


def save_elmo_encoder(encoder: keras.Model, folder: Path, vocabulary: "WordVocabulary") -> None:
    """Writes an ELMo encoder in bilm-tf's layout.

    Args:
        encoder: an encoder from `keras_transformers.families.elmo.elmo`.
        folder: the folder for weights.hdf5, options.json and, if it lacks one, vocabulary.txt.
        vocabulary: the words that the encoder was trained to predict.
    """
    folder.mkdir(exist_ok=True)
    save_elmo(encoder, folder / "weights.hdf5")
    save_elmo_options(encoder, folder / "options.json")
    if not (folder / "vocabulary.txt").exists():
        vocabulary.write(folder / "vocabulary.txt")


def _options_beside(path: Path) -> Path:
    named_alike = path.with_name(path.stem.removesuffix("weights") + "options.json")
    for candidate in (named_alike, path.with_name("options.json")):
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(
        f"neither {named_alike} nor options.json is beside {path.name}, and the weights do not "
        "reveal clipping and skip connections: pass options=PATH"
    )


def _read_hdf5(path: Path) -> dict[str, np.ndarray]:
    """Reads all arrays by full name, such as "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/B"."""
    import h5py

    arrays: dict[str, np.ndarray] = {}

    def keep(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            arrays[name] = item[...]

    try:
        with h5py.File(path, "r") as file:
            file.visititems(keep)
    except (
        OSError,
        RuntimeError,
        KeyError,
        ValueError,
        TypeError,
    ) as error:  # all from h5py
        raise ValueError(
            f"{path}: not a readable HDF5 file ({error}); it may be truncated: download it again"
        ) from error
    return arrays


def _check_options(model: keras.Model, options: dict[str, Any], path: Path) -> None:
    """Raises ValueError unless the model matches the options."""
    _check_is_elmo(model)
    ours = _arguments(model)
    if ours["num_layers"] == 1:  # one layer has nothing to skip
        ours["use_skip_connections"] = options["use_skip_connections"]
    troubles = [
        f"{name} is {value} in the file but {ours[name]} in the model"
        for name, value in options.items()
        if value != ours[name]
    ]
    if troubles:
        raise ValueError(
            f"{path} does not describe model {model.name!r}: {'; '.join(troubles)}. "
            "Build the model with elmo(**read_elmo_options(path))"
        )


def _check_is_elmo(model: keras.Model) -> None:
    """Raises ValueError if layers of `elmo` are missing."""
    directions = [layer.reverse for layer in model.layers if isinstance(layer, Recurrent)]
    cnns = [layer for layer in model.layers if isinstance(layer, CharacterCNN)]
    if len(cnns) != 1 or set(directions) != {False, True}:
        raise ValueError(
            f"model {model.name!r} has no CharacterCNN, or no LSTMs (Recurrent) in both "
            "directions: build it with keras_transformers.families.elmo.model"
        )


def _arguments(model: keras.Model) -> dict[str, Any]:
    """Returns the arguments of `elmo` that built the encoder, like `read_elmo_options`."""
    names = {layer.name for layer in model.layers}
    cnn = only(model, CharacterCNN)
    forward = [x for x in model.layers if isinstance(x, Recurrent) and not x.reverse]
    lstm = forward[0].cell
    return {
        "lstm_dim": lstm.units,
        "projection_dim": lstm.output_dim,
        "num_layers": len(forward),
        "use_skip_connections": "forward_skip_1" in names,
        "cell_clip": lstm.cell_clip,
        "projection_clip": lstm.projection_clip,
        "filters": [tuple(pair) for pair in cnn.filters],
        "activation": cnn.activation,
        "num_highways": sum(isinstance(layer, Highway) for layer in model.layers),
        "num_characters": cnn.num_characters,
        "max_characters": model.input["character_ids"].shape[-1],
        "character_dim": cnn.embedding_dim,
    }


def _tensors(model: keras.Model) -> list[NamedTensor]:
    """Returns every array of the encoder with its name in the file."""
    tensors: list[NamedTensor] = []
    numbers = {False: 0, True: 0}
    num_highways = 0
    for layer in model.layers:
        if isinstance(layer, CharacterCNN):
            tensors += _of_cnn(layer)
        elif isinstance(layer, Highway):
            group = f"CNN_high_{num_highways}"
            num_highways += 1
            for part in ("carry", "transform"):
                dense = getattr(layer, part)
                tensors.append(NamedTensor(f"{group}/W_{part}", (dense.kernel,)))
                tensors.append(NamedTensor(f"{group}/b_{part}", (dense.bias,)))
        elif layer.name == "character_projection":
            tensors.append(NamedTensor("CNN_proj/W_proj", (layer.kernel,)))
            tensors.append(NamedTensor("CNN_proj/b_proj", (layer.bias,)))
        elif isinstance(layer, Recurrent):
            tensors += _of_lstm(layer.cell, int(layer.reverse), numbers[layer.reverse])
            numbers[layer.reverse] += 1
    return tensors


def _of_cnn(layer: CharacterCNN) -> Iterator[NamedTensor]:
    # Our ids are one higher: row 0 is padding, which is all zeros and not in the file.
    yield NamedTensor("char_embed", (layer.embeddings,), Form(absent=1))
    for index, (kernel, bias) in enumerate(zip(layer.kernels, layer.biases, strict=True)):
        # bilm-tf convolves in two dimensions, the first of which has size 1.
        yield NamedTensor(f"CNN/W_cnn_{index}", (kernel,), Form(ones=1))
        yield NamedTensor(f"CNN/b_cnn_{index}", (bias,))


def _of_lstm(cell: Any, direction: int, index: int) -> Iterator[NamedTensor]:
    group = f"RNN_{direction}/RNN/MultiRNNCell/Cell{index}/LSTMCell"
    # One matrix for the inputs and the previous output; the gates are in our order: i, j, f, o.
    kernels = (cell.input_projection.kernel, cell.recurrent_kernel)
    yield NamedTensor(f"{group}/W_0", kernels, Form(axis=0))
    yield NamedTensor(f"{group}/B", (cell.input_projection.bias,))
    if cell.projection_dim:
        yield NamedTensor(f"{group}/W_P_0", (cell.projection_kernel,))
