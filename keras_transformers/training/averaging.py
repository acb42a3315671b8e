"""Averages of the last checkpoints of a run, during training or from files.

Averaging the weights of the last few checkpoints (Vaswani et al. 2017, section 6.1: 5 for the base
model, 20 for the big one, ten minutes apart) gives most of what an ensemble of them would.

An exponential moving average is the other way to it, and Keras has it: compile with
`optimizers.adam(..., ema=0.999)` and pass `fit` the callback `SwapAverageWeights()`, in front of
any that evaluates or saves.
"""

import contextlib
import io
import os
import zipfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import h5py
import keras
import ml_dtypes
import numpy as np

from keras_transformers.files import check_new, replaced
from keras_transformers.private_api import has_averages, set_has_averages

__all__ = ["CheckpointAveraging", "SwapAverageWeights", "average_checkpoints"]

_WEIGHTS_MEMBER = "model.weights.h5"  # of a .keras archive
_SUFFIXES = (".weights.h5", ".keras")


class CheckpointAveraging(keras.callbacks.Callback):
    """Keeps the last few weights of a run in memory and can put their average into the model.

        averaging = CheckpointAveraging(num_checkpoints=5)
        model.fit(..., callbacks=[averaging])
        with averaging.averaged_weights():
            model.evaluate(...)   # with the average
        averaging.apply()         # for good

    Callbacks after it may evaluate under `averaged_weights()` at the end of an epoch.

    Weights of floating point are averaged, in float64; others keep their newest value. The memory
    is `num_checkpoints` times that of the weights: where this is too much, let
    `keras.callbacks.ModelCheckpoint` write files and use `average_checkpoints`. To survive a stop,
    pass this callback to `runs.resume.Resume`.

    Args:
        num_checkpoints: how many to keep; older ones are forgotten.
        frequency: "epoch", or every so many batches.

    Raises:
        ValueError: `num_checkpoints` or a numeric `frequency` is below 1.
    """

    def __init__(
        self, *, num_checkpoints: int = 5, frequency: Literal["epoch"] | int = "epoch"
    ) -> None:
        super().__init__()
        if num_checkpoints < 1:
            raise ValueError(f"num_checkpoints is {num_checkpoints}, must be 1 or more")
        if frequency != "epoch" and (not isinstance(frequency, int) or frequency < 1):
            raise ValueError(f"frequency is {frequency!r}, must be 'epoch' or 1 or more batches")
        self.num_checkpoints = num_checkpoints
        self.frequency = frequency
        self._checkpoints: deque[list[np.ndarray]] = deque(maxlen=num_checkpoints)
        self._num_batches = 0

    def __len__(self) -> int:
        """How many checkpoints are kept now."""
        return len(self._checkpoints)

    def state(self) -> list[np.ndarray]:
        """What is kept, for `resume.Resume`."""
        counts = np.array([self._num_batches, len(self._checkpoints)])
        return [counts, *(array for weights in self._checkpoints for array in weights)]

    def load_state(self, arrays: Sequence[np.ndarray]) -> None:
        """Puts back what `state` gave."""
        counts, *weights = arrays
        self._num_batches, num_checkpoints = map(int, counts)
        self._checkpoints.clear()
        if num_checkpoints:
            size = len(weights) // num_checkpoints
            self._checkpoints += [weights[i : i + size] for i in range(0, len(weights), size)]

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Counts the batch; keeps the weights when it is time."""
        self._num_batches += 1
        if self.frequency != "epoch" and self._num_batches % self.frequency == 0:
            self._checkpoints.append(self.model.get_weights())

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Keeps the weights when that is done by epoch."""
        if self.frequency == "epoch":
            self._checkpoints.append(self.model.get_weights())

    @contextlib.contextmanager
    def averaged_weights(self) -> Iterator[None]:
        """The model has the average inside the `with` block, its own weights again after it.

        Raises:
            ValueError: no checkpoint has been kept yet.
        """
        own = self.model.get_weights()
        self.apply()
        try:
            yield
        finally:
            self.model.set_weights(own)

    def apply(self) -> None:
        """Puts the average into the model for good; the optimizer's state stays what it is.

        Raises:
            ValueError: no checkpoint has been kept yet.
        """
        if not self._checkpoints:
            each = "epoch" if self.frequency == "epoch" else f"{self.frequency} batches"
            raise ValueError(
                f"no checkpoint to average after {self._num_batches} batches: one is kept each "
                f"{each}; train longer or lower the frequency"
            )
        self.model.set_weights([_mean(values) for values in zip(*self._checkpoints, strict=True)])

    def keep_better(self, score: Callable[[str], float]) -> str:
        """Leaves in the model its last weights or the average, whichever scores higher.

        Args:
            score: called with the name of the weights that the model has at that moment, "last" or
                "average of 5". Score the validation set: choosing by the test set would spoil it.

        Returns:
            The name of the weights that stay; of equals, "last".

        Raises:
            ValueError: no checkpoint has been kept yet.
        """
        last = self.model.get_weights()
        score_of_last = score("last")
        self.apply()
        average = f"average of {len(self)}"
        if score(average) > score_of_last:
            return average
        self.model.set_weights(last)
        return "last"


class SwapAverageWeights(keras.callbacks.SwapEMAWeights):
    """Keras' SwapEMAWeights for each epoch's end, that a resumed run can tell where it stood.

    Between epochs the model has the averages, and the optimizer keeps the weights that train: a run
    that continues from there must change them back first, or it trains the averages. Where training
    is stopped before its last epoch, Keras puts the weights that train back when `fit` returns:
    take those that a `SaveWeights` behind this callback wrote.
    """

    def __init__(self) -> None:
        super().__init__(swap_on_epoch=True)

    def state(self) -> list[np.ndarray]:
        """Which of the two the model has, for `resume.Resume`."""
        return [np.array(has_averages(self))]

    def load_state(self, arrays: Sequence[np.ndarray]) -> None:
        """Puts back what `state` gave."""
        set_has_averages(self, bool(arrays[0]))


def average_checkpoints(
    paths: Sequence[str | os.PathLike[str]], output: str | os.PathLike[str]
) -> Path:
    """Averages files that Keras wrote, `.weights.h5` or `.keras`, into one of the same kind.

    Weights of floating point are averaged, in float64. All else (configuration, integers, the
    optimizer's state) is that of the last file. The output appears whole or not at all.

    Args:
        paths: checkpoints of one model, the newest last.
        output: the file to write; its name ends as theirs do.

    Returns:
        The path of the output.

    Raises:
        FileExistsError: the output exists.
        FileNotFoundError: a checkpoint does not.
        ValueError: no paths; files of different kinds, or that are no Keras checkpoints; weights
            that are not in all of them, or differ in shape, or are not finite: all are named.
    """
    files = [Path(path) for path in paths]
    output = Path(output)
    _check_files(files, output)
    with contextlib.ExitStack() as stack:
        checkpoints = {file: stack.enter_context(_open(file)) for file in files}
        weights = _common_weights(checkpoints)
        averaged = io.BytesIO(_h5_bytes(files[-1]))
        with h5py.File(averaged, "r+") as target:
            for name in weights:
                values = [_read(file, h5[name]) for file, h5 in checkpoints.items()]
                target[name][...] = _mean(values).view(target[name].dtype)
    with replaced(output) as scratch:
        _write(scratch, averaged.getvalue(), like=files[-1])
    return output


def _mean(values: Sequence[np.ndarray]) -> np.ndarray:
    """The mean of arrays of floating point, in their type; of others the last."""
    last = values[-1]
    if not keras.backend.is_float_dtype(last.dtype.name):
        return last
    total = np.zeros(last.shape, np.float64)
    for value in values:
        total += value
    return (total / len(values)).astype(last.dtype)


def _check_files(files: Sequence[Path], output: Path) -> None:
    if not files:
        raise ValueError("no checkpoints to average: give the paths of one or more")
    for file in files:
        if not file.is_file():
            raise FileNotFoundError(f"{file}: no such checkpoint; check the path")
    kinds = {_suffix(file) for file in (*files, output)}
    if len(kinds) > 1:
        raise ValueError(
            f"{output}: checkpoints and output must all be {' or all '.join(_SUFFIXES)}, not "
            f"{' and '.join(sorted(kinds))}"
        )
    check_new(output)


def _suffix(file: Path) -> str:
    for suffix in _SUFFIXES:
        if file.name.endswith(suffix):
            return suffix
    raise ValueError(f"{file}: the name must end in {' or '.join(_SUFFIXES)}, as Keras writes it")


def _open(file: Path) -> h5py.File:
    try:
        return h5py.File(file if _suffix(file) == ".weights.h5" else io.BytesIO(_h5_bytes(file)))
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{file}: not a checkpoint that Keras wrote ({error})") from error


def _h5_bytes(file: Path) -> bytes:
    """The HDF5 file that holds the weights of a checkpoint."""
    if _suffix(file) == ".weights.h5":
        return file.read_bytes()
    with zipfile.ZipFile(file) as archive:
        return archive.read(_WEIGHTS_MEMBER)


def _common_weights(checkpoints: dict[Path, h5py.File]) -> list[str]:
    """The names of the averaged weights, such as "layers/dense/vars/0", once all files agree."""
    (first, expected), *others = ((file, _shapes(h5)) for file, h5 in checkpoints.items())
    for file, shapes in others:
        differences = [
            f"{name} ({_layer(checkpoints[file if name in shapes else first][name])}) is "
            f"{shapes.get(name, 'missing')} against {expected.get(name, 'missing')}"
            for name in sorted(shapes.keys() | expected.keys())
            if shapes.get(name) != expected.get(name)
        ]
        if differences:
            raise ValueError(
                f"{file} and {first} are not of one model: {'; '.join(differences)}; give "
                "checkpoints of one run"
            )
    if not expected:
        raise ValueError(f"{first}: holds no weights")
    return list(expected)


def _shapes(h5: h5py.File) -> dict[str, tuple[int, ...]]:
    """Name -> shape of the model's weights; the optimizer's variables are none."""
    shapes = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and not name.startswith("optimizer/"):
            shapes[name] = item.shape

    h5.visititems(visit)
    return shapes


def _layer(dataset: h5py.Dataset) -> str:
    """Keras numbers the layers of a class in a file; their own names stand in an attribute."""
    return f"layer {dataset.parent.attrs.get('name')!r}"


def _read(file: Path, dataset: h5py.Dataset) -> np.ndarray:
    """An array as it was saved; Keras writes bfloat16 as two bytes and says so in an attribute."""
    array = np.asarray(dataset[...])
    if dataset.attrs.get("dtype") == "bfloat16":
        array = array.view(ml_dtypes.bfloat16)
    if not np.all(np.isfinite(array)):
        raise ValueError(
            f"{file}: {dataset.name} ({_layer(dataset)}) holds NaN or infinity; leave this file out"
        )
    return array


def _write(path: Path, weights: bytes, *, like: Path) -> None:
    """Writes a checkpoint with other weights than those of `like`."""
    if _suffix(like) == ".weights.h5":
        path.write_bytes(weights)
        return
    with zipfile.ZipFile(like) as source, zipfile.ZipFile(path, "w") as target:
        for member in source.infolist():
            is_weights = member.filename == _WEIGHTS_MEMBER
            target.writestr(member, weights if is_weights else source.read(member))
