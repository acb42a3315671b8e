"""Plain checks that many tests share."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from keras_transformers.runs.resume.snapshots import Snapshots, reading


def says(message: str, parts: str) -> bool:
    """Whether a message has these parts in this order; " ... " stands for any words between them.

    Tests hold the value, its place and the remedy, so that a better sentence changes no test.
    """
    pattern = ".*".join(map(re.escape, parts.split(" ... ")))
    return re.search(pattern, message, re.DOTALL) is not None


def round_trip(model: keras.Model, folder: Path) -> keras.Model:
    """The model saved as .keras and loaded again, without custom_objects."""
    path = folder / "model.keras"
    model.save(path)
    return keras.models.load_model(path)


def same_outputs(one: Any, other: Any, tolerance: float = 0.0) -> None:
    """Two structures of arrays are alike, in structure and numbers."""
    keras.tree.assert_same_structure(one, other)
    for a, b in zip(keras.tree.flatten(one), keras.tree.flatten(other), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0, atol=tolerance)


def near(found: Any, wanted: Any, share: float = 1e-5) -> None:
    """Two arrays of floats differ by at most a share of the largest number."""
    wanted = np.asarray(wanted)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=share * np.abs(wanted).max())


def in_float64(source: Any) -> Any:
    """A model or layer with the same weights that computes in float64."""
    described = json.dumps(keras.saving.serialize_keras_object(source))
    exact = keras.saving.deserialize_keras_object(
        json.loads(described.replace('"float32"', '"float64"'))
    )
    exact.set_weights(source.get_weights())
    return exact


def same_but_for_rounding(found: Any, plain: Any, exact: Any, times: float = 8.0) -> None:
    """Two computations in float32 are equally near the one in float64.

    How far kernels of different processors round apart depends on the weights, not only on the
    size of the numbers. So no constant is the limit, but the plain computation's own error.

    Args:
        found: arrays in float32, computed in the way that is tested.
        plain: the same structure, computed in float32 in the plain way.
        exact: the same, computed in float64; see `in_float64`.
        times: how many times the largest error of `plain` that of `found` may be.
    """
    keras.tree.assert_same_structure(found, exact)
    structures = (found, plain, exact)
    for arrays in zip(*map(keras.tree.flatten, structures), strict=True):
        one, other, right = (np.asarray(array, "float64") for array in arrays)
        assert one.shape == right.shape
        if right.size:
            least = np.finfo("float32").eps * np.abs(right).max()
            error = max(least, np.abs(other - right).max())
            np.testing.assert_allclose(one, right, rtol=0, atol=times * error)


def compile_toy(model: keras.Model, optimizer: Any, loss: Any, **arguments: Any) -> None:
    """Compiles a model for a few steps: the first one then takes a quarter of the time.

    XLA takes longer to compile a toy than the toy to train, and an optimizer that builds itself
    within the first step has Keras trace that step twice.
    """
    model.compile(optimizer, loss=loss, jit_compile=False, **arguments)
    model.optimizer.build(model.trainable_variables)


def bert_inputs(rows: int = 3, length: int = 9, vocabulary_size: int = 50) -> dict[str, Any]:
    """Random ids with two segments and rows of different real lengths, the last row full."""
    random = np.random.default_rng(0)
    lengths = np.linspace(3, length, rows).astype(int)
    return {
        "token_ids": random.integers(0, vocabulary_size, (rows, length)).astype("int32"),
        "segment_ids": (np.arange(length)[None] >= lengths[:, None] // 2).astype("int32"),
        "padding_mask": np.arange(length)[None] < lengths[:, None],
    }


def newest_state(run_folder):
    """The arrays of a run's newest checkpoint, by name."""
    path = Snapshots(run_folder / "checkpoints").newest()
    with reading(path) as arrays:
        return dict(arrays)


def copy_checkout(folder: Path) -> list[str]:
    """Copies the files that git tracks, or would track, to a folder; returns their names."""
    root = Path(__file__).parents[1]
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip(f"needs git and its repository: {listed.stderr}")
    # A name may be that of a file that was deleted since it was added.
    names = [name for name in listed.stdout.split("\0") if (root / name).is_file()]
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, folder / name)
    return names


def contrast(one: str, other: str) -> float:
    """The ratio of two colours, such as "#ffffff", that WCAG 2 defines."""
    first, second = sorted(_luminance(colour) for colour in (one, other))
    return (second + 0.05) / (first + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
