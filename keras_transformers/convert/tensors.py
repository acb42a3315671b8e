"""Moves named tensors into and out of a model without losing any."""

import contextlib
import fnmatch
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from keras_transformers.files import read_json, replaced

PICKLES = (".bin", ".pt", ".pth", ".ckpt")
_NO_PICKLES = (
    "is not read: such a file is a pickle, which can run any code when it is opened. Convert it to "
    "safetensors where you trust it: transformers' save_pretrained or safetensors.torch.save_file "
    "writes model.safetensors"
)


@dataclass(frozen=True)
class NamedVariable:
    """A model's variable, and the name of its tensor in a file.

    Attributes:
        variable: the Keras variable.
        name: the tensor's name.
        transpose: whether the tensor is the transposed matrix.
    """

    variable: Any
    name: str
    transpose: bool = False

    @property
    def tensor_shape(self) -> tuple[int, ...]:
        """The shape that the tensor must have."""
        shape = tuple(self.variable.shape)
        return shape[::-1] if self.transpose else shape


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Reads every tensor of a checkpoint.

    Args:
        path: a `.safetensors` file, or a folder with `model.safetensors` or with the shards that
            `model.safetensors.index.json` lists.

    Returns:
        Arrays by name, with the dtypes of the file, including bfloat16 and float16.

    Raises:
        FileNotFoundError: the file does not exist, the folder has none, or a shard is missing.
        ValueError: the file is damaged or not in the safetensors format, or the list of shards is
            damaged.
    """
    tensors: dict[str, np.ndarray] = {}
    for file in _safetensors_files(Path(path)):
        tensors.update(_read_file(file))
    return tensors


def tensor_names(path: str | os.PathLike[str]) -> set[str]:
    """Returns the names of a checkpoint's tensors, and reads no values; see `read_safetensors`."""
    names: set[str] = set()
    for file in _safetensors_files(Path(path)):
        with _opened(file) as opened:
            names.update(opened.keys())
    return names


def _read_file(file: Path) -> dict[str, np.ndarray]:
    with _opened(file) as opened:
        return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy") as opened:
            yield opened
    except SafetensorError as error:
        raise ValueError(
            f"{file}: not a readable safetensors file ({error}); it may be truncated: download it "
            "again"
        ) from error


def _safetensors_files(path: Path) -> list[Path]:
    if path.is_file():
        if path.suffix in PICKLES:
            refuse_pickle(path)
        return [path]
    whole, index = path / "model.safetensors", path / "model.safetensors.index.json"
    if whole.is_file():
        return [whole]
    if index.is_file():
        shards = _shards(index)
        present = {file.name for file in path.iterdir() if file.is_file()}
        missing = [shard for shard in shards if shard not in present]
        if missing:
            raise FileNotFoundError(f"{index} lists {', '.join(missing)}, which {path} lacks")
        return [path / shard for shard in shards]
    pickles = [file for suffix in PICKLES for file in sorted(path.glob(f"*{suffix}"))]
    if pickles:
        raise FileNotFoundError(f"{path} has no model.safetensors, and {pickles[0]} {_NO_PICKLES}")
    raise FileNotFoundError(
        f"{path} is neither a .safetensors file nor a folder with model.safetensors"
    )


def refuse_pickle(path: Path) -> NoReturn:
    """Raises ValueError, which says why a pickle is not read and what to do."""
    raise ValueError(f"{path} {_NO_PICKLES}")


def _shards(index: Path) -> list[str]:
    """Returns the names of the files that an index lists, all in its own folder."""
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError(f'{index}: has no "weight_map" from tensors to files: download it again')
    for tensor, shard in weight_map.items():
        if not isinstance(shard, str) or not shard or Path(shard).name != shard:
            raise ValueError(
                f"{index}: weight_map has {shard!r} for {tensor}, not the name of a file beside it"
            )
    return sorted(set(weight_map.values()))


def assign(
    variables: Iterable[NamedVariable],
    tensors: Mapping[str, np.ndarray],
    *,
    source: str,
    ignore: Iterable[str] = (),
    buffers: Iterable[str] = (),
) -> list[str]:
    """Assigns tensors to all variables; if anything is wrong, changes nothing and lists it all.

    Args:
        variables: the variables and the names of their tensors.
        tensors: the checkpoint's tensors.
        source: the checkpoint's name, for the error message.
        ignore: wildcards of tensors that may stay unused.
        buffers: wildcards of tensors that are no weights.

    Returns:
        The names of the tensors that `ignore` left out.

    Raises:
        ValueError: tensors are missing, left over, of another shape, not floating-point numbers, or
            not finite.
    """
    variables, ignore, buffers = list(variables), list(ignore), list(buffers)
    wanted = {named.name for named in variables}
    missing = sorted(wanted - set(tensors))
    weights = {name for name in set(tensors) - wanted if not _matches(name, buffers)}
    left_out = sorted(name for name in weights if _matches(name, ignore))
    unused = sorted(weights.difference(left_out))
    misshapen = [
        f"{named.name} is {tuple(tensors[named.name].shape)}, {named.variable.path} needs "
        f"{named.tensor_shape}"
        for named in variables
        if named.name in tensors and tuple(tensors[named.name].shape) != named.tensor_shape
    ]
    troubles = [
        f"{title}: {', '.join(names)}"
        for title, names in (
            ("missing from the file", missing),
            ("of another shape", misshapen),
            ("in the file but not used (name them in `ignore` to leave them out)", unused),
        )
        if names
    ]
    troubles += unusable({name: tensors[name] for name in wanted & tensors.keys()})
    if troubles:
        raise ValueError(f"{source} does not fit the model. " + ". ".join(troubles))
    for named in variables:
        tensor = tensors[named.name].astype("float32")
        named.variable.assign(tensor.T if named.transpose else tensor)
    return left_out


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def unusable(tensors: Mapping[str, np.ndarray]) -> list[str]:
    """Lists the tensors that cannot be weights: those not of floating-point numbers, and with NaN.

    Returns:
        A phrase for each of the two troubles that occur.
    """
    not_floating, not_finite = [], []
    for name, tensor in sorted(tensors.items()):
        if tensor.dtype.kind in "biuc":  # bfloat16 has a kind of its own
            not_floating.append(f"{name} is {tensor.dtype}")
            continue
        count = np.count_nonzero(~np.isfinite(tensor.astype("float32")))
        if count:
            not_finite.append(f"{name} has {count} of {tensor.size}")
    found = {"no floating-point numbers": not_floating, "with NaN or infinity": not_finite}
    return [f"{title}: {', '.join(names)}" for title, names in found.items() if names]


def drop_copies(tensors: dict[str, np.ndarray], copies: Mapping[str, str], *, source: str) -> None:
    """Removes copies of tied weights; a copy replaces its original if that is missing.

    Args:
        tensors: the checkpoint's tensors, modified in place.
        copies: name of each possible copy -> name of its original.
        source: the checkpoint's name, for the error message.

    Raises:
        ValueError: a copy differs from its original.
    """
    for copy, original in copies.items():
        if copy in tensors:
            array = tensors.pop(copy)
            if not np.array_equal(array, tensors.setdefault(original, array)):
                raise ValueError(
                    f"{source}: {copy} differs from {original}, but the model ties them"
                )


def in_folder(path: str | os.PathLike[str]) -> Path:
    """Returns the path; FileNotFoundError unless its folder exists."""
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"folder {path.parent} does not exist: create it first")
    return path


def write_safetensors(variables: Iterable[NamedVariable], path: str | os.PathLike[str]) -> None:
    """Writes variables by name, in float32, atomically.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    from safetensors.numpy import save_file

    path = in_folder(path)
    tensors = {}
    for named in variables:
        array = np.asarray(named.variable, dtype="float32")
        tensors[named.name] = np.ascontiguousarray(array.T if named.transpose else array)
    with replaced(path) as scratch:
        save_file(tensors, scratch, {"format": "pt"})
