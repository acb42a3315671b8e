"""Plain checks that many tests share."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from keras_transformers.runs.resume.snapshots import Snapshots, reading


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
