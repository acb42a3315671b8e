"""Moves named tensors into and out of a model without losing any."""

import fnmatch
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformers.convert.containers.arrays import Arrays
from keras_transformers.convert.memory import as_tensor, copied
from keras_transformers.dependencies.private_api import has_value, set_value
from keras_transformers.dependencies.untyped import Tensor
from keras_transformers.files import replaced

__all__ = ["NamedTensor", "assign"]


@dataclass(frozen=True)
class Form:
    """How a tensor in a file stores one variable, or several side by side.

    Attributes:
        order: the variable's axes in the order of the tensor's; None if they are the same.
        ones: how many axes of size 1 the tensor has before the variable's.
        axis: the axis along which the variables are concatenated.
        absent: how many of the variable's first rows the tensor lacks; they become zeros.
        added: what the variable's values are larger by than the tensor's.
    """

    order: tuple[int, ...] | None = None
    ones: int = 0
    axis: int = -1
    absent: int = 0
    added: float = 0.0

    def shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """Returns the tensor's shape for variables of these shapes."""
        sizes = list(shapes[0])
        sizes[self.axis] = sum(shape[self.axis] for shape in shapes)
        sizes[0] -= self.absent
        moved = sizes if self.order is None else [sizes[axis] for axis in self.order]
        return (*[1] * self.ones, *moved)

    def values(self, tensor: np.ndarray, shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
        """Returns the variables' values in a tensor, as views of it where that is possible."""
        array = tensor.reshape(tensor.shape[self.ones :])
        if self.order is not None:
            array = array.transpose(np.argsort(self.order))
        if self.absent:
            rows = np.zeros((self.absent, *array.shape[1:]), array.dtype)
            array = np.concatenate([rows, array])
        if self.added:
            array = array.astype("float32") + np.float32(self.added)
        ends = np.cumsum([shape[self.axis] for shape in shapes])[:-1]
        return list(np.split(array, ends, self.axis))

    def tensor(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the tensor that holds these values."""
        array = values[0] if len(values) == 1 else np.concatenate(values, self.axis)
        array = array[self.absent :] if self.absent else array
        array = array - np.float32(self.added) if self.added else array
        array = array if self.order is None else copied(array.transpose(self.order), array.dtype)
        return np.ascontiguousarray(array.reshape((*[1] * self.ones, *array.shape)))


PLAIN = Form()
TRANSPOSED = Form(order=(1, 0))  # PyTorch's dense layers


@dataclass(frozen=True)
class NamedTensor:
    """A tensor in a file, and the model's variables that it stores.

    Attributes:
        name: the tensor's name.
        variables: the Keras variables, usually one.
        form: how it stores their values.
    """

    name: str
    variables: tuple[Any, ...]
    form: Form = PLAIN

    @property
    def shape(self) -> tuple[int, ...]:
        """The required shape of the tensor."""
        return self.form.shape(self._shapes())

    @property
    def paths(self) -> str:
        """The variables' paths in the model, for error messages."""
        return " and ".join(variable.path for variable in self.variables)

    def read_from(self, arrays: Arrays) -> np.ndarray:
        """Returns the tensor, for `values` or `fill`, until the next one is read."""
        return arrays[self.name] if self.form == PLAIN else arrays.lent(self.name)

    def values(self, tensor: np.ndarray) -> list[Tensor]:
        """Returns the variables' values in a tensor, which may take over its memory."""
        values = self.form.values(tensor, self._shapes())
        return [
            as_tensor(value, "float64" if variable.dtype == "float64" else "float32")
            for variable, value in zip(self.variables, values, strict=True)
        ]

    def set(self, values: Sequence[Tensor]) -> None:
        """Assigns their values to the variables."""
        for variable, value in zip(self.variables, values, strict=True):
            set_value(variable, value)

    def fill(self, tensor: np.ndarray) -> None:
        """Assigns the tensor's values to the variables, which may take over its memory."""
        self.set(self.values(tensor))

    def read(self) -> np.ndarray:
        """Returns the tensor with the variables' values, in float32."""
        return self.form.tensor([np.asarray(variable, "float32") for variable in self.variables])

    def _shapes(self) -> list[tuple[int, ...]]:
        return [tuple(variable.shape) for variable in self.variables]


def assign(
    named: Iterable[NamedTensor],
    arrays: Arrays,
    *,
    ignore: Iterable[str] = (),
    buffers: Iterable[str] = (),
) -> list[str]:
    """Fills variables from tensors; if anything is wrong, changes nothing and lists every problem.

    See `read_values` for what is in memory.

    Args:
        named: the model's tensors.
        arrays: the file's tensors.
        ignore: wildcards of tensors that may stay unused.
        buffers: wildcards of tensors that are not weights.

    Returns:
        The names of the tensors that `ignore` left out.

    Raises:
        ValueError: tensors are missing, left over, of another shape, not floating-point numbers, or
            not finite.
    """
    named, ignore, buffers = list(named), list(ignore), list(buffers)
    shapes, wanted = arrays.shapes, {tensor.name for tensor in named}
    weights = {name for name in shapes.keys() - wanted if not _matches(name, buffers)}
    left_out = sorted(name for name in weights if _matches(name, ignore))
    misshapen = {
        tensor.name: f"{tensor.name} is {shape}, {tensor.paths} needs {tensor.shape}"
        for tensor in named
        if (shape := tuple(shapes.get(tensor.name, tensor.shape))) != tensor.shape
    }
    troubles = [
        f"{title}: {', '.join(names)}"
        for title, names in (
            ("missing from the file", sorted(wanted - shapes.keys())),
            ("of another shape", list(misshapen.values())),
            (
                "in the file but not used (name them in `ignore` to leave them out)",
                sorted(weights.difference(left_out)),
            ),
        )
        if names
    ]
    fitting = [tensor for tensor in named if tensor.name in shapes.keys() - misshapen.keys()]
    values, unusable = read_values(fitting, arrays)
    troubles += unusable
    if troubles:
        raise ValueError(f"{arrays.source} does not fit the model. " + ". ".join(troubles))
    set_values(named, arrays, values)
    return left_out


def read_values(
    named: Iterable[NamedTensor], arrays: Arrays
) -> tuple[dict[str, list[Tensor]], list[str]]:
    """Reads and checks tensors.

    The first values of variables are read once, and the variables take over their memory. Variables
    that have values keep them until all are checked; so that not all values are in memory twice,
    the new ones are read again.

    Returns:
        For `set_values`, the first values of variables by their tensor's name; and a phrase for
        each of the problems in `unusable` that occurs.
    """
    values: dict[str, list[Tensor]] = {}

    def read() -> Iterator[tuple[str, np.ndarray]]:
        for tensor in named:
            array = tensor.read_from(arrays)
            yield tensor.name, array
            if _is_floating(array) and not any(map(has_value, tensor.variables)):
                values[tensor.name] = tensor.values(array)

    return values, unusable(read())


def set_values(
    named: Iterable[NamedTensor], arrays: Arrays, values: dict[str, list[Tensor]]
) -> None:
    """Assigns tensors that `read_values` found usable to their variables."""
    for tensor in named:
        if tensor.name in values:
            tensor.set(values.pop(tensor.name))
        else:
            tensor.fill(tensor.read_from(arrays))


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def unusable(tensors: Iterable[tuple[str, np.ndarray]]) -> list[str]:
    """Lists the tensors that cannot be weights: those that are not floating-point, or have NaN.

    Args:
        tensors: the name of each, and its values.

    Returns:
        A phrase for each of the two problems that occurs.
    """
    not_floating, not_finite = [], []
    for name, tensor in tensors:
        if not _is_floating(tensor):
            not_floating.append(f"{name} is {tensor.dtype}")
            continue
        values = tensor.astype("float32", copy=False)
        flat = values.ravel("K")
        with np.errstate(all="ignore"):
            squares = np.dot(flat, flat)  # if their sum is finite, so is every value
        if not np.isfinite(squares) and not np.isfinite(values).all():
            count = np.count_nonzero(~np.isfinite(values))
            not_finite.append(f"{name} has {count} of {tensor.size}")
    problems = {"not floating-point": not_floating, "with NaN or infinity": not_finite}
    return [f"{title}: {', '.join(sorted(names))}" for title, names in problems.items() if names]


def _is_floating(array: np.ndarray) -> bool:
    return array.dtype.kind not in "biuc"  # bfloat16 has its own kind


def without_copies(arrays: Arrays, copies: Mapping[str, str]) -> Arrays:
    """Removes copies of tied weights; a copy replaces its original if that is missing.

    Args:
        arrays: the file's tensors.
        copies: name of each possible copy -> name of its original.

    Raises:
        ValueError: a copy differs from its original.
    """
    for copy, original in copies.items():
        if copy not in arrays:
            continue
        if original not in arrays:
            arrays = arrays.including(original, arrays[copy])
        elif arrays.shapes[copy] != arrays.shapes[original] or not np.array_equal(
            arrays[copy], arrays[original]
        ):
            raise ValueError(
                f"{arrays.source}: {copy} differs from {original}, but the model ties them"
            )
        arrays = arrays.without(copy)
    return arrays


def in_folder(path: str | os.PathLike[str]) -> Path:
    """Returns the path; FileNotFoundError unless its folder exists."""
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"folder {path.parent} does not exist: create it first")
    return path


def write_safetensors(named: Iterable[NamedTensor], path: str | os.PathLike[str]) -> None:
    """Writes a model's tensors, in float32, atomically.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    from safetensors.numpy import save_file

    path = in_folder(path)
    tensors = {tensor.name: tensor.read() for tensor in named}
    with replaced(path) as scratch:
        save_file(tensors, scratch, {"format": "pt"})
