"""Averages the last weights of a training, while it runs or from files.

Checkpoint averaging (Vaswani et al. 2017, section 6.1: the last 5 weights of the base model, 20 of
the big one, ten minutes apart) gives most of the gain of an ensemble.

Keras also offers an exponential moving average: compile with `optimizers.adam(..., ema=0.999)` and
pass `fit` the callback `SwapAverageWeights()`, before any callback that evaluates or saves.
"""

import contextlib
import io
import os
import zipfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import h5py
import keras
import ml_dtypes
import numpy as np

from keras_transformers.dependencies.private_api import has_averages, set_has_averages
from keras_transformers.files import check_new, replaced

__all__ = ["AverageLastWeights", "SwapAverageWeights", "average_weights"]

_WEIGHTS_MEMBER = "model.weights.h5"  # of a .keras archive
_SUFFIXES = (".weights.h5", ".keras")


class AverageLastWeights(keras.callbacks.Callback):
    """Keeps the last few weights in memory, and averages them on request.

        averaging = AverageLastWeights(num_kept=5)
        model.fit(..., callbacks=[averaging])
        with averaging.averaged_weights():
            model.evaluate(...)   # with the average
        averaging.apply()         # for good

    Callbacks after it may evaluate under `averaged_weights()` at the end of an epoch.

    Floating-point weights are averaged in float64; others keep their newest value. This takes
    `num_kept` times the memory of the weights: if that is too much, let
    `keras.callbacks.ModelCheckpoint` write files and use `average_weights`. To survive a stop,
    pass this callback to `runs.resume.Resume`.

    Args:
        num_kept: how many weights of the model to keep; older ones are dropped.
        frequency: "epoch", or the number of batches between those that are kept.

    Raises:
        ValueError: `num_kept` or a numeric `frequency` is below 1.
    """

    def __init__(self, *, num_kept: int = 5, frequency: Literal["epoch"] | int = "epoch") -> None:
        super().__init__()
        if num_kept < 1:
            raise ValueError(f"num_kept is {num_kept}, must be 1 or more")
        if frequency != "epoch" and (not isinstance(frequency, int) or frequency < 1):
            raise ValueError(f"frequency is {frequency!r}, must be 'epoch' or 1 or more batches")
        self.num_kept = num_kept
        self.frequency = frequency
        self._kept: deque[list[np.ndarray]] = deque(maxlen=num_kept)
        self._num_batches = 0

    def __len__(self) -> int:
        """Returns how many weights of the model are kept so far."""
        return len(self._kept)

    def state(self) -> list[np.ndarray]:
        """Returns what is kept, for `runs.resume.Resume`."""
        counts = np.array([self._num_batches, len(self._kept)])
        return [counts, *(array for weights in self._kept for array in weights)]

    def load_state(self, arrays: Sequence[np.ndarray]) -> None:
        """Restores what `state` returned."""
        counts, *weights = arrays
        self._num_batches, num_kept = map(int, counts)
        self._kept.clear()
        if num_kept:
            size = len(weights) // num_kept
            self._kept += [weights[i : i + size] for i in range(0, len(weights), size)]

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        """Counts the batch and keeps the weights if they are due."""
        self._num_batches += 1
        if self.frequency != "epoch" and self._num_batches % self.frequency == 0:
            self._kept.append(self.model.get_weights())

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Keeps the weights if they are due every epoch."""
        if self.frequency == "epoch":
            self._kept.append(self.model.get_weights())

    @contextlib.contextmanager
    def averaged_weights(self) -> Iterator[None]:
        """Gives the model the average inside a `with` block; afterwards it has its own weights.

        Raises:
            ValueError: no weights have been kept yet.
        """
        last = self.model.get_weights()
        self.apply()
        try:
            yield
        finally:
            self.model.set_weights(last)

    def apply(self) -> None:
        """Gives the model the average for good; the optimizer's state does not change.

        Raises:
            ValueError: no weights have been kept yet.
        """
        if not self._kept:
            interval = "epoch" if self.frequency == "epoch" else f"{self.frequency} batches"
            raise ValueError(
                f"no weights to average after {self._num_batches} batches: they are kept once per "
                f"{interval}; train longer, or keep them more often"
            )
        self.model.set_weights([_mean(values) for values in zip(*self._kept, strict=True)])

    def keep_better(self, score: Callable[[str], float]) -> str:
        """Gives the model its last weights or the average, whichever scores higher.

        Args:
            score: called with the name of the model's current weights, "last" or "average of 5".
                It must use the validation set: choosing by the test set would bias its score.

        Returns:
            The name of the weights that were kept; "last" if both score the same.

        Raises:
            ValueError: no weights have been kept yet.
        """
        score_of_last = score("last")
        average = f"average of {len(self)}"
        with self.averaged_weights():
            is_better = score(average) > score_of_last
        if not is_better:
            return "last"
        self.apply()
        return average


class SwapAverageWeights(keras.callbacks.SwapEMAWeights):
    """Keras' SwapEMAWeights, at the end of each epoch, for runs that can be resumed.

    Between epochs the model has the averages and the optimizer keeps the training weights: a
    resumed run must swap them back first, or it would train the averages. If training stops before
    its last epoch, Keras restores the training weights when `fit` returns: to get the averages,
    load the file of a `SaveWeights` after this callback.
    """

    def __init__(self) -> None:
        super().__init__(swap_on_epoch=True)

    def state(self) -> list[np.ndarray]:
        """Returns whether the model has the averages, for `runs.resume.Resume`."""
        return [np.array(has_averages(self))]

    def load_state(self, arrays: Sequence[np.ndarray]) -> None:
        """Restores what `state` returned."""
        set_has_averages(self, bool(arrays[0]))


def average_weights(
    paths: Sequence[str | os.PathLike[str]], output: str | os.PathLike[str]
) -> Path:
    """Averages `.weights.h5` or `.keras` files that Keras wrote into one of the same kind.

    Floating-point weights are averaged in float64. Everything else (configuration, integers, the
    optimizer's state) comes from the last file. The output is written completely or not at all.

    Args:
        paths: weights of one model, the newest last.
        output: the file to write, with the same suffix.

    Returns:
        The path of the output.

    Raises:
        FileExistsError: the output exists.
        FileNotFoundError: a file does not exist.
        ValueError: there are no paths, a file is not one that Keras wrote, their kinds differ, or a
            weight is missing from a file, differs in shape or is not finite. The message lists all
            such weights.
    """
    files = [Path(path) for path in paths]
    output = Path(output)
    _check_files(files, output)
    with contextlib.ExitStack() as stack:
        opened = {file: stack.enter_context(_open(file)) for file in files}
        weights = _common_weights(opened)
        averaged = io.BytesIO(_h5_bytes(files[-1]))
        with h5py.File(averaged, "r+") as target:
            for name in weights:
                values = [_read(file, h5[name]) for file, h5 in opened.items()]
                with _naming(files[-1]):
                    target[name][...] = _mean(values).view(target[name].dtype)
    with replaced(output) as scratch:
        _write(scratch, averaged.getvalue(), like=files[-1])
    return output


def _mean(values: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the mean of floating-point arrays, in their type; of other arrays, the last one."""
    last = values[-1]
    if not keras.backend.is_float_dtype(last.dtype.name):
        return last
    total = np.zeros(last.shape, np.float64)
    for value in values:
        total += value
    return (total / len(values)).astype(last.dtype)


def _check_files(files: Sequence[Path], output: Path) -> None:
    if not files:
        raise ValueError("no files to average: give at least one path")
    for file in files:
        if not file.is_file():
            raise FileNotFoundError(f"{file}: no such file; check the path")
    kinds = {_suffix(file) for file in (*files, output)}
    if len(kinds) > 1:
        raise ValueError(
            f"{output}: weights and output must all be {' or all '.join(_SUFFIXES)}, not "
            f"{' and '.join(sorted(kinds))}"
        )
    check_new(output)


def _suffix(file: Path) -> str:
    for suffix in _SUFFIXES:
        if file.name.endswith(suffix):
            return suffix
    raise ValueError(f"{file}: the name must end in {' or '.join(_SUFFIXES)}, as Keras writes it")


def _open(file: Path) -> h5py.File:
    with _naming(file):
        return h5py.File(file if _suffix(file) == ".weights.h5" else io.BytesIO(_h5_bytes(file)))


@contextlib.contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Turns the errors of h5py and zipfile, which have many types, into one that names the file."""
    try:
        yield
    except (OSError, RuntimeError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"{file}: not weights that Keras wrote ({error})") from error


def _h5_bytes(file: Path) -> bytes:
    """Returns the HDF5 file with the weights of a model."""
    if _suffix(file) == ".weights.h5":
        return file.read_bytes()
    with zipfile.ZipFile(file) as archive:
        return archive.read(_WEIGHTS_MEMBER)


def _common_weights(opened: dict[Path, h5py.File]) -> list[str]:
    """Returns the weights' names, such as "layers/dense/vars/0", which all files must share."""
    shapes_of_files = []
    for file, h5 in opened.items():
        with _naming(file):
            shapes_of_files.append((file, _shapes(h5)))
    (first, expected), *others = shapes_of_files
    for file, shapes in others:
        differences = [
            f"{name} ({_layer(opened[file if name in shapes else first][name])}) is "
            f"{shapes.get(name, 'missing')} against {expected.get(name, 'missing')}"
            for name in sorted(shapes.keys() | expected.keys())
            if shapes.get(name) != expected.get(name)
        ]
        if differences:
            raise ValueError(
                f"{file} and {first} are of different models: {'; '.join(differences)}; give "
                "weights of one run"
            )
    if not expected:
        raise ValueError(f"{first}: contains no weights")
    return list(expected)


def _shapes(h5: h5py.File) -> dict[str, tuple[int, ...]]:
    """Returns name -> shape of the model's weights, without the optimizer's variables."""
    shapes = {}

    def visit(name: str, item: h5py.Dataset | h5py.Group) -> None:
        if isinstance(item, h5py.Dataset) and not name.startswith("optimizer/"):
            shapes[name] = item.shape

    h5.visititems(visit)
    return shapes


def _layer(dataset: h5py.Dataset) -> str:
    """Returns the layer's name from its attribute: paths have only the class and a number."""
    return f"layer {dataset.parent.attrs.get('name')!r}"


def _read(file: Path, dataset: h5py.Dataset) -> np.ndarray:
    """Returns an array with its type: Keras writes bfloat16 as two bytes and an attribute."""
    with _naming(file):
        array = np.asarray(dataset[...])
        if dataset.attrs.get("dtype") == "bfloat16":
            array = array.view(ml_dtypes.bfloat16)
        is_finite = np.all(np.isfinite(array))
    if not is_finite:
        raise ValueError(
            f"{file}: {dataset.name} ({_layer(dataset)}) contains NaN or infinity: leave out this "
            "file"
        )
    return array


def _write(path: Path, weights: bytes, *, like: Path) -> None:
    """Writes a copy of a file, with other weights."""
    if _suffix(like) == ".weights.h5":
        path.write_bytes(weights)
        return
    with zipfile.ZipFile(like) as source, zipfile.ZipFile(path, "w") as target:
        for member in source.infolist():
            is_weights = member.filename == _WEIGHTS_MEMBER
            target.writestr(member, weights if is_weights else source.read(member))
